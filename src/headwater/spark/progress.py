"""Spark's progress reports, converted to records, lines and totals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headwater.checkpoint.record import ProgressRecord
from headwater.core.text import count
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.spark.decoding import METRIC
from headwater.spark.internals import listener

EPOCH_START = "1970-01-01T00:00:00.000Z"


def progress_record(report: dict[str, Any]) -> ProgressRecord:
    """Convert a progress report of Spark, parsed from JSON.

    ``dropped`` is Spark's own count, taken after partial aggregation; ``malformed`` counts records.
    """
    operators = report.get("stateOperators") or []
    observed = (report.get("observedMetrics") or {}).get(METRIC) or {}
    event_time = report.get("eventTime") or {}
    durations = report.get("durationMs") or {}
    return ProgressRecord(
        batch_id=int(report["batchId"]),
        at_ms=_epoch_ms(report.get("timestamp")) or 0,
        input_rows=int(report.get("numInputRows") or 0),
        input_rate=_rate(report.get("inputRowsPerSecond")),
        processed_rate=_rate(report.get("processedRowsPerSecond")),
        duration_ms=int(durations.get("triggerExecution") or report.get("batchDuration") or 0),
        watermark_ms=_epoch_ms(event_time.get("watermark")),
        event_time_min_ms=_epoch_ms(event_time.get("min")),
        event_time_max_ms=_epoch_ms(event_time.get("max")),
        state_rows=_sum(operators, "numRowsTotal") if operators else None,
        state_bytes=_sum(operators, "memoryUsedBytes") if operators else None,
        dropped=_sum(operators, "numRowsDroppedByWatermark"),
        malformed=int(observed.get("malformed") or 0),
        lag_rows=lag_rows(report.get("sources") or []),
        durations_ms={phase: int(value) for phase, value in durations.items()},
    )


def progress_line(batch: ProgressRecord) -> str:
    """Return the line that ``headwater run`` prints for a batch."""
    parts = [
        f"batch {batch.batch_id}",
        _rows(batch.input_rows),
        f"{batch.processed_rate:,.{0 if batch.processed_rate >= 10 else 1}f} rows/s",
        f"{batch.duration_ms} ms",
    ]
    if batch.watermark_ms is not None:
        parts.append(f"watermark {iso_from_ms(batch.watermark_ms)}")
    if batch.state_rows is not None:
        parts.append(f"state {_rows(batch.state_rows)}")
    parts += [f"dropped {batch.dropped}", f"malformed {batch.malformed}"]
    return "  ".join(parts)


@dataclass
class Totals:
    """The sums over all batches of a run."""

    batches: int = 0
    rows: int = 0
    dropped: int = 0
    malformed: int = 0

    def add(self, batch: ProgressRecord) -> None:
        self.batches += 1
        self.rows += batch.input_rows
        self.dropped += batch.dropped
        self.malformed += batch.malformed

    def line(self) -> str:
        counted = f"{count(self.batches, 'batch', grouped=False)}  {_rows(self.rows)}"
        return f"{counted}  dropped {self.dropped}  malformed {self.malformed}"


def _rows(number: int) -> str:
    return count(number, "row", grouped=False)


@contextmanager
def listening(spark: SparkSession, on_batch: Callable[[ProgressRecord], None]) -> Iterator[None]:
    """Pass each batch of the next query that starts to a function, once. Spark calls it from a thread of its own."""
    last_batch_id: int | None = None

    def on_progress(report: dict[str, Any]) -> None:
        nonlocal last_batch_id
        batch = progress_record(report)
        # An idle query reports its last batch id again every ten seconds, with no rows.
        if batch.batch_id == last_batch_id and batch.input_rows == 0:
            return
        last_batch_id = batch.batch_id
        on_batch(batch)

    with listener.listening(spark, on_progress):
        yield


def lag_rows(sources: list[dict[str, Any]]) -> int | None:
    """Return how many records were in Kafka and not in the batch; None if no source is a topic."""
    total = None
    for source in sources:
        latest, consumed = _kafka_offsets(source.get("latestOffset")), _kafka_offsets(source.get("endOffset"))
        if latest is None or consumed is None:
            continue
        lag = sum(
            max(0, offset - consumed.get(topic, {}).get(partition, offset))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
        total = lag + (total or 0)
    return total


def _kafka_offsets(value: Any) -> dict[str, dict[str, int]] | None:
    """Parse offsets such as ``{"visits":{"0":12}}``, which Spark reports as text or as an object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not value or not all(isinstance(parts, dict) for parts in value.values()):
        return None
    return value


def _sum(operators: list[dict[str, Any]], metric: str) -> int:
    return sum(int(operator.get(metric) or 0) for operator in operators)


def _epoch_ms(text: str | None) -> int | None:
    try:
        return ms_from_iso(text) if text and text != EPOCH_START else None
    except ValueError:  # a year that Python's datetime cannot represent
        return None


def _rate(value: Any) -> float:
    """Return a finite number: Spark reports a rate over no time as the text ``NaN`` or ``Infinity``."""
    try:
        number = float(value or 0.0)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0
