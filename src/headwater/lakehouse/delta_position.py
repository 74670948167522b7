"""Positions in Delta tables as users write them: the first version to read, ``latest``, or a time."""

from __future__ import annotations

import json

from headwater.checkpoint.table_offsets import DeltaPosition
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.times import ms_from_iso
from headwater.lakehouse.delta_log import DeltaLog


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
