"""What Spark reports after each batch, as the few numbers that people watch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headwater.checkpoint.record import ProgressRecord
from headwater.core.times import ms_from_iso
from headwater.spark.decoding import METRIC
from headwater.spark.internals import listener

EPOCH_START = "1970-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class BatchProgress:
    """One batch. ``dropped`` is Spark's own count, after partial aggregation; ``malformed`` counts records."""

    batch_id: int
    input_rows: int
    rows_per_second: float
    duration_ms: int
    watermark: str | None
    state_rows: int
    state_bytes: int
    dropped: int
    malformed: int
    raw: dict[str, Any]

    @classmethod
    def from_spark(cls, progress: dict[str, Any]) -> BatchProgress:
        operators = progress.get("stateOperators") or []
        observed = (progress.get("observedMetrics") or {}).get(METRIC) or {}
        watermark = (progress.get("eventTime") or {}).get("watermark")
        return cls(
            batch_id=int(progress["batchId"]),
            input_rows=int(progress.get("numInputRows") or 0),
            rows_per_second=float(progress.get("processedRowsPerSecond") or 0.0),
            duration_ms=int(
                (progress.get("durationMs") or {}).get("triggerExecution") or progress.get("batchDuration") or 0
            ),
            watermark=None if watermark == EPOCH_START else watermark,
            state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
            state_bytes=sum(int(operator.get("memoryUsedBytes") or 0) for operator in operators),
            dropped=sum(int(operator.get("numRowsDroppedByWatermark") or 0) for operator in operators),
            malformed=int(observed.get("malformed") or 0),
            raw=progress,
        )

    def line(self) -> str:
        """One line for a person."""
        parts = [
            f"batch {self.batch_id}",
            _rows(self.input_rows),
            f"{self.rows_per_second:,.{0 if self.rows_per_second >= 10 else 1}f} rows/s",
            f"{self.duration_ms} ms",
        ]
        if self.watermark:
            parts.append(f"watermark {self.watermark}")
        if self.raw.get("stateOperators"):
            parts.append(f"state {_rows(self.state_rows)}")
        parts.append(f"dropped {self.dropped}")
        parts.append(f"malformed {self.malformed}")
        return "  ".join(parts)


@dataclass
class Totals:
    """What a whole run did."""

    batches: int = 0
    rows: int = 0
    dropped: int = 0
    malformed: int = 0

    def add(self, batch: BatchProgress) -> None:
        self.batches += 1
        self.rows += batch.input_rows
        self.dropped += batch.dropped
        self.malformed += batch.malformed

    def line(self) -> str:
        counted = f"{self.batches} batch{'' if self.batches == 1 else 'es'}  {_rows(self.rows)}"
        return f"{counted}  dropped {self.dropped}  malformed {self.malformed}"


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


@contextmanager
def listening(spark: SparkSession, on_batch: Callable[[BatchProgress], None]) -> Iterator[None]:
    """Pass every batch of the next query that starts to a function, once. It is called from a thread of Spark's."""
    last_batch_id: int | None = None

    def on_progress(report: dict[str, Any]) -> None:
        nonlocal last_batch_id
        batch = BatchProgress.from_spark(report)
        # An idle query reports its last batch id again every ten seconds, with no rows.
        if batch.batch_id == last_batch_id and batch.input_rows == 0:
            return
        last_batch_id = batch.batch_id
        on_batch(batch)

    with listener.listening(spark, on_progress):
        yield


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
