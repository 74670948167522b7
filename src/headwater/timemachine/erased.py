"""What an erasure deletes for good, once its own batch is in place. It can be repeated after an interruption."""

from __future__ import annotations

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.timemachine.change import SCRATCH, Change, quarantine_of
from headwater.timemachine.journal import emptied_marker

ERASES = "erases"
"""The name under which a change records what it erases."""


def delete_erased(files: FileTree, change: Change) -> None:
    """Delete the files that an erasure and earlier changes have set aside, and restore points. Other changes delete nothing."""
    erases = change.details.get(ERASES)
    if erases is None:
        return
    for change_id in (*erases["changes"], change.change_id):
        # The marker comes first: a change whose quarantine is incomplete must never be undone.
        files.write(emptied_marker(change_id), b"")
        files.remove_folder(quarantine_of(change_id))
    for entry in files.entries(KEPT):  # also points that were made since the erasure was planned
        files.remove_folder(f"{KEPT}/{entry.name}")
    files.remove_folder(SCRATCH)
