"""The stream continues here: the checkpoint was not moved elsewhere, and is not the incomplete copy of a move."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.moved import INCOMPLETE, POINTER, read_moving, read_pointer
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    try:
        moving, pointer = read_moving(context.files), read_pointer(context.files)
    except CheckpointUnreadable as error:
        yield Finding("error", "moved-unreadable", str(error.evidence.get("file", "")), error.problem)
        return
    if moving is not None:
        message = f"marks an incomplete copy; to finish it: headwater move {moving.origin} {context.files.location}"
        yield Finding("error", "move-incomplete", INCOMPLETE, message)
    elif pointer is not None:
        what = "a fork was promoted in its place:" if pointer.promoted else "the checkpoint was moved to"
        message = f"{what} {pointer.to}; the stream continues there"
        yield Finding("warning", "checkpoint-moved", POINTER, message)
