"""Opening a checkpoint for a verb that only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.output import note

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree


def open_to_read(checkpoint: str) -> FileTree:
    """The checkpoint, as the user named it."""
    from headwater.checkpoint.locate import open_checkpoint

    files = open_checkpoint(checkpoint)
    tell_of_interruption(files)
    return files


def tell_of_interruption(files: FileTree) -> None:
    """Name a change that was cut short: what is read may be half of it."""
    from headwater.checkpoint.layout import PENDING_FILE

    if files.exists(PENDING_FILE):
        note(
            "warning: a change of this checkpoint was cut short, and this may be half of it\n"
            f"help: headwater rewind {files.location} --resume   (or --abort to take it back)"
        )
