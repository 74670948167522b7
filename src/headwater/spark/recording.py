"""Spark's report on a batch as the record that other processes read: the page, and metrics."""

from __future__ import annotations

import json
import math
from typing import Any

from headwater.checkpoint.record import ProgressRecord
from headwater.core.times import ms_from_iso
from headwater.spark.progress import EPOCH_START, BatchProgress


def record_of_batch(batch: BatchProgress) -> ProgressRecord:
    raw = batch.raw
    event_time = raw.get("eventTime") or {}
    stateful = bool(raw.get("stateOperators"))
    return ProgressRecord(
        batch_id=batch.batch_id,
        at_ms=_ms(raw.get("timestamp")) or 0,
        input_rows=batch.input_rows,
        input_rate=_number(raw.get("inputRowsPerSecond")),
        processed_rate=_number(raw.get("processedRowsPerSecond")),
        duration_ms=batch.duration_ms,
        watermark_ms=_ms(batch.watermark),
        event_time_min_ms=_ms(event_time.get("min")),
        event_time_max_ms=_ms(event_time.get("max")),
        state_rows=batch.state_rows if stateful else None,
        state_bytes=batch.state_bytes if stateful else None,
        dropped=batch.dropped,
        malformed=batch.malformed,
        lag_rows=lag_rows(raw.get("sources") or []),
        durations_ms={name: int(value) for name, value in (raw.get("durationMs") or {}).items()},
    )


def lag_rows(sources: list[dict[str, Any]]) -> int | None:
    """Records that Kafka had and the batch did not take; None where no source counts them."""
    found = None
    for source in sources:
        latest, taken = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or taken is None:
            continue
        behind = sum(
            max(0, offset - taken.get(topic, {}).get(partition, offset))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
        found = behind + (found or 0)
    return found


def _offsets(value: Any) -> dict[str, dict[str, int]] | None:
    """``{"visits":{"0":12}}``, which is what Kafka's offsets look like; Spark gives them as text or as an object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not value or not all(isinstance(held, dict) for held in value.values()):
        return None
    return value


def _ms(text: str | None) -> int | None:
    try:
        return ms_from_iso(text) if text and text != EPOCH_START else None
    except ValueError:  # a year that Python does not know
        return None


def _number(value: Any) -> float:
    """A rate over no time at all is told as a text, ``NaN`` or ``Infinity``."""
    try:
        number = float(value or 0.0)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0
