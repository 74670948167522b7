"""The journal of a checkpoint: the changes that were applied, and the one that is under way."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import CASCADE_FILE, JOURNAL_FOLDER, PENDING_FILE
from headwater.checkpoint.lease import live_lease, refuse_if_held
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.logtext import json_object, read_bytes
from headwater.checkpoint.moved import refuse_if_moved
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.change import Change, Put, quarantine_of

FOLDER = JOURNAL_FOLDER
_ADDS = b'"added"'  # the detail of a change that adds batches, as it is stored
_KEEP_BATCHES = ("repair", "promote", "move")
RESTORED_SINCE = "generation"
"""The detail of a rewind to a restore point: the number of the last change before the point was made."""


@dataclass(frozen=True)
class Entry:
    """A change that was applied completely."""

    number: int
    done_at_ms: int
    change: Change


@dataclass(frozen=True)
class Pending:
    """A change that is under way, or was interrupted.

    All stages before ``stage`` are done and none after it has begun; any step of that stage may be done. ``stage`` is
    beyond the last one if all are done. ``metadata`` and ``metadata_crc`` are the contents that the guard replaced.
    """

    stage: int
    change: Change
    begun_at_ms: int
    metadata: str | None
    metadata_crc: str | None

    @property
    def all_done(self) -> bool:
        """Whether all steps are done and only the guard may be left."""
        return self.stage >= len(self.change.stages)

    def to_bytes(self) -> bytes:
        """Return the contents of ``pending.json``."""
        value = {
            "stage": self.stage,
            "begun_at_ms": self.begun_at_ms,
            "metadata": self.metadata,
            "metadata_crc": self.metadata_crc,
            "change": self.change.as_dict(),
        }
        return json.dumps(value).encode()


def read_pending(files: FileTree) -> Pending | None:
    """Return the change that is under way or was interrupted; None if there is none."""
    try:
        data = files.read(PENDING_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    value = _object(data, PENDING_FILE)
    try:
        return Pending(
            value["stage"],
            Change.from_dict(value["change"]),
            value["begun_at_ms"],
            value["metadata"],
            value["metadata_crc"],
        )
    except (KeyError, TypeError, ValueError):
        raise _damaged(data, PENDING_FILE) from None


@dataclass(frozen=True)
class PendingCascade:
    """Changes of several checkpoints that are under way as one, in the order in which they are made."""

    members: tuple[tuple[str, Change], ...]
    """The location of each checkpoint, and what changes there."""

    def to_bytes(self) -> bytes:
        """Return the contents of ``cascade.json``."""
        members = [{"location": location, "change": change.as_dict()} for location, change in self.members]
        return json.dumps({"members": members}).encode()


def read_cascade(files: FileTree) -> PendingCascade | None:
    """Return the changes that are under way with this checkpoint as their first one; None if there are none."""
    try:
        data = files.read(CASCADE_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        members = _object(data, CASCADE_FILE)["members"]
        cascade = PendingCascade(tuple((one["location"], Change.from_dict(one["change"])) for one in members))
    except (KeyError, TypeError, ValueError):
        raise _damaged(data, CASCADE_FILE) from None
    if not cascade.members:
        raise _damaged(data, CASCADE_FILE)
    return cascade


def write_entry(files: FileTree, change: Change, done_at_ms: int) -> Entry:
    """Add a change to the journal, without the contents of the files that it wrote: an undo does not need them."""
    steps = tuple(replace(step, data=b"") if isinstance(step, Put) else step for step in change.steps)
    entry = Entry(max(_numbers(files), default=0) + 1, done_at_ms, replace(change, steps=steps))
    value = {"number": entry.number, "done_at_ms": entry.done_at_ms, "change": entry.change.as_dict()}
    files.write(_path(entry.number), json.dumps(value).encode())
    return entry


def newest_number(files: FileTree) -> int:
    """Return the number of the newest change; 0 if there is none."""
    return max(_numbers(files), default=0)


def entry_of(files: FileTree, change: Change) -> Entry | None:
    """Return the entry of a pending change if it has one already, which is then the newest; otherwise None."""
    newest = max(_numbers(files), default=None)
    entry = _read_entry(files, newest) if newest is not None else None
    return entry if entry and entry.change.change_id == change.change_id else None


def read_entries(files: FileTree) -> list[Entry]:
    """Return all changes that were applied, oldest first."""
    return [_read_entry(files, number) for number in _numbers(files)]


def last_to_undo(files: FileTree) -> Entry | None:
    """Return the newest change that has not been undone; None if there is none."""
    entries = read_entries(files)
    undone = {entry.change.undoes for entry in entries if entry.change.undoes}
    candidates = [entry for entry in entries if entry.change.undoes is None and entry.change.change_id not in undone]
    return candidates[-1] if candidates else None


def first_rerun(files: FileTree, generation: int) -> int | None:
    """Return the first batch that may have run again since the change with a number; None if there is none.

    Repairs, promotions, moves and the undo of these leave all batches as they are. A change and its undo leave them
    together as they were.
    """
    entries = read_entries(files)
    verbs = {entry.change.change_id: entry.change.verb for entry in entries}
    newer = [entry.change for entry in entries if entry.number > generation]
    undone = {change.undoes for change in newer} & {change.change_id for change in newer}
    since = [
        change
        for change in newer
        if verbs.get(change.undoes or "", change.verb) not in _KEEP_BATCHES
        and not {change.change_id, change.undoes} & undone
    ]
    return min((0 if change.to is None else change.to + 1 for change in since), default=None)


def added_batches(files: FileTree) -> dict[int, Entry]:
    """Return the batches that changes have added and that no later change has removed, each with its change.

    Return none if the journal is corrupt, which ``fsck`` reports. Most changes add no batch, and are not parsed: a rewind
    of a long stream has thousands of steps.
    """
    try:
        stored = {number: read_bytes(files, _path(number)) for number in _numbers(files)}
        adds = any(_ADDS in data for data in stored.values())
        entries = [_parse_entry(data, number) for number, data in stored.items()] if adds else []
    except CheckpointUnreadable:
        return {}
    found: dict[int, Entry] = {}
    earlier: dict[str, dict[int, Entry]] = {}
    after: dict[int, dict[int, Entry]] = {0: {}}
    for entry in entries:
        change = entry.change
        earlier[change.change_id] = found
        if change.undoes is not None:
            found = earlier.get(change.undoes, found)
        elif change.verb == "rewind":
            found = after.get(change.details.get(RESTORED_SINCE, -1), found)
            found = {batch: added for batch, added in found.items() if change.to is not None and batch <= change.to}
        else:
            found = found | dict.fromkeys(change.details.get("added", ()), entry)
        after[entry.number] = found
    return found


def is_emptied(files: FileTree, change: Change) -> bool:
    """Return whether ``compact`` has removed the files that a change set aside."""
    return files.exists(emptied_marker(change.change_id))


def emptied_marker(change_id: str) -> str:
    """Return the path of the file that marks a change's quarantine as emptied."""
    return f"{quarantine_of(change_id)}.emptied"


