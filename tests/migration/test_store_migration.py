"""Migrations to another state store, on checkpoints that Spark wrote: every row and every earlier batch stays."""

from __future__ import annotations

import re
from typing import Any

import pytest

from corpus_support import as_memory_files, corpus_names
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.history import History
from headwater.checkpoint.log_entries import parse_commit
from headwater.checkpoint.runs import RUNS_FILE, RunRecord, add_run
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import ANY_STORE
from headwater.migration.store_migration import plan_store_migration
from headwater.statefiles.reader import StateReader, state_rows
from headwater.statefiles.rocksdb_snapshot import open_snapshot
from headwater.statefiles.stores import select_one
from headwater.timemachine.diff import diff
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.keep import make_point
from headwater.timemachine.key_history import key_history
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from headwater.views.state_edits import plan_edit
from timemachine.crashing import Tree
from timemachine.trees import spark_files

CHANGELOG: dict[str, Any] = {"store": "rocksdb-changelog"}
FORMAT_2: dict[str, Any] = {"store": "rocksdb-changelog", "checkpoint_format": 2}
CASES = {
    "aggregation-hdfs": [CHANGELOG, FORMAT_2],
    "aggregation-changelog": [{"store": "hdfs"}, {"store": "rocksdb"}, {"checkpoint_format": 2}],
    "aggregation-rocksdb": [CHANGELOG, {"checkpoint_format": 2}, {"store": "hdfs"}],
    "session-hdfs": [FORMAT_2],
    "session-rocksdb": [{"store": "hdfs"}],
    "join-hdfs": [CHANGELOG, FORMAT_2],
    "join-changelog": [{"store": "hdfs"}, {"checkpoint_format": 2}],
    "typed-keys-hdfs": [CHANGELOG],
    "custom-changelog": [{"store": "rocksdb"}, {"checkpoint_format": 2}],
    "zstd-hdfs": [CHANGELOG],
}


def tree(name: str) -> Tree:
    return Tree(dict(as_memory_files(name).contents))


def rows(files: Tree, batch: int | None = None) -> list[str]:
    return sorted(map(repr, state_rows(files, batch)))


