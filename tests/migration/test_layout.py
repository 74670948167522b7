"""Sources and stateful operators that are added, removed or moved, on checkpoints that real Spark wrote; without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE, OFFSETS, SOURCES
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.migrated import FOLDER, LayoutChange
from headwater.checkpoint.plan_record import StatefulOperator
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.migration.compare_endpoints import SourceShape, source_shape
from headwater.migration.field_plan import RequestedFields
from headwater.migration.migrate import NewState, plan_migration
from headwater.migration.migration_plan import MigrationPlan
from headwater.migration.operator_matching import match_operators
from headwater.migration.source_changes import SourceChanges, match_sources, refuse_join_sides, source_files
from headwater.statefiles.reader import state_rows
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.erase import plan_erasure_of_key
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.keep import make_point
from headwater.timemachine.new_layout import NewLayout
from headwater.timemachine.replay_scratch import scratch_with_state
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from headwater.views.migration import migration_text
from headwater.views.state_sql import computed
from timemachine.crashing import Tree
from timemachine.trees import spark_files

STORES = ("hdfs", "rocksdb", "changelog", "format2")


def shapes(*names: str, broker: str = "host") -> list[SourceShape]:
    return [source_shape(name, f"kafka://{broker}/{name}") for name in names]


# ------------------------------------------------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("old", "new", "origins"),
    [
        (shapes("a", "b"), shapes("b", "a"), (1, 0)),
        (shapes("a"), shapes("b", "a"), (None, 0)),
        (shapes("a", "b", "c"), shapes("c", "a"), (2, 0)),
        (shapes("a", "b"), shapes("a", "b", broker="other"), (0, 1)),
        # By what it reads, if it has another name or had none.
        (shapes("a", "b"), [source_shape("x", "kafka://host/b"), *shapes("a")], (1, 0)),
        (
            [source_shape("", "files:/in/a")],
            [source_shape("n", "files:/in/n"), source_shape("a", "files:/in/a")],
            (None, 0),
        ),
        ([SourceShape("", "kafka", "a"), SourceShape("", "kafka", "b")], shapes("b", "a", "c"), (1, 0, None)),
        # By what they read, if two have exchanged their names.
        (shapes("a", "b"), [source_shape("a", "kafka://host/b"), source_shape("b", "kafka://host/a")], (1, 0)),
        (shapes("a", "b"), [source_shape("b", "kafka://host/a"), source_shape("a", "kafka://host/b")], (0, 1)),
    ],
)
def test_sources_are_matched(old: list[SourceShape], new: list[SourceShape], origins: tuple[int | None, ...]) -> None:
    """A source is found by its name, or else by its folder or topic."""
    assert match_sources(old, new).origins == origins


def test_sources_that_may_be_the_same_are_refused() -> None:
    """A source that could be a new one or an old one is refused, unless the user says which it is."""
    old = [SourceShape("", "files"), SourceShape("", "files")]
    new = [source_shape("a", "files:/in/a"), source_shape("b", "files:/in/b"), source_shape("c", "files:/in/c")]
    with pytest.raises(ChangeRefused, match="cannot determine which") as refused:
        match_sources(old, new)
    assert (refused.value.remedy or "").startswith("--source-map NEW=OLD")
    assert match_sources(old, new, {"c": "0", "a": "1"}).origins == (1, None, 0)
    with pytest.raises(UsageProblem, match="no old source x"):
        match_sources(old, new, {"a": "x"})
    with pytest.raises(ChangeRefused, match="cannot determine which"):
        match_sources(shapes("a", "b", "a"), shapes("b", "a"))


def test_sides_of_a_join_keep_their_order() -> None:
    """The state of a join belongs to its sides, so its sources cannot be exchanged; others may be added."""
    swapped, more = (
        match_sources(shapes("a", "b"), shapes("b", "a")),
        match_sources(shapes("a", "b"), shapes("a", "c", "b")),
    )
    with pytest.raises(ChangeRefused, match="order of the sources of a join has changed"):
        refuse_join_sides(swapped, has_join=True)
    refuse_join_sides(swapped, has_join=False)
    refuse_join_sides(more, has_join=True)


def aggregation(*keys: str, **facts: Any) -> StatefulOperator:
    return StatefulOperator("aggregation", {"keys": keys, **facts})


def test_meaning_without_the_sources_that_change() -> None:
    """What an added or dropped source contributes to a union is no difference; another expression of a kept one is."""
    two = aggregation(
        "window(a.at or b.at, 5 minutes)", "a.user or b.customer", watermark=("a.at 1 hour", "b.at 1 hour")
    )
    one = aggregation("window(a.at, 5 minutes)", "a.user", watermark=("a.at 1 hour",))
    added, dropped = match_sources(shapes("a"), shapes("a", "b")), match_sources(shapes("a", "b"), shapes("a"))
    assert added.after(two) == one
    assert dropped.before(two) == one
    assert added.after(aggregation("upper(a.user) or b.user")) != one
    exchanged = match_sources(
        shapes("a", "b"), [source_shape("b", "kafka://host/a"), source_shape("a", "kafka://host/b")]
    )
    new = aggregation("a.user or b.user", "upper(b.kind)", watermark=("a.at 1 hour", "b.at 2 hours"))
    same = aggregation("a.user or b.user", "upper(a.kind)", watermark=("a.at 2 hours", "b.at 1 hour"))
    assert exchanged.after(new) == same
    unnamed = SourceChanges((SourceShape("", "kafka"),), tuple(shapes("a")), (0,))
    assert unnamed.after(one) == aggregation("window(at, 5 minutes)", "user", watermark=("at 1 hour",))


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        ("agg", "agg dedup", [(0, 0)]),
        ("agg", "dedup agg", [(0, 1)]),
        ("agg dedup", "agg", [(0, 0)]),
        ("join agg dedup", "agg dedup limit", [(1, 0), (2, 1)]),
    ],
)
def test_operators_are_matched_by_kind(old: str, new: str, pairs: list[tuple[int, int]]) -> None:
    """Operators of one kind stay in their order."""
    assert list(match_operators(old.split(), new.split()).pairs) == pairs


def test_operators_of_one_kind_are_matched_by_meaning() -> None:
    """Of two aggregations, the one that means the same stays; without a record, it is not certain which."""
    outer, inner = aggregation("hour"), aggregation("minute", "user")
    assert match_operators(["a", "a"], ["a"], (outer, inner), (inner,)).pairs == ((1, 0),)
    assert match_operators(["a"], ["a", "a"], (outer,), (outer, inner)).pairs == ((0, 0),)
    for recorded in (None, (aggregation("day"), aggregation("week"))):
        with pytest.raises(ChangeRefused) as refused:
            match_operators(["a", "a"], ["a"], recorded, (inner,))
        assert "not certain" in str(refused.value.evidence["why"])
    with pytest.raises(ChangeRefused) as none_left:
        match_operators(["a"], ["b"])
    assert "no operator" in str(none_left.value.evidence["why"])


# ----------------------------------------------------------------------------------------------------- checkpoints


def renumbered(name: str, number: int, place: int = 0) -> dict[str, bytes]:
    """Return the metadata and schemas of an operator of a checkpoint in the corpus, under another number."""
    found = {}
    for path, data in as_memory_files(name).contents.items():
        parts = path.split("/")
        if parts[:2] == ["state", str(place)] and "_metadata" in parts and not parts[-1].startswith("."):
            parts[1] = str(number)
            old, new = f'"operatorId":{place}'.encode(), f'"operatorId":{number}'.encode()
            found["/".join(parts)] = data.replace(old, new)
    return {**found, f"state/{number}/0/1.delta": b""}


def planned(files: Tree, *operators: dict[str, bytes], sources: SourceChanges | None = None) -> MigrationPlan:
    """Plan a migration to operators whose metadata is given, or to those of the checkpoint."""
    tree = {path: data for one in operators for path, data in one.items()}
    if not operators:
        tree = {
            path: data for path, data in files.contents.items() if "/_metadata/" in path or "/_stateSchema/" in path
        }
        tree |= {f"state/{number}/0/1.delta": b"" for number in History(files).logs.operators(9)}
    return plan_migration(
        files,
        NewState(MemoryTree(tree), ()),
        RequestedFields({}, ()),
        computed,
        job="jobs.py",
        spark_version="4.2.0",
        recorded_at="2026-01-01T00:00:00.000Z",
        sources=sources,
        record=JobRecord("changed", source_order=tuple(one.name for one in sources.new) if sources else ()),
    )


def in_any_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


def without_tables(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return Spark's files without tables of RocksDB, which Spark removes if no snapshot names them."""
    return {path: data for path, data in spark_files(contents).items() if "/SSTs/" not in path}


