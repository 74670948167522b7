"""Several people change one checkpoint at the same moment: one change is made, as if it had been alone."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from corpus_support import load
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import Entry
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.restore_points import require_point
from headwater.core.errors import ChangeRefused, CheckpointBusy, CheckpointUnreadable
from headwater.migration.store_migration import plan_store_migration
from headwater.statefiles.reader import state_rows
from headwater.timemachine.change import SCRATCH, fingerprint
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.executor import apply_change
from headwater.timemachine.fork import plan_adoption, plan_fork
from headwater.timemachine.interrupted import abort, resume
from headwater.timemachine.journal import read_entries, read_pending
from headwater.timemachine.keep import make_point
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Tree
from timemachine.trees import Contents, checkpoint, spark_files

PEOPLE = 4
FORK = multiprocessing.get_context("fork")
Change = Callable[[Path], Any]


def rewind_to(batch: int) -> Change:
    return lambda path: plan_rewind(LocalTree(path), to=batch).apply(allow_missing_input=True)


def undo(path: Path) -> None:
    plan_undo(LocalTree(path)).apply()


def _change(path: Path, change: Change, together: Barrier, outcomes: Any) -> None:
    together.wait(60)
    try:
        change(path)
    except (CheckpointBusy, ChangeRefused) as refusal:
        outcomes.put(refusal.code)
    except BaseException as error:
        outcomes.put(repr(error))
    else:
        outcomes.put("done")


def at_once(path: Path, changes: list[Change]) -> list[str]:
    """Make changes in processes of their own, which start together; return the outcome of each."""
    together, outcomes = FORK.Barrier(len(changes)), FORK.Queue()
    processes = [FORK.Process(target=_change, args=(path, change, together, outcomes)) for change in changes]
    for process in processes:
        process.start()
    found = sorted(outcomes.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return found


def contents(path: Path) -> Contents:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and "_headwater" not in file.parts
    }


def assert_sound(path: Path) -> None:
    files = LocalTree(path)
    assert read_pending(files) is None
    assert [one for one in run_checks(CheckContext(files, 0)) if one.severity == "error"] == []


@pytest.mark.parametrize("name", ["dedup-hdfs", "aggregation-changelog"])
def test_several_people_rewind_at_once(name: str, tmp_path: Path) -> None:
    """Exactly one of the rewinds is made; the others are refused, because they come too late or planned for another state."""
    path, alone = load(name, tmp_path / "shared").path, load(name, tmp_path / "alone").path
    rewind_to(4)(alone)
    found = at_once(path, [rewind_to(4)] * PEOPLE)
    assert found.count("done") == 1, found
    assert set(found) <= {"done", "checkpoint-busy", "plan-stale", "nothing-to-undo"}
    assert contents(path) == contents(alone)
    assert len(read_entries(LocalTree(path))) == 1
    assert_sound(path)


def test_a_change_in_progress_is_not_called_interrupted(tmp_path: Path) -> None:
    """While a process makes a change, planning another one is refused as busy; after it was killed, as interrupted."""
    path, begun = load("dedup-hdfs", tmp_path).path, FORK.Event()

    def rewind_slowly() -> None:
        LocalTree.move = lambda *_: (begun.set(), time.sleep(600))  # type: ignore[method-assign,assign]
        rewind_to(4)(path)

    process = FORK.Process(target=rewind_slowly)
    process.start()
    assert begun.wait(60)
    with pytest.raises(CheckpointBusy, match="headwater rewind is running"):
        plan_rewind(LocalTree(path), to=6)
    process.kill()
    process.join()
    with pytest.raises(ChangeRefused, match="was interrupted"):
        plan_rewind(LocalTree(path), to=6)
    abort(LocalTree(path))
    plan_rewind(LocalTree(path), to=6)


def test_different_changes_at_once(tmp_path: Path) -> None:
    """Whoever is first, the checkpoint is one that some order of the changes that were made leaves."""
    path = load("dedup-hdfs", tmp_path).path
    rewind_to(7)(path)
    found = at_once(path, [rewind_to(4), rewind_to(5), undo])
    assert "done" in found
    assert len(read_entries(LocalTree(path))) == 1 + found.count("done")
    assert_sound(path)


class _Paused(Tree):
    """A tree that stops at its first move until it is told to continue."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def move(self, source: str, target: str) -> None:
        self.reached.set()
        assert self.go_on.wait(60)
        super().move(source, target)


