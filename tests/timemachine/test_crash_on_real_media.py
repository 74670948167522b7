"""The same crashes on a real disk and on an S3 server: before, after and in the middle of operations of the file system."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corpus_support import load
from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import PLANS_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator, plans_file
from headwater.checkpoint.restore_points import restore_points
from headwater.core.errors import ChangeRefused
from headwater.statefiles.statewriter import put
from headwater.timemachine.change import SCRATCH, Change, fingerprint
from headwater.timemachine.compact import empty_quarantine
from headwater.timemachine.edit_plan import ExtraBatch
from headwater.timemachine.executor import Executor, guard_notice
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import UNFINISHED as FORKING
from headwater.timemachine.fork import plan_adoption, plan_fork
from headwater.timemachine.journal import read_pending
from headwater.timemachine.keep import drop_point, make_point
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.seed import UNFINISHED as SEEDING
from headwater.timemachine.seed import adopt
from headwater.timemachine.seed_record import SEED_FILE
from headwater.timemachine.store_files import StoreChange
from headwater.timemachine.undo import plan_undo
from s3_support import BUCKET, S3
from timemachine.crashing import Crashed, CrashSchedule
from timemachine.trees import Contents, as_spark_sees

Plan = Callable[[FileTree], Change]
RECORDED = {PLANS_FILE: plans_file([RecordedPlan(0, ()), RecordedPlan(7, (StatefulOperator("aggregate"),))])}
NEW_ROW = StoreChange([put(b"\0" * 10, b"\0" * 10)])
EFFECTS = (
    "write",
    "write_blocks",
    "create",
    "move",
    "copy",
    "link",
    "share",
    "remove",
    "remove_folder",
    "drop_empty_folders",
)


def crashing(files: FileTree, schedule: CrashSchedule) -> FileTree:
    """Return a real tree that crashes before or after an effect, and on a disk also in the middle of a write."""
    for name in EFFECTS:
        setattr(files, name, _with_points(getattr(files, name), schedule))
    if isinstance(files, LocalTree):
        whole = files.write

        def write(path: str, data: bytes) -> None:
            draft = files.local_path(path).with_name(f".{Path(path).name}.headwater.tmp")
            draft.parent.mkdir(parents=True, exist_ok=True)
            before = draft.exists()
            draft.write_bytes(data[: len(data) // 2])
            schedule.point()
            if not before:
                draft.unlink()
            whole(path, data)

        files.write = write  # type: ignore[method-assign]
    return files


def _with_points(effect: Callable[..., Any], schedule: CrashSchedule) -> Callable[..., Any]:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        schedule.point()
        result = effect(*arguments, **options)
        schedule.point()
        return result

    return interrupted


@dataclass(frozen=True)
class Medium:
    """Makes trees with given contents, each at a new place."""

    make: Callable[[Contents], Callable[[], FileTree]]


def on_disk(folder: Path) -> Medium:
    places = iter(range(10**9))

    def make(contents: Contents) -> Callable[[], FileTree]:
        place = folder / str(next(places))
        for path, data in contents.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
        return lambda: LocalTree(place)

    return Medium(make)


def on_s3(s3: S3, prefix: str) -> Medium:
    places = iter(range(10**9))

    def make(contents: Contents) -> Callable[[], FileTree]:
        place = f"{prefix}/{next(places)}"
        for path, data in contents.items():
            s3.client.put_object(Bucket=BUCKET, Key=f"{place}/{path}", Body=data)
        return lambda: ObjectTree(s3.url(place))

    return Medium(make)


def contents_of(files: FileTree) -> Contents:
    return {path: files.read(path) for path, _ in walk(files)}


def seen(contents: Contents) -> Contents:
    """Return what Spark sees, and Headwater's record of what the state means."""
    return as_spark_sees(contents) | {PLANS_FILE: contents.get(PLANS_FILE, b"")}


