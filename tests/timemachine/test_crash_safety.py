"""A change can be interrupted at any moment: the checkpoint is then the old one, the new one, or Spark refuses it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.checkpoint.checks import interrupted_operation, run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import PLANS_FILE
from headwater.checkpoint.log_entries import JOIN_STORES
from headwater.checkpoint.migrated import LayoutChange
from headwater.checkpoint.restore_points import restore_points
from headwater.core.errors import ChangeRefused
from headwater.core.ids import StoreKey
from headwater.migration.compare_endpoints import SourceShape
from headwater.migration.source_changes import SourceChanges, source_files
from headwater.statefiles.statewriter import put
from headwater.timemachine.change import SCRATCH, fingerprint
from headwater.timemachine.compact import empty_quarantine
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.erase import plan_erasure_of_key
from headwater.timemachine.erased import ERASES
from headwater.timemachine.executor import Executor, guard_notice
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_adoption, plan_fork
from headwater.timemachine.journal import read_pending
from headwater.timemachine.keep import drop_point, make_point
from headwater.timemachine.new_layout import NewLayout
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.store_files import StoreChange, StoreForm
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule, Tree
from timemachine.interrupted_changes import Media, Place, Verb, points_of, run_on
from timemachine.trees import MATRIX, SINK, Contents, checkpoint, rerun, sink


def _verbs(name: str) -> Iterator[tuple[str, Verb]]:
    start = Place(checkpoint(name), sink(10))

    files, folder = start.trees
    kept = Verb.of(start, plan_rewind(files, to=4, sink=folder).change)
    yield "rewind", kept
    yield "rewind --replan", Verb.of(start, plan_rewind(files, to=6, replan=True, sink=folder).change)
    yield "rewind --redo 0", Verb.of(start, plan_rewind(files, to=None, sink=folder).change)
    files, folder = kept.after.trees
    yield "undo", Verb.of(kept.after, plan_undo(files, sink=folder).change)
    ran = Place(
        rerun(kept.after.checkpoint, start.checkpoint, 5, 7), kept.after.sink | {**sink(8, first=5), **_again(5, 8)}
    )
    files, folder = ran.trees
    yield "undo --drop-newer", Verb.of(ran, plan_undo(files, sink=folder, drop_newer=True).change)
    files, folder = start.trees
    batch = plan_extra_batch(History(files), {}, verb="edit", about="an edit", sink=folder)
    edited = Verb.of(start, batch.change)
    yield "edit", edited
    files, folder = edited.after.trees
    yield "undo of an edit", Verb.of(edited.after, plan_undo(files, sink=folder).change)
    files, folder = start.trees
    store = History(files).logs.state.expected(2)[0]
    large = StoreChange([put(b"\0" * 10, random.Random(1).randbytes(100_000))])
    batch = plan_extra_batch(History(files), {store: large}, verb="edit", about="a large edit", sink=folder)
    assert batch.files
    yield "large edit", Verb.of(Place(start.checkpoint | dict(batch.files), start.sink), batch.change)
    yield "erasure", _erasure(start)
    files, folder = start.trees
    migrated = Verb.of(start, plan_extra_batch(History(files), {}, sink=folder, **_migration(start.checkpoint)).change)
    yield "migrate", migrated
    files, folder = migrated.after.trees
    yield "undo of a migration", Verb.of(migrated.after, plan_undo(files, sink=folder).change)
    if "format2" not in name:
        yield from _store_migration(start)
    yield "repartition", _repartition(start)
    files, folder = migrated.after.trees
    yield "rewind across a migration", Verb.of(migrated.after, plan_rewind(files, to=8, sink=folder).change)
    files, folder = start.trees
    history = History(files)
    moved = plan_extra_batch(
        history, {}, verb="migrate", about="new sources and operators", sink=folder, layout=new_layout(history)
    )
    placed = Verb.of(start, moved.change)
    yield "migrate sources and operators", placed
    files, folder = placed.after.trees
    yield "undo of moved sources and operators", Verb.of(placed.after, plan_undo(files, sink=folder).change)
    yield "rewind across moved sources", Verb.of(placed.after, plan_rewind(files, to=8, sink=folder).change)
    files, folder = start.trees
    point = make_point(files, at="4", sink=folder)
    cleaned = Place(_without_old(files.contents, 8), folder.contents)
    files, folder = cleaned.trees
    restored = Verb.of(cleaned, plan_restore(files, point, sink=folder).change)
    yield "rewind to a restore point", restored
    files, folder = restored.after.trees
    yield "undo of that", Verb.of(restored.after, plan_undo(files, sink=folder).change)


def _verb(name: str, wanted: str) -> Verb:
    """Return one of the changes, without preparing those after it."""
    return next(verb for label, verb in _verbs(name) if label == wanted)


def new_layout(history: History) -> NewLayout:
    """Return a layout with a new source in front, and without any operator."""
    old = (SourceShape("first", "files"),)
    files = source_files(history.logs, 9, SourceChanges(old, (SourceShape("new", "files"), *old), (None, 0)))
    state = [f"{folder}/{name}" for folder, names in history.logs.state.names.items() for name in names]
    return NewLayout(
        LayoutChange(history.logs.operators(9), (), sources=True),
        (*state, *files.leaving),
        files.placed,
        files.written,
        files.offsets,
        (),
    )


def _migration(contents: Contents) -> dict[str, Any]:
    """Return what a migration writes besides state: other schemas, new metadata of custom state, and its record."""
    schemas = [path for path in contents if path.endswith("/_metadata/schema")]
    metadata = dict.fromkeys(schemas, b"another schema") | {"state/0/_metadata/v2/10": b"v2\n{}"}
    return {"verb": "migrate", "about": "a migration", "metadata": metadata, "records": {PLANS_FILE: b'{"plans": []}'}}


def _store_migration(start: Place) -> Iterator[tuple[str, Verb]]:
    """Yield a migration to checkpoint format 2 in RocksDB, and the rewind across it."""
    files, folder = Tree(start.checkpoint), Tree(start.sink, SINK)
    form = {"form": StoreForm(hdfs=False, unique_ids=True), "verb": "migrate", "about": "another store"}
    stores = {store: StoreChange([put(b"\0" * 10, b"\0" * 10)], snapshot=True) for store in _stores(files)}
    batch = plan_extra_batch(History(files), stores, sink=folder, **form)
    migrated = Verb.of(Place(start.checkpoint | dict(batch.files), start.sink), batch.change)
    yield "migrate to another store", migrated
    files, folder = Tree(migrated.after.checkpoint), Tree(migrated.after.sink, SINK)
    yield "rewind to the other store", Verb.of(migrated.after, plan_rewind(files, to=8, sink=folder).change)


def _repartition(start: Place) -> Verb:
    """Return how a checkpoint takes over a batch that was added to a fork of it, with new state in every store."""
    files, folder = Tree(start.checkpoint), Tree(start.sink, SINK)
    seen, scratch = fingerprint(files, folder), f"{SCRATCH}/repartition"
    forked = Tree({}, f"{files.location}/{scratch}")
    plan_fork(files, forked, at=9).apply()
    stores = {store: StoreChange([put(b"\0" * 10, b"\0" * 10)]) for store in _stores(files)}
    batch = plan_extra_batch(History(forked), stores, verb="repartition", about="as Spark does it")
    forked.contents |= batch.files
    Executor({"checkpoint": forked}).apply(batch.change)
    files.contents |= {f"{scratch}/{path}": data for path, data in forked.contents.items()}
    about = "change the state partitions from 2 to 4"
    change = plan_adoption(files, scratch, forked, folder, verb="repartition", about=about, seen=seen)
    return Verb.of(Place(files.contents, start.sink), change)


def _stores(files: Tree) -> tuple[StoreKey, ...]:
    return History(files).logs.state.expected(2)


def _erasure(start: Place) -> Verb:
    """Return the erasure of a key from a checkpoint with a restore point and an earlier change."""
    files, folder = Tree(start.checkpoint), Tree(start.sink, SINK)
    make_point(files, at="4")
    plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    plan_undo(files).apply()
    editor = StateEditor(files)
    editor.sink = folder
    field = "field0" if any(one.folder_store in JOIN_STORES for one in editor.targets) else "user"
    batch = plan_erasure_of_key(editor, {field: "1" if field == "field0" else ""}).batch
    verb = Verb.of(Place(files.contents | dict(batch.files), start.sink), batch.change)
    left = [path for path in verb.after.checkpoint if "/quarantine/" in path or "/kept/" in path or "/scratch/" in path]
    assert [path for path in left if not path.endswith(".emptied")] == []
    return verb


def _without_old(contents: Contents, first: int) -> Contents:
    """Return a checkpoint from which Spark has removed the batches before one, as far as a test of moves needs it."""
    logs = ("offsets/", "commits/")
    gone = {path for path in contents if path.startswith(logs) and int("".join(filter(str.isdigit, path))) < first}
    return {path: data for path, data in contents.items() if path not in gone}


def _again(first: int, last: int) -> Contents:
    return {path: data + b"again" for path, data in sink(last, first=first).items() if path.startswith("part")}


def _check_point(verb: Verb, medium: Media, crashed: Place) -> None:
    files = Tree(crashed.checkpoint)
    pending = read_pending(files)
    guarded = crashed.checkpoint.get("metadata") == guard_notice(verb.change)
    findings = list(interrupted_operation.check(CheckContext(files, 0)))
    assert bool(pending) == any(finding.code == "interrupted-operation" for finding in findings)
    if guarded:
        assert pending, "without pending.json the guard could not be removed"
    else:
        assert crashed.seen in (verb.before.seen, verb.after.seen)
    if not pending:
        return
    finished, _ = run_on(crashed, medium, Executor.resume)
    assert finished.sparks == verb.after.sparks
    if ERASES in verb.change.details:
        assert finished.checkpoint.keys() == verb.after.checkpoint.keys()
    assert read_pending(Tree(finished.checkpoint)) is None
    if pending.all_done and not guarded:
        with pytest.raises(ChangeRefused, match="all steps of the interrupted"):
            run_on(crashed, medium, Executor.abort)
        return
    rolled_back, _ = run_on(crashed, medium, Executor.abort)
    assert rolled_back.sparks == verb.before.sparks
    assert read_pending(Tree(rolled_back.checkpoint)) is None


def _check_verb(verb: Verb, medium: Media, *, every: int = 1) -> int:
    count = 0
    for crashed in points_of(medium, verb.before, lambda executor: executor.apply(verb.change), every=every):
        _check_point(verb, medium, crashed)
        count += 1
    return count


def _check_finishing(verb: Verb, medium: Media, *, every: int, again: int = 1) -> int:
    """Check points of ``resume`` and ``abort``, all or every so many, after a crash at some of the points of a change."""
    count = 0
    for crashed in points_of(medium, verb.before, lambda executor: executor.apply(verb.change), every=every, edge=0):
        pending = read_pending(Tree(crashed.checkpoint))
        if pending is None or pending.all_done:
            continue
        for action in (Executor.resume, Executor.abort):
            for twice in points_of(medium, crashed, action, every=again):
                _check_point(verb, medium, twice)
                count += 1
    return count


@pytest.mark.parametrize(
    ("name", "medium", "every"), [("aggregation-hdfs", CrashingDisk, 31), ("custom-format2", CrashingObjectStore, 47)]
)
def test_points_of_every_change(name: str, medium: Media, every: int) -> None:
    """At each point the trees are old, new or guarded; resume leads to exactly the new ones, abort to the old ones.

    Some of the points are tested here, and each one in the test over the matrix.
    """
    points = 0
    for _, verb in _verbs(name):
        assert verb.before.sparks != verb.after.sparks
        points += _check_verb(verb, medium, every=every)
    print(f"{name} on {medium.__name__.lower()}: {points} points")
    assert points > 500


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
def test_resume_and_abort_can_be_interrupted_too(medium: Media) -> None:
    """A crash during resume or abort is handled like any other."""
    names = ("rewind", "undo --drop-newer")
    points = sum(_check_finishing(_verb("aggregation-hdfs", name), medium, every=150, again=9) for name in names)
    print(f"resume and abort on {medium.__name__.lower()}: {points} points")
    assert points > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", MATRIX)
def test_every_point_over_the_matrix(name: str, medium: Media) -> None:
    """All changes on all stores and operators, with resume and abort at many of their points."""
    points = 0
    for _, verb in _verbs(name):
        points += _check_verb(verb, medium) + _check_finishing(verb, medium, every=67)
    print(f"{name} on {medium.__name__.lower()}: {points} points")


def test_fsck_reports_an_interrupted_change_first() -> None:
    """All checks of fsck work on a guarded tree, and the interrupted change is the first finding."""
    verb = _verb("aggregation-changelog", "rewind")
    crashed, _ = run_on(verb.before, CrashingDisk, lambda executor: executor.apply(verb.change), 60)
    findings = list(run_checks(CheckContext(Tree(crashed.checkpoint), 0)))
    assert findings[0].code == "interrupted-operation"


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
def test_an_interrupted_compact_never_allows_a_partial_undo(medium: Media) -> None:
    """At each point of compact the checkpoint is unchanged, and undo either restores everything or is refused."""
    verb = _verb("aggregation-hdfs", "rewind")
    points = refused = 0
    for number in range(100_000):
        schedule = CrashSchedule(number)
        files, folder = verb.after.on(medium, schedule)
        with contextlib.suppress(Crashed):
            empty_quarantine(files, [folder])
        left = Place(files.contents, folder.contents)
        assert left.sparks == verb.after.sparks
        try:
            undo = plan_undo(Tree(left.checkpoint), sink=Tree(left.sink, SINK)).change
        except ChangeRefused as error:
            assert error.code == "quarantine-emptied"
            refused += 1
        else:
            assert (
                run_on(left, CrashingDisk, lambda executor, undo=undo: executor.apply(undo))[0].sparks
                == verb.before.sparks
            )
        points += 1
        if schedule.passed < number:
            break
    print(f"compact on {medium.__name__.lower()}: {points} points")
    assert 0 < refused < points
    assert not any("/quarantine/" in path and not path.endswith(".emptied") for path in files.contents)


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", ["aggregation-rocksdb", pytest.param("custom-format2", marks=pytest.mark.slow)])
def test_an_interrupted_keep_or_drop_leaves_a_complete_point_or_none(name: str, medium: Media) -> None:
    """At each point of keep and of drop, the restore point is complete or does not exist, and Spark's files are intact."""
    start = Place(checkpoint(name), sink(10))
    made = start.on(medium, CrashSchedule())
    make_point(made[0], "now", sink=made[1])
    kept = Place(made[0].contents, made[1].contents)

    def keep(files: CrashingDisk, folder: CrashingDisk) -> None:
        make_point(files, "now", sink=folder)

    def drop(files: CrashingDisk, folder: CrashingDisk) -> None:
        drop_point(files, "now")

    for place, action in ((start, keep), (kept, drop)):
        seen = set()
        for number in range(100_000):
            schedule = CrashSchedule(number)
            files, folder = place.on(medium, schedule)
            with contextlib.suppress(Crashed):
                action(files, folder)
            after = Place(files.contents, folder.contents)
            assert after.sparks == start.sparks
            left = Tree(after.checkpoint)
            points = restore_points(left)
            seen.add(bool(points))
            if points:
                plan_restore(left, points[0], sink=Tree(after.sink, SINK))  # it is refused unless all files are there
            elif not schedule.crashed:
                assert not any("/kept/" in path for path in after.checkpoint)
            else:  # what is left does not prevent the same name from being used
                assert make_point(left, "now").name == "now"
            if schedule.passed < number:
                break
        print(f"{action.__name__} on {medium.__name__.lower()}: {number} points")
        assert seen == {True, False}


def test_a_query_that_continued_before_the_guard_was_up() -> None:
    """Resume is refused if batches were committed after the crash; abort only discards the plan."""
    verb = _verb("aggregation-hdfs", "rewind")
    crashed, _ = run_on(verb.before, CrashingDisk, lambda executor: executor.apply(verb.change), 4)
    assert crashed.seen == verb.before.seen
    assert read_pending(Tree(crashed.checkpoint)) is not None
    continued = Place(crashed.checkpoint | {"offsets/10": b"v1", "commits/10": b"v1"}, crashed.sink)
    with pytest.raises(ChangeRefused, match="has changed since"):
        run_on(continued, CrashingDisk, Executor.resume)
    rolled_back, _ = run_on(continued, CrashingDisk, Executor.abort)
    assert rolled_back.sparks[0] == verb.before.sparks[0] | {"offsets/10": b"v1", "commits/10": b"v1"}
