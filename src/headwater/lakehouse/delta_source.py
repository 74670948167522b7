"""What a streaming query reads from a Delta table between two offsets: versions of the log, and the files that they added.

Delta numbers the added files of a version in the order of its commit, and the files of the snapshot that a query starts
with by modification time and path. Files that only rearrange rows (OPTIMIZE) are not read. Users write a position as the
first version to read, ``latest``, or a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.checkpoint.table_offsets import DeltaPosition
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.core.text import count
from headwater.core.times import ms_from_iso
from headwater.lakehouse.delta_actions import Action, Commit, rows_in
from headwater.lakehouse.delta_files import missing_files
from headwater.lakehouse.delta_log import DeltaLog


@dataclass(frozen=True)
class VersionRead:
    """The files of one version, or of the table as of it, that a query reads."""

    version: int
    in_snapshot: bool
    adds: tuple[Action, ...]

    @property
    def rows(self) -> int | None:
        """The number of rows; None if the log has no statistics for one of the files."""
        found = [rows_in(action) for action in self.adds]
        return None if None in found else sum(rows for rows in found if rows is not None)


def resolve_version(log: DeltaLog, text: str) -> DeltaPosition:
    """Return the position before the first file of a version. Raise if the log no longer has that version."""
    stripped = text.strip()
    if stripped == "latest":
        version = log.head + 1
    elif stripped.isascii() and stripped.isdigit():
        version = int(stripped)
    else:
        version = _version_at(log, stripped)
    if version != log.head + 1 and not log.has(version):
        raise ChangeRefused(
            "version-gone",
            f"the table cannot be read from version {version} on",
            evidence={
                "table": log.files.location,
                "versions in its log": f"{log.versions[0]} to {log.head}" if log.versions else "none",
            },
            remedy=f"give one of these versions, or {log.head + 1} for what is committed from now on",
        )
    return DeltaPosition(version, None, False, log.snapshot(log.head).table_id)


def offset_text(position: DeltaPosition) -> str:
    """Return the offset that Spark's log has for a position before the first file of a version."""
    value = {
        "sourceVersion": 1,
        "reservoirId": position.table_id,
        "reservoirVersion": position.version,
        "index": -1,
        "isStartingVersion": False,
    }
    return json.dumps(value, separators=(",", ":"))


def _version_at(log: DeltaLog, text: str) -> int:
    """Return the first version that was committed at or after a time."""
    try:
        time_ms = ms_from_iso(text)
    except ValueError:
        raise UsageProblem(
            "bad-position",
            f"{text!r} is not a position in a Delta table",
            remedy="--at 17 (the first version to read), a time such as 2026-07-01T00:00:00Z, or latest",
        ) from None
    later = (version for version in log.versions if (log.commit(version).timestamp_ms or 0) >= time_ms)
    return next(later, log.head + 1)


def start_position(end: DeltaPosition, starting_version: str | None = None) -> DeltaPosition | None:
    """Return where the first batch of a query started, given where it ended; None if the log does not show it.

    ``starting_version`` is the source's option of that name. Without it, a query starts with the table's snapshot.
    """
    if starting_version is not None:
        return DeltaPosition(int(starting_version)) if starting_version.isdigit() else None
    # A first batch that ended after the snapshot can be read again from the snapshot before its end.
    return DeltaPosition(end.version if end.in_snapshot else max(end.version - 1, 0), None, in_snapshot=True)


def reads_between(log: DeltaLog, start: DeltaPosition, end: DeltaPosition) -> Iterator[VersionRead]:
    """Yield what lies after one position, up to another. Raise ``CheckpointUnreadable`` if the log has lost a part."""
    first = start.version
    if start.in_snapshot:
        until = end.file if end.in_snapshot and end.version == first else None
        if end.in_snapshot and until is None:
            return
        yield VersionRead(first, True, _slice(snapshot_files(log, first), start.file, until))
        if end.in_snapshot:
            return
        first += 1
    for version in range(first, end.version + 1):
        if version == end.version and end.file is None:
            return
        after = start.file if version == start.version and not start.in_snapshot else None
        until = end.file if version == end.version else None
        yield VersionRead(version, False, _slice(added_files(log.commit(version)), after, until))


def files_before(log: DeltaLog, position: DeltaPosition) -> list[Action]:
    """Return the files of the table that lie before a position."""
    if position.in_snapshot:
        return (
            list(_slice(snapshot_files(log, position.version), None, position.file))
            if position.file is not None
            else []
        )
    earlier = list(log.snapshot(position.version - 1).files.values()) if position.version else []
    if position.file is None:
        return earlier
    return [*earlier, *_slice(added_files(log.commit(position.version)), None, position.file)]


def snapshot_files(log: DeltaLog, version: int) -> list[Action]:
    """Return the files of a table in the order in which a query that starts with them reads them."""
    files = log.snapshot(version).files.values()
    return sorted(files, key=lambda action: (action.get("modificationTime", 0), str(action["path"])))


def added_files(commit: Commit) -> list[Action]:
    """Return the files of a commit that a query reads."""
    return [action for action in commit.adds if action.get("dataChange", True)]


def removes_rows(commit: Commit) -> bool:
    """Return whether a commit takes rows out of the table, which stops a query that reads it."""
    return any(action.get("dataChange", True) for action in commit.removes)


def unreadable_part(
    log: DeltaLog, start: DeltaPosition, end: DeltaPosition, *, skips_changes: bool = False
) -> str | None:
    """Return why a query cannot read a part of the table a second time; None if everything is still there.

    The query continues from the end of the part to the newest version, so versions after it count as well.
    """
    try:
        reads = list(reads_between(log, start, end))
    except CheckpointUnreadable as error:
        return f"{error.problem}; Delta has removed old versions of the log, or the table was replaced"
    if end.table_id and log.snapshot(log.head).table_id != end.table_id:
        return f"the table was replaced: it has another id than {end.table_id}"
    missing = missing_files(log.files, (action for read in reads for action in read.adds))
    if missing:
        return f"{count(len(missing), 'file')} no longer exist, as after VACUUM; the first is {missing[0]}"
    if skips_changes:
        return None
    later = range(start.version + (1 if start.in_snapshot else 0), log.head + 1)
    changed = next((number for number in later if log.has(number) and removes_rows(log.commit(number))), None)
    if changed is None:
        return None
    return (
        f"version {changed} ({log.commit(changed).operation}) removes rows, and a query that reads the table fails there. "
        "Restart from scratch with the table as it is: --redo 0 --replan"
    )


def unread_rows(log: DeltaLog, position: DeltaPosition) -> int | None:
    """Return how many rows lie after a position; None if the log does not show it."""
    end = DeltaPosition(log.head + 1)
    if position.version > log.head:
        return 0
    try:
        found = [read.rows for read in reads_between(log, position, end)]
    except CheckpointUnreadable:
        return None
    return None if None in found else sum(rows for rows in found if rows is not None)


def _slice(files: Sequence[Action], after: int | None, until: int | None) -> tuple[Action, ...]:
    return tuple(files[0 if after is None else after + 1 : None if until is None else until + 1])