def rewind(files: FileTree) -> Change:
    return plan_rewind(files, to=4).change


def edit(files: FileTree) -> Change:
    store = History(files).logs.state.expected(2)[0]
    return _written(files, plan_extra_batch(History(files), {store: NEW_ROW}, verb="edit", about="an edit"))


def migrate(files: FileTree) -> Change:
    """Plan new schemas of all stores, new rows in them, and a record of what the state means."""
    stores = dict.fromkeys(History(files).logs.state.expected(2), NEW_ROW)
    schemas = [path for path, _ in walk(files) if path.endswith("/_metadata/schema")]
    metadata, records = dict.fromkeys(schemas, b"another schema"), {PLANS_FILE: b'{"plans": []}'}
    history = History(files)
    batch = plan_extra_batch(history, stores, verb="migrate", about="other schemas", metadata=metadata, records=records)
    return _written(files, batch)


def repartition(files: FileTree) -> Change:
    """Plan how a checkpoint takes over a batch that was added to a fork of it."""
    seen, scratch = fingerprint(files, None), f"{SCRATCH}/repartition"
    forked = files.subtree(scratch)
    plan_fork(files, forked, at=9).apply()
    stores = dict.fromkeys(History(files).logs.state.expected(2), NEW_ROW)
    batch = plan_extra_batch(History(forked), stores, verb="repartition", about="as Spark does it")
    Executor({"checkpoint": forked}).apply(_written(forked, batch))
    return plan_adoption(files, scratch, forked, None, verb="repartition", about="4 partitions", seen=seen)


def _written(files: FileTree, batch: ExtraBatch) -> Change:
    for path, data in dict(batch.files).items():
        files.write(path, data)
    return batch.change


def restore(files: FileTree) -> Change:
    (point,) = restore_points(files)
    return plan_restore(files, point).change


def verbs(start: Contents, medium: Medium) -> Iterator[tuple[str, Contents, Plan]]:
    """Yield plans of changes with the checkpoint that they start from. A plan is for one place: it knows file times."""
    yield "rewind", start, rewind
    files = medium.make(start)()
    Executor({"checkpoint": files}).apply(rewind(files))
    yield "undo", contents_of(files), lambda files: plan_undo(files).change
    yield "edit", start, edit
    yield "migrate", start, migrate
    files = medium.make(start)()
    Executor({"checkpoint": files}).apply(migrate(files))
    yield "undo of a migration", contents_of(files), lambda files: plan_undo(files).change
    yield "repartition", start, repartition
    files = medium.make(start)()
    make_point(files, at="4")
    yield "rewind to a restore point", contents_of(files), restore


def check_verb(medium: Medium, start: Contents, plan: Plan, numbers: Iterable[int]) -> int:
    """Crash a change at some of its points, and resume or abort it; return the number of points."""
    whole = medium.make(start)
    Executor({"checkpoint": whole()}).apply(plan(whole()))
    before, after = seen(start), seen(contents_of(whole()))
    found = 0
    for turn, number in enumerate(numbers):
        schedule, place = CrashSchedule(number), medium.make(start)
        change = plan(place())
        with contextlib.suppress(Crashed):
            Executor({"checkpoint": crashing(place(), schedule)}).apply(change)
        if not schedule.crashed:
            break
        found += 1
        crashed = contents_of(place())
        pending, guarded = read_pending(place()), crashed.get("metadata") == guard_notice(change)
        if not guarded:
            assert seen(crashed) in (before, after), number
        if pending is None:
            assert not guarded, number
        elif turn % 2 or pending.all_done:
            Executor({"checkpoint": place()}).resume()
            assert seen(contents_of(place())) == after, number
        else:
            Executor({"checkpoint": place()}).abort()
            assert seen(contents_of(place())) == before, number
    return found


