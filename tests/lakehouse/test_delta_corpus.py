"""Headwater's reader and planner on Delta tables that real Spark wrote, with delta-rs and Delta itself as oracles."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as RustTable

from corpus_maker.delta_tables import STORIES, name_of
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import rows_in
from headwater.lakehouse.delta_features import refuse_features
from headwater.lakehouse.delta_files import missing_files
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.tables import Checkpointed
from headwater.timemachine.tables import checkpointed, fsck
from lakehouse.delta_support import delta_table

FOLDER = Path(__file__).parents[1] / "corpus" / "delta"
NAMES = sorted(archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz"))
REWINDABLE = [name for name in NAMES if name not in {"without-transactions", "restored", "restored-by-time"}]


@cache
def _archive(name: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((FOLDER / f"{name}.tar.xz").read_bytes()))) as tar:
        return {member.name: held.read() for member in tar if (held := tar.extractfile(member))}


def _note(name: str, note: str) -> Any:
    return json.loads(_archive(name)[f"{note}.json"])


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a table and its checkpoints, and return their folder."""

    def unpack(name: str) -> Path:
        for path, data in _archive(name).items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return tmp_path / name

    return unpack


def _query(home: Path, name: str = "checkpoint") -> Checkpointed:
    return checkpointed(History(LocalTree(home / name)))


def _files_by_rust(path: Path, version: int) -> set[str]:
    return {Path(uri).name for uri in RustTable(str(path), version=version).file_uris()}


