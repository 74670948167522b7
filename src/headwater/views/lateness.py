"""How late the late records were, and what delay would have kept them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.core.times import ms_from_iso

STEPS = ((60, "up to 1 min"), (600, "up to 10 min"), (3600, "up to 1 h"), (86400, "up to 1 day"), (math.inf, "longer"))


def lateness_summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One object for each batch and reason: how many, and for late ones how far behind the watermark."""
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
    """How much longer the watermark's delay would have to be to keep this share of the late records.

    A longer delay holds the watermark back by just as much, and a record is kept when what is compared lies after it.
    """
    behind = sorted(_seconds_behind(record) for record in records if record["reason"] == "late")
    if not behind:
        return None
    return math.floor(behind[max(0, math.ceil(len(behind) * share) - 1)]) + 1


def _histogram(records: list[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(next(name for limit, name in STEPS if _seconds_behind(record) <= limit) for record in records)
    return {name: counts[name] for _, name in STEPS if counts[name]}


def _seconds_behind(record: Mapping[str, Any]) -> float:
    """By how much what the operator compared, such as the end of the window, lay behind the watermark."""
    compared = record.get("compared") or record["event_time"]
    if not compared or not record["watermark"]:
        return 0.0
    return max(0, ms_from_iso(record["watermark"]) - ms_from_iso(compared)) / 1000


def spelled_seconds(seconds: int) -> str:
    """As one writes it in ``withWatermark``: ``1 hour 5 minutes``."""
    parts = []
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"
