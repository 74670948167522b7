"""Models of the jobs with custom state, batch by batch, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from splits import ModelBatch, Record

from headwater.core.times import iso_from_ms

Rows = list[dict[str, Any]]
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def weekly_totals(batches: Iterable[ModelBatch], user: Any) -> list[Rows]:
    """Return for each batch the total of the last week of each user with a purchase in it."""
    purchases: list[Record] = []
    emitted: list[Rows] = []
    for batch in batches:
        purchases += batch.on_time
        rows = []
        for who in sorted({one.who for one in batch.on_time}):
            latest_ms = max(one.at_ms for one in purchases if one.who == who)
            start_ms = max(batch.watermark_ms, latest_ms - WEEK_MS)
            total = sum(one.amount for one in purchases if one.who == who and one.at_ms > start_ms)
            rows.append({"user": user(who), "total": total})
        purchases = [one for one in purchases if one.at_ms > batch.watermark_ms]
        emitted.append(rows)
    return emitted


def sessions(batches: Iterable[ModelBatch], user: Any, gap_ms: int) -> list[Rows]:
    """Return for each batch the sessions that the watermark closed. Open sessions are lists of event times."""
    opened: dict[int, list[list[int]]] = {}
    emitted: list[Rows] = []
    for batch in batches:
        for one in batch.on_time:
            apart = []
            together = [one.at_ms]
            for events in opened.get(one.who, []):
                if min(events) - gap_ms <= one.at_ms <= max(events) + gap_ms:
                    together += events
                else:
                    apart.append(events)
            opened[one.who] = [*apart, together]
        rows = []
        for who, lists in opened.items():
            closed = [events for events in lists if max(events) + gap_ms <= batch.watermark_ms]
            opened[who] = [events for events in lists if events not in closed]
            rows += [session(user(who), events) for events in closed]
        emitted.append(rows)
    return emitted


def session(user: str, events: list[int]) -> dict[str, Any]:
    return {"user": user, "start": iso_from_ms(min(events)), "end": iso_from_ms(max(events)), "events": len(events)}


def date_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d-%m-%Y")
