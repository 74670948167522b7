"""What was done to a checkpoint, and what was begun and not ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import OURS, PENDING_FILE
from headwater.checkpoint.logtext import json_object, read_bytes
from headwater.core.errors import CheckpointUnreadable
from headwater.timemachine.change import Change, quarantine_of

FOLDER = f"{OURS}/journal"


@dataclass(frozen=True)
class Entry:
    """One change that was carried out to its end."""

    number: int
    done_at_ms: int
    change: Change


@dataclass(frozen=True)
class Pending:
    """A change that is under way.

    All stages before ``stage`` are done, none after it is begun, and of that stage itself anything may be done. A stage
    behind the last means that all is done. ``metadata`` and ``metadata_crc`` are the bytes that the guard stands in for.
    """

    stage: int
    change: Change
    begun_at_ms: int
    metadata: str | None
    metadata_crc: str | None

    @property
    def all_done(self) -> bool:
        return self.stage >= len(self.change.stages)

    def to_bytes(self) -> bytes:
        held = {
            "stage": self.stage,
            "begun_at_ms": self.begun_at_ms,
            "metadata": self.metadata,
            "metadata_crc": self.metadata_crc,
            "change": self.change.as_dict(),
        }
        return json.dumps(held).encode()


def read_pending(files: FileTree) -> Pending | None:
    """The change that was cut short, or None."""
    try:
        data = files.read(PENDING_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = _object(data, PENDING_FILE)
    return Pending(
        held["stage"],
        Change.from_dict(held["change"]),
        held["begun_at_ms"],
        held["metadata"],
        held["metadata_crc"],
    )


def write_entry(files: FileTree, change: Change, done_at_ms: int) -> Entry:
    entry = Entry(max(_numbers(files), default=0) + 1, done_at_ms, change)
    files.write(_path(entry.number), _entry_bytes(entry))
    return entry


def entry_of(files: FileTree, change: Change) -> Entry | None:
    """The entry of a change that is still pending, if it got that far: it is the newest one then."""
    newest = max(_numbers(files), default=None)
    entry = _read_entry(files, newest) if newest is not None else None
    return entry if entry and entry.change.change_id == change.change_id else None


def read_entries(files: FileTree) -> list[Entry]:
    """All changes, oldest first."""
    return [_read_entry(files, number) for number in _numbers(files)]


def _numbers(files: FileTree) -> list[int]:
    stems = (entry.name.removesuffix(".json") for entry in files.entries(FOLDER) if entry.name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _path(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"


def _read_entry(files: FileTree, number: int) -> Entry:
    held = _object(read_bytes(files, _path(number)), _path(number))
    return Entry(held["number"], held["done_at_ms"], Change.from_dict(held["change"]))


def last_to_undo(files: FileTree) -> Entry | None:
    """The newest change that has not been taken back; None when there is none, or its quarantine was emptied."""
    entries = read_entries(files)
    undone = {entry.change.undoes for entry in entries if entry.change.undoes}
    candidates = [entry for entry in entries if entry.change.undoes is None and entry.change.change_id not in undone]
    return candidates[-1] if candidates else None


def is_emptied(files: FileTree, change: Change) -> bool:
    """Whether ``compact`` has removed what the change had set aside."""
    return files.exists(f"{quarantine_of(change.change_id)}.emptied")


def _entry_bytes(entry: Entry) -> bytes:
    held = {"number": entry.number, "done_at_ms": entry.done_at_ms, "change": entry.change.as_dict()}
    return json.dumps(held).encode()


def _object(data: bytes, path: str) -> dict[str, Any]:
    try:
        return json_object(data.decode("utf-8"), path)
    except (UnicodeDecodeError, CheckpointUnreadable):
        raise CheckpointUnreadable(
            "journal-unreadable",
            f"{path} cannot be read",
            evidence={"size": f"{len(data)} bytes"},
            remedy="restore it from a backup of the checkpoint; do not start the query before",
        ) from None
