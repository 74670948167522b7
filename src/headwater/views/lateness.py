"""How late the late records were, and which watermark delay would have kept them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.core.text import count
from headwater.core.times import ms_from_iso

LAG_BUCKETS = (
    (60, "up to 1 min"),
    (600, "up to 10 min"),
    (3600, "up to 1 h"),
    (86400, "up to 1 day"),
    (math.inf, "longer"),
)


def lateness_summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one object per batch and reason: the number of records and, for late ones, a histogram of their lag."""
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["batch_id"], record["reason"]), []).append(record)
    return [
        {
            "batch_id": batch_id,
            "reason": reason,
            "records": len(found),
            "behind": _histogram(found) if reason == "late" else {},
        }
        for (batch_id, reason), found in sorted(groups.items())
    ]


def suggested_extra_delay_seconds(records: Iterable[Mapping[str, Any]], share: float = 0.99) -> int | None:
    """Return the number of seconds to add to the watermark delay in order to keep this share of the late records.

    A longer delay holds the watermark back by the same amount. A record is kept if its compared time is later than that.
    """
    behind = sorted(_seconds_behind(record) for record in records if record["reason"] == "late")
    if not behind:
        return None
    return math.floor(behind[max(0, math.ceil(len(behind) * share) - 1)]) + 1


def _histogram(records: list[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(
        next(name for limit, name in LAG_BUCKETS if _seconds_behind(record) <= limit) for record in records
    )
    return {name: counts[name] for _, name in LAG_BUCKETS if counts[name]}


def _seconds_behind(record: Mapping[str, Any]) -> float:
    """Return the lag behind the watermark of the time that the operator compared, such as the end of the window."""
    compared = record.get("compared") or record["event_time"]
    if not compared or not record["watermark"]:
        return 0.0
    return max(0, ms_from_iso(record["watermark"]) - ms_from_iso(compared)) / 1000


def spell_seconds(seconds: int) -> str:
    """Return a duration as it is written in ``withWatermark``: ``1 hour 5 minutes``."""
    parts = []
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number, seconds = divmod(seconds, length)
        if number:
            parts.append(count(number, unit))
    return " ".join(parts) or "0 seconds"
