"""An erasure leaves no file of the checkpoint with the erased key, and everything else as it was."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from corpus_support import load
from headwater import Checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.statefiles.codecs import decompress
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sst import read_tables
from headwater.timemachine.keep import make_point
from headwater.timemachine.transfer import export_tables

OFTEN = ("aggregation-format2", "aggregation-hdfs", "merge1-custom")
OTHERS = (
    "custom-changelog",
    "aggregation-changelog",
    "aggregation-rocksdb",
    "custom-format2",
    "dedup-changelog",
    "session-changelog",
    "zstd-changelog",
)
CHECKPOINTS = [*OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


def contents(path: Path) -> bytes:
    """Return the bytes of a file as a reader of the state would find them: decompressed, and tables row by row."""
    tree = LocalTree(path.parent)
    data = path.read_bytes()
    if path.suffix in (".changelog", ".delta", ".snapshot"):
        return decompress(data, path.name).data.tobytes()
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(io.BytesIO(data))
        return b"".join(archive.read(name) for name in archive.namelist())
    if path.suffix == ".sst":
        rows = read_tables(tree, [path.name])[0]
        return b"".join(rows.key(number) + rows.value(number) for number in range(len(rows)))
    return data


def files_with(folder: Path, text: str) -> list[str]:
    """Return every file below a folder that contains a text, raw or decompressed."""
    needle = text.encode()
    every = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in every if needle in path.read_bytes() or needle in contents(path)]


def exported(checkpoint: Checkpoint) -> list[list[str]]:
    """Return all rows of all stores and variables as texts."""
    batch = checkpoint.history.last_committed
    assert batch is not None
    tables = export_tables(StateReader(checkpoint.files), batch)
    return [sorted(map(str, table.to_pylist())) for table in tables]


NAMES = ("çelik", "a name that is longer than sixteen bytes")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_no_file_contains_the_key(name: str, tmp_path: Path) -> None:
    """Not the state, nor files of retained batches, restore points or earlier changes; other rows are as before."""
    path = load(name, tmp_path).path
    checkpoint = Checkpoint(path)
    before, last = exported(checkpoint), checkpoint.history.last_committed
    assert last is not None
    make_point(checkpoint.files, "before")
    present = [one for one in NAMES if any(f"'{one}'" in row for rows in before for row in rows)]
    someone = present[0]
    checkpoint.edit({"user": someone}, delete=True).apply()
    checkpoint.undo().apply()
    assert len(files_with(path, someone)) > 3
    plan = checkpoint.edit({"user": someone}, delete=True, erase=True, reason="request 17")
    assert plan.erasure is not None
    assert plan.erasure.points == ("before",)
    plan.apply()
    assert files_with(path, someone) == []
    after = exported(checkpoint)
    assert after == [[row for row in rows if f"'{someone}'" not in row] for rows in before] != before
    check_erased(checkpoint, last)
    # A later change works as ever.
    checkpoint.edit({"user": ""}, delete=True).apply()
    checkpoint.undo().apply()
    assert exported(checkpoint) == after


@pytest.mark.parametrize(
    "name",
    ["join-changelog", *(pytest.param(f"join-{store}", marks=pytest.mark.slow) for store in ("hdfs", "format2"))],
)
def test_all_stores_of_a_join_are_erased(name: str, tmp_path: Path) -> None:
    """The four stores still agree, and other rows are as before."""
    checkpoint = Checkpoint(load(name, tmp_path).path)
    before, last = exported(checkpoint), checkpoint.history.last_committed
    assert last is not None
    checkpoint.edit({"field0": 1}, delete=True, erase=True).apply()
    assert exported(checkpoint) == [[row for row in rows if "'field0': 1," not in row] for rows in before] != before
    check_erased(checkpoint, last)


def check_erased(checkpoint: Checkpoint, last: int) -> None:
    assert checkpoint.kept() == []
    assert not any(batch.can_rewind_to for batch in checkpoint.batches if batch.batch_id <= last)
    assert checkpoint.batches[-1].can_rewind_to
    assert [finding for finding in checkpoint.fsck() if finding.severity == "error"] == []
    with pytest.raises(ChangeRefused, match="an erasure cannot be undone"):
        checkpoint.undo()
    assert checkpoint.history.last_committed == last + 1


def test_rows_are_erased_by_a_condition(tmp_path: Path) -> None:
    """Of an operator with one store; the parts of custom state could disagree afterwards."""
    path = load("aggregation-changelog", tmp_path / "one").path
    checkpoint = Checkpoint(path)
    checkpoint.edit(where="\"user\" = 'çelik'", delete=True, erase=True).apply()
    assert files_with(path, "çelik") == []
    custom = Checkpoint(load("custom-changelog", tmp_path / "other").path)
    with pytest.raises(ChangeRefused, match="cannot be erased by a condition"):
        custom.edit(where="total > 0", delete=True, erase=True, var="total")
    with pytest.raises(UsageProblem, match="--erase needs --delete"):
        checkpoint.edit({"user": "ann"}, set={"count": 1}, erase=True)


def test_a_key_that_is_only_in_earlier_batches_is_erased(tmp_path: Path) -> None:
    """It need not be in the state any more."""
    path = load("aggregation-changelog", tmp_path).path
    checkpoint = Checkpoint(path)
    checkpoint.edit({"user": "çelik"}, delete=True).apply()
    assert files_with(path, "çelik") != []
    plan = checkpoint.edit({"user": "çelik"}, delete=True, erase=True)
    assert "rows        none now" in repr(plan)
    plan.apply()
    assert files_with(path, "çelik") == []


def test_other_files_with_the_key_are_named(tmp_path: Path) -> None:
    """A file that is kept and contains the text of the key is a warning of the plan."""
    path = load("aggregation-changelog", tmp_path).path
    (path / "_headwater").mkdir()
    (path / "_headwater/job.json").write_text(
        json.dumps({"job": "x", "settings": {"who": "çelik"}}, ensure_ascii=False)
    )
    plan = Checkpoint(path).edit({"user": "çelik"}, delete=True, erase=True)
    assert any(warning.startswith("_headwater/job.json also contains") for warning in plan.warnings)
    assert any("only the checkpoint is erased" in warning for warning in plan.warnings)


def test_points_that_were_made_after_the_plan_are_deleted_too(tmp_path: Path) -> None:
    """An erasure leaves no restore point that still has the rows."""
    path = load("aggregation-changelog", tmp_path).path
    opened = Checkpoint(path)
    plan = opened.edit({"user": NAMES[0]}, delete=True, erase=True)
    make_point(opened.files, "meanwhile")
    assert files_with(path, NAMES[0])
    plan.apply()
    assert files_with(path, NAMES[0]) == []
