"""Whatever is wrong with the files of a table, the outcome is a plan, a finding or a Headwater error."""

from __future__ import annotations

import io
import json
import lzma
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from checkpoint.fuzzing import Contents, mutated
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import HeadwaterError
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.tables import Checkpointed, RewindableTable, open_table
from headwater.timemachine.tables import checkpointed

CORPUS = Path(__file__).parents[1] / "corpus"
SEED = int(os.environ.get("SEED", "20260701"))
ROUNDS = [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 60))]
MUTATIONS = int(os.environ.get("HEADWATER_FUZZ_MUTATIONS", "5000")) // len(ROUNDS)


@cache
def archive(kind: str, name: str) -> Contents:
    """Return the files of a table that Spark wrote, and of its checkpoint."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((CORPUS / kind / f"{name}.tar.xz").read_bytes()))) as tar:
        return {member.name: held.read() for member in tar if (held := tar.extractfile(member))}


def below(contents: Contents, folder: str) -> Contents:
    return {path.removeprefix(f"{folder}/"): data for path, data in contents.items() if path.startswith(f"{folder}/")}


def names(kind: str) -> list[str]:
    return sorted(file.name.removesuffix(".tar.xz") for file in (CORPUS / kind).glob("*.tar.xz"))


def outcomes(open_it: Callable[[], RewindableTable | None], query: Checkpointed) -> Iterator[str]:
    """Yield what rewind, keep, fork and fsck say about a table; errors of Headwater as their message."""

    def attempts() -> Iterator[Callable[[RewindableTable], object]]:
        for to in (-1, 0, query.committed - 1):
            yield lambda table, to=to: table.plan_rewind(query, to, change_id="c").as_dict()
            yield lambda table, to=to: table.plan_rewind(query, to, change_id="c", keep_foreign=True).as_dict()
        yield lambda table: table.plan_rewind(query, 0, change_id="c", pinned=table.version_of(query, 0)).as_dict()
        yield lambda table: table.check_pinned(1, 0, 10**13)
        yield lambda table: [finding.as_dict() for finding in table.compare(query)]
        yield lambda table: table.plan_copy(query, 0, query_id="q", into=MemoryTree({})).version
        yield lambda table: (table.exists, table.fingerprint())

    for attempt in attempts():
        try:
            table = open_it()
            assert table is not None
            yield repr(attempt(table)) if table.exists else "no table"
        except HeadwaterError as error:
            assert error.problem
            yield f"{error.code}: {error}"


def delta_outcomes(log: Contents, data: Contents, query: Checkpointed) -> list[str]:
    return list(outcomes(lambda: DeltaTable(MemoryTree(log | data), "delta:table"), query))


@pytest.mark.parametrize("turn", ROUNDS)
def test_mutations_of_delta_tables(turn: int) -> None:
    """No mutation of a log raises any other exception, and all that is said can be printed. Most are noticed."""
    chance, noticed, compared = random.Random(SEED * 1000 + turn), 0, 20
    for number in range(MUTATIONS):
        name = chance.choice(names("delta"))
        home = archive("delta", name)
        query = checkpointed(History(MemoryTree(below(home, "checkpoint"))))
        table = below(home, "table")
        log = {path: data for path, data in table.items() if path.startswith("_delta_log/")}
        data = {path: table[path] for path in table.keys() - log.keys()}
        changed, descriptions = mutated(log, chance)
        try:
            said = delta_outcomes(changed, data, query)
            "".join(said).encode("utf-8")
        except Exception as error:
            raise AssertionError(f"{name}, seed {SEED}, turn {turn}, {number}: {'; '.join(descriptions)}") from error
        noticed += number < compared and said != delta_outcomes(log, data, query)
    assert noticed >= compared // 3


@pytest.mark.parametrize("turn", ROUNDS)
def test_mutations_of_iceberg_tables(turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mutation of metadata, manifests or the version hint raises any other exception."""
    monkeypatch.chdir(tmp_path)
    chance = random.Random(SEED * 1000 + turn)
    for number in range(MUTATIONS // 4):
        name = chance.choice(names("iceberg"))
        home = archive("iceberg", name)
        metadata = {path: data for path, data in home.items() if "/metadata/" in path}
        changed, descriptions = mutated(metadata, chance)
        changed = {path: data for path, data in changed.items() if "//" not in path}
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        folder = LocalTree(tmp_path / name)
        for path, data in ({path: data for path, data in home.items() if path not in metadata} | changed).items():
            try:
                folder.write(path, data)
            except OSError:  # a mutation can make a file of a folder
                continue
        uri = str(json.loads(home["case.json"])["uri"])
        try:
            query = checkpointed(History(LocalTree(tmp_path / name / "checkpoint")))
            said = list(outcomes(lambda uri=uri: open_table(uri), query))
            "".join(said).encode("utf-8")
        except Exception as error:
            raise AssertionError(f"{name}, seed {SEED}, turn {turn}, {number}: {'; '.join(descriptions)}") from error