def problems(files: Tree) -> list[str]:
    return [str(one) for one in run_checks(CheckContext(files, 0)) if one.severity == "error"]


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["first", "others"])
@pytest.mark.parametrize("name", CASES)
def test_rows_stay_as_they_are(name: str, number: int) -> None:
    """The state is the same as of each batch, in forks and after undo and rewind, and the checkpoint is sound."""
    for wanted in CASES[name][number:] if number else CASES[name][:1]:
        files = tree(name)
        last = StateReader(files).latest()
        start, before, earlier = spark_files(files.contents), rows(files), rows(files, last - 1)
        plan = plan_store_migration(files, reason="try it", **wanted)
        assert (spark_files(files.contents), plan.batch_id) == (start, last + 1)
        plan.apply()
        assert (rows(files), rows(files, last), rows(files, last - 1)) == (before, before, earlier)
        assert problems(files) == []
        for at in (last, last + 1):
            fork = Tree({})
            plan_fork(files, fork, at=at).apply()
            assert (rows(fork), problems(fork)) == (before, [])
        plan_undo(files).apply()
        assert spark_files(files.contents) == start
        plan_store_migration(files, **wanted).apply()
        plan_rewind(files, to=last).apply()
        assert (rows(files), problems(files)) == (before, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", corpus_names())
def test_every_checkpoint_of_the_corpus(name: str) -> None:
    """Every state that can be written in checkpoint format 2 keeps its rows; the rest is refused by name."""
    files = tree(name)
    if not History(files).logs.state.stores:
        return
    try:
        before = rows(files)
        plan_store_migration(files, **FORMAT_2).apply()
    except ChangeRefused as refused:
        assert refused.code in ("cannot-write-state", "nothing-to-do", "uncommitted-batch", "cannot-migrate")
        return
    assert (rows(files), problems(files)) == (before, [])


def test_offsets_and_commit_name_the_new_form() -> None:
    """Spark reads the kind of store from the offsets, and the state files of format 2 from the commit."""
    files = tree("join-hdfs")
    last = StateReader(files).latest()
    plan_store_migration(files, **FORMAT_2).apply()
    logs = History(files).logs
    provider = "spark.sql.streaming.stateStore.providerClass"
    kinds = [logs.offsets.read(batch).conf[provider].rpartition(".")[2] for batch in (last, last + 1)]
    assert kinds == ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"]
    commit = parse_commit(files.read(f"commits/{last + 1}"), "commits")
    assert commit.version == 2
    assert [len(ids) for ids in (commit.state_unique_ids or {})[0]] == [4, 4]
    assert logs.offsets.read(last + 1).sources == logs.offsets.read(last).sources


@pytest.mark.parametrize(("spark", "version"), [("4.0.5", 2), ("4.1.4", 1), (None, 1)])
def test_snapshots_for_the_spark_that_ran_last(spark: str | None, version: int) -> None:
    """Spark 4.0 reads the metadata of snapshots in format 2 only with version 2, and the others with version 1."""
    files = tree("aggregation-hdfs")
    if spark:
        add_run(files, RunRecord(1, 0, spark=spark))
    before = rows(files)
    plan_store_migration(files, **FORMAT_2).apply()
    assert _versions_of_new_zips(files) == {version}
    assert rows(files) == before
    # Without records, the existing snapshots tell.
    files.contents = {path: data for path, data in files.contents.items() if path != RUNS_FILE}
    for store in ("rocksdb-changelog", "rocksdb"):
        plan_store_migration(files, store=store).apply()
    assert _versions_of_new_zips(files) == {version}
    assert rows(files) == before


def test_snapshots_in_format_1() -> None:
    """They have version 1 on every Spark."""
    files = tree("aggregation-hdfs")
    add_run(files, RunRecord(1, 0, spark="4.0.5"))
    plan_store_migration(files, store="rocksdb").apply()
    assert _versions_of_new_zips(files) == {1}


def _versions_of_new_zips(files: Tree) -> set[int]:
    newest = StateReader(files).latest() + 1
    names = [path for path in files.contents if path.endswith(".zip") and not path.startswith("_headwater/")]
    return {open_snapshot(files, path).version for path in names if re.search(rf"/{newest}[._]", path)}


def test_changes_after_a_migration() -> None:
    """An edit, a restore point and a difference work on a checkpoint with files of both kinds."""
    files = tree("aggregation-hdfs")
    last = StateReader(files).latest()
    before = rows(files)
    plan_store_migration(files, **FORMAT_2).apply()
    point = make_point(files, at=str(last))
    plan_edit(files, sql="update state set count = 77").apply()
    assert (all("'count': 77" in row for row in rows(files)), problems(files)) == (True, [])
    reader = StateReader(files)
    target = select_one(reader.targets(last + 2), ANY_STORE)
    assert len(diff(reader, target, last, last + 1)) == 0
    assert len(diff(reader, target, last, last + 2)) == len(before)
    user = reader.table(target, last)["key"][0].as_py()["user"]
    batches = key_history(reader, target, {"user": user}).batch_id.to_pylist()
    assert set(batches) == {last + 1, last + 2}
    plan_restore(files, point).apply()
    assert (rows(files), problems(files)) == (before, [])


@pytest.mark.parametrize(
    ("name", "wanted", "code", "why"),
    [
        ("aggregation-hdfs", {"store": "hdfs"}, "nothing-to-do", ""),
        ("aggregation-hdfs", {"checkpoint_format": 2}, "cannot-migrate", "have no checkpoint format 2"),
        ("aggregation-format2", {"checkpoint_format": 1}, "cannot-migrate", "cannot continue in format 1"),
        ("aggregation-format2", {"store": "hdfs"}, "cannot-migrate", "have no checkpoint format 2"),
        ("custom-changelog", {"store": "hdfs"}, "cannot-migrate", "needs RocksDB"),
    ],
)
def test_refusals(name: str, wanted: dict[str, Any], code: str, why: str) -> None:
    """What Spark could not read is refused by name."""
    with pytest.raises(ChangeRefused) as refused:
        plan_store_migration(tree(name), **wanted)
    assert refused.value.code == code
    assert why in str(refused.value.evidence.get("why", ""))


def test_unknown_stores() -> None:
    """A store or a format that does not exist is a mistake of usage."""
    for wanted in ({"store": "memory"}, {"checkpoint_format": 3}):
        with pytest.raises(UsageProblem):
            plan_store_migration(tree("aggregation-hdfs"), **wanted)


@pytest.mark.parametrize("verb", ["migrate", "edit"])
def test_a_rewind_drops_the_plan_of_a_batch_that_was_added(verb: str) -> None:
    """Such a batch has the watermark of the one before it, and a migration has planned it for another store."""
    files = tree("aggregation-hdfs")
    last = History(files).last_committed
    assert last is not None
    assert not plan_rewind(files, to=last - 1).replan
    if verb == "migrate":
        plan_store_migration(files, store="rocksdb").apply()
    else:
        plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    rewind = plan_rewind(files, to=last)
    assert rewind.replan
    rewind.apply(allow_missing_input=True)
    assert f"offsets/{last + 1}" not in files.contents
    assert problems(files) == []