def checkpoint(name: str) -> Tree:
    return Tree(dict(as_memory_files(name).contents))


def assert_way_back(files: Tree, before: dict[str, bytes], batch: int) -> None:
    """Assert that a fork, a rewind and an undo across a migration lead to what they would have led to without it."""
    expected = Tree(dict(before))
    plan_rewind(expected, to=6).apply()
    migrated = dict(files.contents)
    across = Tree(dict(migrated))
    plan = plan_rewind(across, to=6)
    assert any("changed the sources or stateful operators" in text for text in plan.warnings)
    plan.apply()
    assert spark_files(across.contents) == spark_files(expected.contents)
    assert not any(path.startswith(FOLDER) for path in across.contents)
    assert across.contents.get(JOB_FILE) == before.get(JOB_FILE)
    plan_undo(across).apply()
    assert spark_files(across.contents) == spark_files(migrated)
    fork, without = Tree({}, "memory:fork"), Tree({}, "memory:without")
    plan_fork(files, fork, at=6).apply()
    plan_fork(Tree(dict(before)), without, at=6).apply()
    ids = ("metadata", "_headwater/forked_from.json")
    kept = [{path: data for path, data in one.contents.items() if path not in ids} for one in (fork, without)]
    assert {path for path in kept[0] if not path.startswith("_headwater/")} == {
        path for path in kept[1] if not path.startswith("_headwater/")
    }
    with pytest.raises(ChangeRefused, match="changed the sources or operators"):
        make_point(files, "early", at="6")
    plan_rewind(files, to=None, replan=True).apply()
    assert not any(path.startswith(("offsets/", "state/", FOLDER)) for path in files.contents)
    plan_undo(files).apply()
    plan_undo(files).apply()
    assert spark_files(files.contents) == spark_files(before)
    assert batch not in History(files).batch_ids