def test_the_second_change_is_refused_while_the_first_moves_files() -> None:
    """A rewind, an undo and a resume that come in the middle of a rewind are refused, and the rewind is completed."""
    files = _Paused(checkpoint("dedup-hdfs"))
    alone = Tree(checkpoint("dedup-hdfs"))
    plan_rewind(alone, to=4).apply(allow_missing_input=True)
    first, second = plan_rewind(files, to=4), plan_rewind(files, to=6)
    thread = threading.Thread(target=lambda: first.apply(allow_missing_input=True))
    thread.start()
    assert files.reached.wait(60)
    for change in (lambda: second.apply(allow_missing_input=True), lambda: resume(files), lambda: abort(files)):
        with pytest.raises((CheckpointBusy, ChangeRefused)):
            change()
    files.go_on.set()
    thread.join()
    assert spark_files(files.contents) == spark_files(alone.contents)


def test_people_keep_while_another_rewinds(tmp_path: Path) -> None:
    """Restore points that are made during a rewind are complete or do not exist."""
    path = load("dedup-hdfs", tmp_path).path

    def keep(path: Path) -> None:
        make_point(LocalTree(path))

    found = at_once(path, [keep, rewind_to(4), keep, keep])
    assert "done" in found
    assert_sound(path)


class _ChangedMeanwhile(Tree):
    """A tree that another process rewinds before one of the times that something is read from it."""

    def __init__(self, contents: Contents, change_at: int) -> None:
        super().__init__(contents)
        self.change_at, self.looks = change_at, 0

    def read(self, path: str) -> bytes:
        self._look()
        return super().read(path)

    def entries(self, folder: str) -> list[Entry]:
        self._look()
        return super().entries(folder)

    def _look(self) -> None:
        self.looks += 1
        if self.looks == self.change_at:
            other = Tree({})
            other.contents = self.contents
            plan_rewind(other, to=4).apply(allow_missing_input=True)


PLANS: dict[str, Callable[[Tree], Any]] = {
    "rewind": lambda files: plan_rewind(files, to=6),
    "undo": plan_undo,
    "edit": lambda files: StateEditor(files).plan_key_removal({"user": "bob"}),
    "migrate": lambda files: plan_store_migration(files, store="rocksdb"),
    "restore": lambda files: plan_restore(files, require_point(files, POINT)),
}
POINT = "before"
REWINDS = ("rewind", "restore")


@pytest.mark.parametrize("verb", PLANS)
def test_a_change_during_planning(verb: str) -> None:
    """A plan that was made while the checkpoint changed is not carried out."""
    start = Tree(checkpoint("dedup-hdfs"))
    plan_rewind(start, to=8, replan=True).apply(allow_missing_input=True)
    make_point(start, POINT, at="7")
    alone = Tree(dict(start.contents))
    plan_rewind(alone, to=4).apply(allow_missing_input=True)
    restored = Tree(dict(alone.contents))
    PLANS["restore"](restored).apply(allow_missing_input=True)
    after_it = {"undo": start, "restore": restored}
    undisturbed = _ChangedMeanwhile(start.contents, 0)
    PLANS[verb](undisturbed)
    for change_at in range(1, undisturbed.looks, 3):
        files = _ChangedMeanwhile(start.contents, change_at)
        try:
            PLANS[verb](files).apply(**({"allow_missing_input": True} if verb in REWINDS else {}))
        except (ChangeRefused, CheckpointUnreadable):
            assert spark_files(files.contents) == spark_files(alone.contents), change_at
        else:  # the other rewind came first
            assert spark_files(files.contents) == spark_files(after_it[verb].contents), change_at


def test_a_change_while_spark_repartitions(tmp_path: Path) -> None:
    """What Spark added to a copy is not adopted by a checkpoint that was rewound since it was copied."""
    path = load("dedup-hdfs", tmp_path / "shared").path
    files, scratch = LocalTree(path), f"{SCRATCH}/repartition"
    seen, forked = fingerprint(files), files.subtree(scratch)
    plan_fork(files, forked, at=History(files).last_committed).apply()
    key = state_rows(files)[0]["key"]
    StateEditor(forked).plan_key_removal({"user": key["user"]}).apply()  # adds a batch, as Spark does
    undisturbed = LocalTree(shutil.copytree(path, tmp_path / "alone"))
    rewind_to(4)(path)
    rewound = contents(path)
    with pytest.raises(ChangeRefused) as refused:
        _adopt(files, scratch, seen)
    assert refused.value.code == "plan-stale"
    assert contents(path) == rewound
    _adopt(undisturbed, scratch, seen)
    assert History(undisturbed).last_committed == History(forked).last_committed


def _adopt(files: LocalTree, scratch: str, seen: str) -> None:
    forked = files.subtree(scratch)
    change = plan_adoption(files, scratch, forked, None, verb="repartition", about="repartition", seen=seen)
    apply_change(change, files)
