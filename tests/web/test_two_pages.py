"""Two pages with --allow-changes on one checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from corpus_support import load
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, CheckpointBusy, HeadwaterError
from headwater.timemachine.journal import read_entries
from headwater.web.change_dialog import Change, RewindChange, UndoChange


def no_progress(done: int, of: int) -> None:
    """Ignore progress."""


@pytest.fixture
def files(tmp_path: Path) -> LocalTree:
    return LocalTree(load("kafka-hdfs", tmp_path).path)


def apply_both(one: Change, other: Change) -> list[HeadwaterError]:
    """Confirm the dialogs of two pages at the same moment; return the errors that they show."""
    together, errors = threading.Barrier(2), list[HeadwaterError]()

    def confirm(change: Change) -> None:
        together.wait(60)
        try:
            change.apply(no_progress, "ann")
        except (CheckpointBusy, ChangeRefused) as error:
            errors.append(error)

    threads = [threading.Thread(target=confirm, args=(change,)) for change in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("batches", [(4, 4), (4, 6)])
def test_both_pages_confirm_a_rewind(files: LocalTree, batches: tuple[int, int]) -> None:
    """One rewind is made; the other page shows that the checkpoint is in use or has changed since its preview."""
    (error,) = apply_both(*(RewindChange(files, batch) for batch in batches))
    assert error.code in {"checkpoint-busy", "plan-stale"}
    assert History(files).last_committed in batches
    assert len(read_entries(files)) == 1


def test_both_pages_confirm_the_undo(files: LocalTree) -> None:
    """The change is undone once."""
    before = History(files).last_committed
    RewindChange(files, 4).apply(no_progress, "ann")
    (error,) = apply_both(UndoChange(files), UndoChange(files))
    assert error.code in {"checkpoint-busy", "plan-stale", "nothing-to-undo"}
    assert History(files).last_committed == before
    assert len(read_entries(files)) == 2