@pytest.mark.parametrize("name", ["dedup-hdfs", "custom-format2"])
def test_a_source_in_front(name: str) -> None:
    """A new source in front has no offsets in any batch, and the log of the other one moves along."""
    files = checkpoint(name)
    before, rows = dict(files.contents), state_rows(files)
    changes = match_sources(
        [source_shape("old", "files:/old")], [source_shape("new", "files:/new"), source_shape("old", "files:/old")]
    )
    plan = planned(files, sources=changes)
    assert plan.effects[0].startswith("new: files is read from batch 11 on")
    assert "  sources     + new: files: new, at place 0" in migration_text(plan).lines()
    plan.apply()
    logs = History(files).logs
    for number in logs.offsets.ids:
        old = before[f"offsets/{min(number, 9)}"].decode().split("\n")
        assert files.read(f"offsets/{number}").decode().split("\n") == [*old[:2], "-", *old[2:]]
    moved = {
        path.replace("sources/0/", "sources/1/"): data for path, data in before.items() if path.startswith("sources/")
    }
    assert {path: data for path, data in files.contents.items() if path.startswith("sources/")} == moved
    assert (state_rows(files), state_rows(files, 7)) == (rows, state_rows(Tree(before), 7))
    assert [identity.name for identity in logs.identities.values()] == ["new", "old"]
    assert not [found for found in run_checks(CheckContext(files, 0)) if found.severity == "error"]
    assert_way_back(files, before, plan.batch_id)


