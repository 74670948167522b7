"""Delete the files that changes have set aside, to free disk space. These changes can then no longer be undone."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.locate import open_files
from headwater.timemachine.change import quarantine_of
from headwater.timemachine.journal import emptied_marker, is_emptied, read_entries, refuse_if_pending

QUARANTINE = f"{HEADWATER_FOLDER}/quarantine"


@dataclass(frozen=True)
class Quarantine:
    """The number and total size of the files that are set aside in one tree."""

    files: int
    bytes: int


def measure_quarantine(root: FileTree) -> Quarantine:
    """Return how much is set aside in a checkpoint or a sink folder."""
    sizes = [entry.size for path, entry in walk(root, QUARANTINE) if not path.endswith(".emptied")]
    return Quarantine(len(sizes), sum(sizes))


def sinks_with_quarantine(files: FileTree) -> list[FileTree]:
    """Return every sink folder in which changes to a checkpoint have set files aside."""
    found = dict.fromkeys(entry.change.sink for entry in read_entries(files))
    return [open_files(location) for location in found if location]


def empty_quarantine(files: FileTree, sinks: Iterable[FileTree] = (), *, only: Container[str] | None = None) -> None:
    """Delete everything that changes to a checkpoint have set aside, in the checkpoint and in its sinks.

    ``only`` are the ids of the changes that the user was asked about: none that was made since is emptied.
    """
    with hold_lease(files, "headwater compact", "cannot compact"):
        refuse_if_pending(files)
        changes = [entry.change for entry in read_entries(files) if only is None or entry.change.change_id in only]
        # The marker comes first: a change whose quarantine is incomplete must never be undone.
        for change in changes:
            if not is_emptied(files, change):
                files.write(emptied_marker(change.change_id), b"")
        for root in (files, *sinks):
            for change in changes:
                root.remove_folder(quarantine_of(change.change_id))