def test_the_archives_are_those_that_the_maker_writes() -> None:
    """Every story has an archive, and no archive is left over."""
    assert sorted(name_of(story) for story in STORIES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_version_has_the_rows_that_delta_counts(unpacked: Callable[[str], Path], name: str) -> None:
    """The statistics of each version's files add up to the rows that Delta reads, and its files exist."""
    log = DeltaLog(LocalTree(unpacked(name) / "table"))
    for version, rows in _note(name, "versions").items():
        snapshot = log.snapshot(int(version))
        assert sum(rows_in(action) or 0 for action in snapshot.files.values()) == len(rows), version
        assert missing_files(log.files, snapshot.files.values()) == []
    refuse_features(log.snapshot(log.head), "delta:x")


def test_a_batch_that_is_committed_during_the_check(unpacked: Callable[[str], Path]) -> None:
    """A batch that reaches the table after the checkpoint's batches were listed is not ahead of the checkpoint."""
    home = unpacked("append")
    names = ["checkpoint/offsets/5", "checkpoint/commits/5", "table/_delta_log/00000000000000000005.json"]
    newest = {home / name: (home / name).read_bytes() for name in names}
    for path in newest:
        path.unlink()

    class Running(LocalTree):
        def read(self, path: str) -> bytes:
            if path.startswith("sources/"):  # the checks of the source follow those of the logs
                for late, data in newest.items():
                    late.write_bytes(data)
            return super().read(path)

    found = fsck(Running(home / "checkpoint"), f"delta:{home}/table")
    assert [one for one in found if one.severity != "info"] == []
    assert "table-equal" in {one.code for one in found}
    (home / "checkpoint/commits/5").unlink()
    (home / "checkpoint/offsets/5").unlink()
    assert "table-ahead" in {one.code for one in fsck(LocalTree(home / "checkpoint"), f"delta:{home}/table")}


@pytest.mark.parametrize("name", NAMES)
def test_the_id_of_a_table_needs_no_snapshot(unpacked: Callable[[str], Path], name: str) -> None:
    """The newest metadata is found in a commit or in the log checkpoint before it."""
    files = LocalTree(unpacked(name) / "table")
    newest = DeltaLog(files).snapshot(DeltaLog(files).head)
    assert DeltaLog(files).table_id == newest.table_id != ""


@pytest.mark.parametrize("name", [name for name in NAMES if name != "features"])
def test_every_version_has_the_files_that_delta_rs_lists(unpacked: Callable[[str], Path], name: str) -> None:
    """delta-rs lists the same files. It cannot read the table with row tracking."""
    table = unpacked(name) / "table"
    log = DeltaLog(LocalTree(table))
    for version in log.versions:
        ours = {Path(path).name for path, _ in log.snapshot(version).files}
        assert ours == _files_by_rust(table, version), version


@pytest.mark.parametrize("name", REWINDABLE)
def test_every_batch_can_be_rewound_to(unpacked: Callable[[str], Path], name: str) -> None:
    """For every batch, the table gets exactly the rows that it had after the batch, and take-back returns them all."""
    home = unpacked(name)
    table, query = home / "table", _query(home)
    rows = {int(version): found for version, found in _note(name, "versions").items()}
    log = DeltaLog(LocalTree(table))
    head = log.snapshot(log.head)
    batches = {log.commit(version).batch_of(query.query_id): version for version in log.versions}
    for to in range(-1, query.committed):
        keep = name in {"two-queries", "foreign-insert", "foreign-delete"}
        try:
            plan = delta_table(table).plan_rewind(query, to, change_id="x", keep_foreign=keep)
        except ChangeRefused as refusal:
            assert refusal.code == "cannot-keep-foreign" and name == "foreign-delete" and to < 2
            continue
        assert plan.action is not None
        delta_table(table).apply(plan.action)
        after = DeltaLog(LocalTree(table))
        result = after.snapshot(after.head)
        assert result.transactions[query.query_id] == to
        counted = sum(rows_in(action) or 0 for action in result.files.values())
        if not keep:
            # Others may have optimized the table between two batches.
            assert counted == len(rows.get(batches[to + 1] - 1, ())), to
        elif name == "two-queries":
            assert counted == 3 * (to + 1) + 9
        elif name == "foreign-insert":
            assert counted == 3 * (to + 1) + 1
        if name != "features":
            assert {Path(path).name for path, _ in result.files} == _files_by_rust(table, after.head)
        delta_table(table).take_back(plan.action)
        back = DeltaLog(LocalTree(table))
        restored = back.snapshot(back.head)
        assert (restored.files.keys(), restored.transactions) == (head.files.keys(), head.transactions)
        assert restored.metadata.get("schemaString") == head.metadata.get("schemaString")


@pytest.mark.parametrize("name", ["restored", "restored-by-time"])
def test_a_restore_by_hand_is_recognized(unpacked: Callable[[str], Path], name: str) -> None:
    """The batches that RESTORE took out of the table are known, whether it named a version or a time."""
    home = unpacked(name)
    newest = {"restored": 1, "restored-by-time": 2}[name]
    codes = [found.code for found in fsck(LocalTree(home / "checkpoint"), f"delta:{home / 'table'}")]
    assert "table-restored" in codes
    with pytest.raises(ChangeRefused) as refusal:
        delta_table(home / "table").plan_rewind(_query(home), newest + 1, change_id="x")
    assert refusal.value.code == "table-restored"
    plan = delta_table(home / "table").plan_rewind(_query(home), newest - 1, change_id="x")
    assert plan.batches == (newest,)
    assert plan.leaving.rows == 3


def test_a_schema_that_batches_changed_returns(unpacked: Callable[[str], Path]) -> None:
    """A rewind before the batch that added a column writes the earlier schema, and undo the later one."""
    home = unpacked("merge-schema")
    plan = delta_table(home / "table").plan_rewind(_query(home), 1, change_id="x")
    assert plan.action is not None
    delta_table(home / "table").apply(plan.action)
    log = DeltaLog(LocalTree(home / "table"))
    assert "doubled" not in log.snapshot(log.head).metadata["schemaString"]
    undo = delta_table(home / "table").plan_undo(_query(home), plan.action, change_id="y")
    assert undo.action is not None
    delta_table(home / "table").apply(undo.action)
    log = DeltaLog(LocalTree(home / "table"))
    assert "doubled" in log.snapshot(log.head).metadata["schemaString"]


def test_in_commit_timestamps_increase(unpacked: Callable[[str], Path]) -> None:
    """Where Delta requires it, each commit is later than the one before, and the highest row id stays."""
    home = unpacked("features")
    plan = delta_table(home / "table").plan_rewind(_query(home), 1, change_id="x")
    assert plan.action is not None
    for _ in range(2):
        delta_table(home / "table").apply(plan.action)
        delta_table(home / "table").take_back(plan.action)
    log = DeltaLog(LocalTree(home / "table"))
    times = [log.commit(version).info["inCommitTimestamp"] for version in log.versions]
    assert times == sorted(set(times))
    assert "delta.rowTracking" not in str(log.commit(log.head).actions.get("domainMetadata", ()))


def test_a_table_without_transactions_is_refused(unpacked: Callable[[str], Path]) -> None:
    """foreachBatch without txnAppId leaves no trace of batches."""
    home = unpacked("without-transactions")
    with pytest.raises(ChangeRefused) as refusal:
        delta_table(home / "table").plan_rewind(_query(home), 1, change_id="x")
    assert refusal.value.code == "not-its-table"
    assert "txnAppId" in str(refusal.value)