@pytest.mark.parametrize("store", STORES)
def test_an_operator_in_front(store: str) -> None:
    """A new operator takes the number of another one, which keeps its state; earlier batches stay readable."""
    files = checkpoint(f"dedup-{store}")
    before, rows = dict(files.contents), state_rows(files)
    assert rows
    plan = planned(files, renumbered("aggregation-hdfs", 0), renumbered(f"dedup-{store}", 1))
    assert plan.operators[0] == {"operator": "stateStoreSave", "old_number": None, "new_number": 0}
    assert "is new and has no state" in plan.effects[0]
    plan.apply()
    assert in_any_order({**row, "operator_id": 0} for row in state_rows(files)) == in_any_order(rows)
    assert {row["operator_id"] for row in state_rows(files)} == {1}
    assert state_rows(files, 7) == state_rows(Tree(before), 7)
    assert not [found for found in run_checks(CheckContext(files, 0)) if found.severity == "error"]
    assert all(one.can_rewind_to for one in History(files).batches() if one.batch_id >= 7)
    assert_way_back(files, before, plan.batch_id)


@pytest.mark.parametrize("store", STORES)
def test_the_first_operator_is_removed(store: str) -> None:
    """The folder of a number that is no longer used leaves, and readers of earlier batches still find its state."""
    files = checkpoint(f"dedup-{store}")
    planned(files, renumbered("aggregation-hdfs", 0), renumbered(f"dedup-{store}", 1)).apply()
    before, rows = dict(files.contents), state_rows(files)
    plan = planned(files, renumbered(f"dedup-{store}", 0))
    assert "is removed with its state" in plan.effects[0]
    plan.apply()
    assert in_any_order({**row, "operator_id": 1} for row in state_rows(files)) == in_any_order(rows)
    assert not any(path.startswith("state/1/") for path in files.contents)
    assert state_rows(files, plan.batch_id - 1) == rows
    assert not [found for found in run_checks(CheckContext(files, 0)) if found.severity == "error"]
    plan_rewind(files, to=plan.batch_id - 1).apply()
    assert without_tables(files.contents) == without_tables(before)
    assert state_rows(files) == rows


@pytest.mark.parametrize("store", ["hdfs", "changelog"])
def test_an_erasure_reaches_former_operators(store: str) -> None:
    """After operators have moved, an erasure removes every older file of state, also those under former numbers."""
    files = checkpoint(f"dedup-{store}")
    planned(files, renumbered("aggregation-hdfs", 0), renumbered(f"dedup-{store}", 1)).apply()
    planned(files, renumbered(f"dedup-{store}", 0)).apply()
    rows = state_rows(files)
    user = next(row["key"]["user"] for row in rows if row["key"]["user"])  # type: ignore[index]
    older = {
        path for path in files.contents if re.search(r"/state/.*\.(delta|changelog|snapshot|zip|sst)$", f"/{path}")
    }
    assert any(path.startswith(FOLDER) for path in older)
    plan_erasure_of_key(StateEditor(files), {"user": user}).apply()
    assert not older & files.contents.keys()
    kept = [row for row in rows if row["key"]["user"] != user]  # type: ignore[index]
    assert in_any_order(state_rows(files)) == in_any_order(kept)


def test_a_replay_from_before_sources_changed_places() -> None:
    """The scratch checkpoint has the offsets and the files of each source at the place that it had then."""
    files = as_memory_files("join-changelog")
    offsets = files.read("offsets/4").replace(b'{"logOffset":2}', b'{"logOffset":1}', 1)  # only one source had input
    files.write("offsets/4", offsets)
    files.remove("offsets/.4.crc")
    before = scratch_files(files)
    history = History(files)
    places = (SourceShape("a", "files"), SourceShape("b", "files"))
    moved = source_files(history.logs, 9, SourceChanges(places, places[::-1], (1, 0)))
    operators = history.logs.operators(9)
    layout = NewLayout(
        LayoutChange(operators, operators, sources=True),
        moved.leaving,
        moved.placed,
        moved.written,
        moved.offsets,
        None,
    )
    plan_extra_batch(history, {}, verb="migrate", about="m", layout=layout).apply(files, None)
    assert scratch_files(files) == before


def scratch_files(files: MemoryTree) -> dict[str, bytes]:
    """Return the offsets and the logs of the sources with which batch 4 is replayed."""
    with TemporaryDirectory() as folder:
        scratch = scratch_with_state(files, 4, Path(folder) / "scratch")
        scratch.plan_batch(4)
        paths = [path for path, _ in walk(scratch.checkpoint) if path.startswith((OFFSETS, SOURCES))]
        return {path: scratch.checkpoint.read(path) for path in paths if not path.endswith(".crc")}
