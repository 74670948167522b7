"""Exported states and restore points that someone else made: an import, a plan, or an error of Headwater."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint.fuzzing import mutated
from corpus_support import as_memory_files, load
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.restore_points import FOLDER, restore_points
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.statefiles.reader import StateReader
from headwater.timemachine.keep import make_point
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.transfer import export_tables, plan_import
from headwater.views.state_edits import plan_edit
from headwater.views.state_files import read_tables, write_tables
from timemachine.trees import spark_files

SEED = int(os.environ.get("SEED", "20260701"))
ROUNDS = [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 20))]


def import_mutated(checkpoint: Path, folder: Path, suffix: str, turn: int, count: int) -> None:
    """Import mutated files of an exported state; print how many were imported and how many refused."""
    files = LocalTree(checkpoint)
    exported, chance = (folder / f"exported{suffix}").read_bytes(), random.Random(SEED * 1000 + turn)
    file, outcomes = folder / f"mutated{suffix}", {"planned": 0, "refused": 0}
    for _ in range(count):
        contents, descriptions = mutated({"file": exported}, chance)
        file.unlink(missing_ok=True)  # a mapped file must not shrink
        file.write_bytes(next(iter(contents.values()), b""))
        try:
            plan_import(files, read_tables(str(file)))
            outcomes["planned"] += 1
        except HeadwaterError as error:
            assert error.code != "internal-error"
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"turn {turn}: {descriptions}") from error
        try:
            plan_edit(files, rows=next(iter(read_tables(str(file)).values())))
        except HeadwaterError as error:
            assert error.problem
    print(outcomes)


@pytest.mark.parametrize("turn", ROUNDS)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_mutated_exports(suffix: str, turn: int, tmp_path: Path) -> None:
    """A mutated file is imported or refused. The process survives it, whatever lengths and offsets the file claims."""
    path = load("aggregation-hdfs", tmp_path).path
    reader = StateReader(LocalTree(path))
    write_tables(export_tables(reader, reader.latest()), str(tmp_path / f"exported{suffix}"))
    arguments = f"Path({str(path)!r}), Path({str(tmp_path)!r}), {suffix!r}, {turn}, {100 if turn else 10}"
    code = f"from timemachine.test_hostile_imports import *; import_mutated({arguments})"
    here = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'refused': 0" not in done.stdout


@pytest.mark.parametrize(
    "schema",
    ["{", "null", "[]", '{"type": "struct", "fields": [{"0ame": "x"}]}', "[" * 100_000],
    ids=["cut", "null", "list", "field", "nested"],
)
def test_an_export_with_a_corrupt_schema(schema: str, tmp_path: Path) -> None:
    """A file whose recorded schema cannot be parsed is refused as one that was not exported."""
    files = LocalTree(load("aggregation-hdfs", tmp_path).path)
    reader = StateReader(files)
    (table,) = export_tables(reader, reader.latest())
    origin = json.loads(table.schema.metadata[b"headwater"])
    for part in ("key_schema", "value_schema"):
        metadata = {b"headwater": json.dumps({**origin, part: schema}).encode()}
        with pytest.raises(UsageProblem, match="was not written by headwater export"):
            plan_import(files, {"the file": table.replace_schema_metadata(metadata)})


@pytest.mark.parametrize("turn", ROUNDS)
def test_mutated_restore_points(turn: int) -> None:
    """A mutated point is listed or not, rewound to or refused, reported by fsck, and nothing else is touched."""
    files = MemoryTree(as_memory_files("dedup-hdfs").contents)
    make_point(files, "mine", at="4")
    whole, chance = files.contents, random.Random(SEED * 1000 + turn)
    kept = {path: data for path, data in whole.items() if path.startswith(f"{FOLDER}/")}
    rest = {path: data for path, data in whole.items() if path not in kept}
    refused = 0
    for _ in range(150 if turn else 20):
        changed, descriptions = mutated(kept, chance)
        tree = MemoryTree({**rest, **{path: data for path, data in changed.items() if path.startswith(f"{FOLDER}/")}})
        try:
            findings = [finding.as_dict() for finding in run_checks(CheckContext(tree, 0))]
            for point in restore_points(tree):
                plan_restore(tree, point)
        except HeadwaterError as error:
            assert error.problem
            refused += 1
        except Exception as error:
            raise AssertionError(f"turn {turn}: {'; '.join(descriptions)}") from error
        else:
            assert all(finding["message"] for finding in findings)
        assert spark_files(tree.contents) == spark_files(whole)
    assert refused
