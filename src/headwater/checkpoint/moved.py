"""Checkpoints that ``move`` has taken elsewhere: the pointer at the old location, and the mark of an incomplete copy.

``_headwater/moved_to.json`` at the old location names the new one. ``metadata`` there contains a notice that no Spark
version accepts, so that neither Headwater nor a plain program continues the query twice. ``_headwater/moving.json`` marks
a copy that is not complete.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, METADATA, hadoop_crc_of
from headwater.checkpoint.logtext import json_object, unreadable_file
from headwater.core.errors import ChangeRefused, CheckpointUnreadable

POINTER = f"{HEADWATER_FOLDER}/moved_to.json"
INCOMPLETE = f"{HEADWATER_FOLDER}/moving.json"
ORIGIN = f"{HEADWATER_FOLDER}/moved_from.json"
METADATA_CRC = hadoop_crc_of(METADATA)
MOST_PROMOTIONS = 100
MOVED_NOTICE = (
    b"headwater_moved_this_checkpoint__see__headwater_moved_to_json\n"
    b"This checkpoint was moved. To use it again: headwater undo CKPT\n"
)
PROMOTED_NOTICE = (
    b"headwater_promoted_a_fork_of_this_checkpoint__see__headwater_moved_to_json\n"
    b"A fork was promoted in place of this checkpoint. To use it again: headwater undo CKPT\n"
)
INCOMPLETE_NOTICE = (
    b"headwater_move_into_this_folder_is_incomplete__run_headwater_move_again\n"
    b"This copy of a checkpoint is not complete. Run the same headwater move again, or remove the folder.\n"
)


@dataclass(frozen=True)
class MovedTo:
    """Where a checkpoint was moved to, and what it was like then.

    ``newest_batch`` and ``generation`` are the last batch and the last change, planned batches included. ``metadata`` and
    ``metadata_crc`` are the contents that the notice has replaced, in Base64.
    """

    to: str
    move_id: str
    moved_at_ms: int
    newest_batch: int | None
    generation: int
    metadata: str | None
    metadata_crc: str | None
    folders: dict[str, str] = field(default_factory=dict)
    promoted: bool = False
    """Whether a fork was promoted in place of the checkpoint, which was not moved itself."""

    def to_bytes(self) -> bytes:
        """Return the contents of ``moved_to.json``."""
        return json.dumps(asdict(self), indent=1).encode()


@dataclass(frozen=True)
class Moving:
    """A move into a folder, as ``moving.json`` and later ``moved_from.json`` record it.

    ``folders`` has the new folders by the old ones, and ``created`` those that did not exist before the move.
    """

    origin: str
    move_id: str
    folders: dict[str, str] = field(default_factory=dict)
    created: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the contents of the file."""
        return json.dumps(asdict(self), indent=1).encode()


def read_pointer(files: FileTree) -> MovedTo | None:
    """Return where a checkpoint was moved to; None if it was not."""
    value = _read(files, POINTER)
    if value is None:
        return None
    facts: dict[str, Any] = {name: value.get(name) for name in MovedTo.__dataclass_fields__}
    return MovedTo(**{**facts, **_maps(value), "promoted": value.get("promoted") is True})


def read_moving(files: FileTree, path: str = INCOMPLETE) -> Moving | None:
    """Return the move that a folder is the target of; None if there is none. ``path`` may be ``ORIGIN``."""
    value = _read(files, path)
    if value is None:
        return None
    created = tuple(one for one in value.get("created") or () if isinstance(one, str))
    return Moving(str(value.get("origin")), str(value.get("move_id")), created=created, **_maps(value))


def refuse_if_moved(files: FileTree) -> None:
    """Raise ``ChangeRefused`` if a checkpoint was moved elsewhere, or is itself the incomplete copy of a move."""
    moving = read_moving(files)
    if moving is not None:
        raise ChangeRefused(
            "move-incomplete",
            "this folder is the incomplete copy of a checkpoint that is being moved",
            evidence={"folder": files.location, "checkpoint": moving.origin},
            remedy=f"headwater move {moving.origin} {files.location}   (finishes it), or remove the folder",
        )
    pointer = read_pointer(files)
    if pointer is not None and pointer.promoted:
        raise ChangeRefused(
            "promoted",
            f"the fork {pointer.to} was promoted in place of this checkpoint",
            evidence={"checkpoint": files.location},
            remedy=f"use {pointer.to}, or undo the promotion: headwater undo {files.location}",
        )
    if pointer is not None:
        raise ChangeRefused(
            "checkpoint-moved",
            f"this checkpoint was moved to {pointer.to}",
            evidence={"checkpoint": files.location, **{f"{old} moved to": new for old, new in pointer.folders.items()}},
            remedy=f"use {pointer.to}, or move it back: headwater undo {files.location}",
        )


def follow_promotion(files: FileTree, open_tree: Callable[[str], FileTree]) -> FileTree:
    """Return the checkpoint that was promoted in place of another one; the checkpoint itself if none was."""
    for _ in range(MOST_PROMOTIONS):
        pointer = read_pointer(files) if files.exists(POINTER) else None
        if pointer is None or not pointer.promoted:
            break
        files = open_tree(pointer.to)
    return files


def replace_metadata(files: FileTree, notice: bytes) -> tuple[str | None, str | None]:
    """Replace the identity of the query by a notice; return the contents of ``metadata`` and its checksum in Base64."""
    kept = _encoded(files, METADATA), _encoded(files, METADATA_CRC)
    if kept[1] is not None:
        files.remove(METADATA_CRC)
    files.write(METADATA, notice)
    return kept


def restore_metadata(files: FileTree, pointer: MovedTo) -> None:
    """Put back the identity of the query. The checksum comes first: while it does not match, Spark does not start."""
    if pointer.metadata_crc is not None:
        files.write(METADATA_CRC, base64.b64decode(pointer.metadata_crc))
    if pointer.metadata is not None:
        files.write(METADATA, base64.b64decode(pointer.metadata))


def encoded_metadata(files: FileTree) -> tuple[str | None, str | None]:
    """Return the contents of ``metadata`` and of its checksum in Base64."""
    return _encoded(files, METADATA), _encoded(files, METADATA_CRC)


def _encoded(files: FileTree, path: str) -> str | None:
    try:
        return base64.b64encode(files.read(path)).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(files: FileTree, path: str) -> dict[str, Any] | None:
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return json_object(data.decode("utf-8"), path)
    except (UnicodeDecodeError, CheckpointUnreadable):
        raise unreadable_file("moved-unreadable", path, "is corrupt") from None


def _maps(value: dict[str, Any]) -> dict[str, Any]:
    folders = value.get("folders")
    return {"folders": {str(old): str(new) for old, new in folders.items()} if isinstance(folders, dict) else {}}