def check_points(medium: Medium, start: Contents, numbers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Crash ``keep``, ``keep --drop`` and ``compact``, which leave Spark's files alone; yield the number of points."""
    kept, rewound = medium.make(start)(), medium.make(start)()
    make_point(kept, "now")
    Executor({"checkpoint": rewound}).apply(rewind(rewound))
    actions: tuple[tuple[str, Contents, Callable[[FileTree], object]], ...] = (
        ("keep", start, lambda files: make_point(files, "now")),
        ("drop", contents_of(kept), lambda files: drop_point(files, "now")),
        ("compact", contents_of(rewound), lambda files: empty_quarantine(files, [])),
    )
    for name, before, action in actions:
        found = 0
        for number in numbers:
            schedule, place = CrashSchedule(number), medium.make(before)
            with contextlib.suppress(Crashed):
                action(crashing(place(), schedule))
            if not schedule.crashed:
                break
            found += 1
            assert seen(contents_of(place())) == seen(before), (name, number)
            for point in restore_points(place()):
                plan_restore(place(), point)  # it is refused unless all files are there
            if name == "compact":
                with contextlib.suppress(ChangeRefused):
                    Executor({"checkpoint": place()}).apply(plan_undo(place()).change)
                    assert seen(contents_of(place())) == seen(start), number
        yield name, found


def check_new_checkpoints(medium: Medium, start: Contents, numbers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Crash ``fork`` and ``seed``: nothing starts on the new checkpoint before it is complete."""
    origin = medium.make(start)

    def fork(files: FileTree, into: FileTree) -> None:
        plan_fork(files, into, at=9).apply()

    def seed(files: FileTree, into: FileTree) -> None:
        adopt(files, into, {SEED_FILE: b"{}"})

    for action, notice in ((fork, FORKING), (seed, SEEDING)):
        whole = medium.make({})
        action(origin(), whole())
        complete, found = contents_of(whole()), 0
        for number in numbers:
            schedule, place = CrashSchedule(number), medium.make({})
            with contextlib.suppress(Crashed):
                action(crashing(origin(), schedule), crashing(place(), schedule))
            if not schedule.crashed:
                break
            found += 1
            left = contents_of(place())
            if left.get("metadata", notice) != notice:
                assert left.keys() == complete.keys(), (action.__name__, number)
            elif action is seed:
                seed(origin(), place())
                assert contents_of(place()) == complete, number
        yield action.__name__, found


def check_all(medium: Medium, contents: Contents, numbers: Iterable[int]) -> dict[str, int]:
    numbers = list(numbers)
    found = {name: check_verb(medium, start, plan, numbers) for name, start, plan in verbs(contents, medium)}
    return {
        **found,
        **dict(check_points(medium, contents, numbers)),
        **dict(check_new_checkpoints(medium, contents, numbers)),
    }


@pytest.mark.parametrize("numbers", ["a few", pytest.param("all", marks=pytest.mark.slow)])
def test_on_a_disk(numbers: str, tmp_path: Path) -> None:
    """At each point a checkpoint on a disk is old, new or guarded, and the change can be completed or taken back."""
    contents = contents_of(LocalTree(load("aggregation-hdfs", tmp_path / "corpus").path)) | RECORDED
    shutil.rmtree(tmp_path / "corpus")
    chosen = range(10_000) if numbers == "all" else (1, 6, 11, 40, 90)
    found = check_all(on_disk(tmp_path), contents, chosen)
    if numbers == "all":  # these include the few
        print(f"a disk: {sum(found.values())} points")
    assert all(found.values()), found


@pytest.mark.services
@pytest.mark.slow
def test_on_s3(s3: S3, tmp_path: Path) -> None:
    """The same for objects on a server, at every fortieth point."""
    contents = contents_of(LocalTree(load("aggregation-hdfs", tmp_path).path)) | RECORDED
    found = check_all(on_s3(s3, "crashes"), contents, range(3, 10_000, 40))
    print(f"an S3 server: {sum(found.values())} points")
    assert all(found.values()), found