def _numbers(files: FileTree) -> list[int]:
    stems = (entry.name.removesuffix(".json") for entry in files.entries(FOLDER) if entry.name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _path(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"


def _read_entry(files: FileTree, number: int) -> Entry:
    return _parse_entry(read_bytes(files, _path(number)), number)


def _parse_entry(data: bytes, number: int) -> Entry:
    value = _object(data, _path(number))
    return Entry(value["number"], value["done_at_ms"], Change.from_dict(value["change"]))


def _object(data: bytes, path: str) -> dict[str, Any]:
    try:
        return json_object(data.decode("utf-8"), path)
    except (UnicodeDecodeError, CheckpointUnreadable):
        raise _damaged(data, path) from None


def _damaged(data: bytes, path: str) -> CheckpointUnreadable:
    return CheckpointUnreadable(
        "journal-unreadable",
        f"{path} is corrupt",
        evidence={"size": f"{len(data)} bytes"},
        remedy="restore the file from a backup of the checkpoint before you start the query",
    )


def refuse_if_pending(files: FileTree, *, in_cascade: bool = False) -> None:
    """Raise ``ChangeRefused`` if a change was interrupted, or if the checkpoint was moved elsewhere.

    Raise ``CheckpointBusy`` if another process is making the change. Every command that changes a checkpoint checks this
    first. ``in_cascade`` is for a part of the cascade that is under way.
    """
    refuse_if_moved(files)
    if _unfinished_change(files, in_cascade=in_cascade) is None:
        return
    lease = live_lease(files)
    if lease is not None and not lease.is_of_this_process:
        refuse_if_held(files, "cannot change this checkpoint")
    # Another process may have completed the change in the meantime.
    change = _unfinished_change(files, in_cascade=in_cascade)
    if change is None:
        return
    raise ChangeRefused(
        "interrupted-operation",
        f"a {change.verb} of this checkpoint was interrupted",
        evidence={"checkpoint": files.location, "change": change.about},
        remedy=f"headwater rewind {cascade_of(files, change) or files.location} --resume   (or --abort to roll it back)",
    )


def cascade_of(files: FileTree, change: Change) -> str | None:
    """Return the checkpoint that a cascade under way was started from, if a change is a part of it; otherwise None."""
    done = change
    if change.undoes is not None:
        done = next((one.change for one in read_entries(files) if one.change.change_id == change.undoes), change)
    first = done.details.get("cascade_of")
    cascade = read_cascade(open_files(str(first["location"]))) if first else None
    is_part = cascade is not None and any(change.change_id == one.change_id for _, one in cascade.members)
    return str(first["location"]) if first and is_part else None


def _unfinished_change(files: FileTree, *, in_cascade: bool) -> Change | None:
    """Return the change that is under way or was interrupted, alone or as a part of a cascade."""
    pending, cascade = read_pending(files), None if in_cascade else read_cascade(files)
    return pending.change if pending else cascade.members[-1][1] if cascade else None
