"""Spark's progress reports, converted to records, lines and totals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.record import OperatorWatermark, ProgressRecord, SourceProgress
from headwater.checkpoint.source_names import match_names, traits_from_description
from headwater.core.text import count
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.spark.decoding import METRIC
from headwater.spark.internals import listener
from headwater.spark.internals.watermarks import QueryWatermarks

EPOCH_START = "1970-01-01T00:00:00.000Z"


def progress_record(
    report: dict[str, Any],
    *,
    uris: Mapping[str, str] = MappingProxyType({}),
    source_ids: Sequence[str] = (),
    watermarks: tuple[OperatorWatermark, ...] = (),
) -> ProgressRecord:
    """Convert a progress report of Spark, parsed from JSON.

    ``dropped`` is Spark's own count, taken after partial aggregation; ``malformed`` counts records. ``uris`` are the
    job's sources by name, ``source_ids`` the names of the sources in the offset log, in the order of the report.
    """
    operators = report.get("stateOperators") or []
    observed = observed_sources(report)
    sources = report.get("sources") or []
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
        malformed=sum(found.malformed or 0 for found in observed.values()),
        lag_rows=lag_rows(sources),
        durations_ms={phase: int(value) for phase, value in durations.items()},
        sources=_sources(sources, observed, uris, source_ids),
        watermarks=watermarks,
    )


def observed_sources(report: dict[str, Any]) -> dict[str | None, SourceProgress]:
    """Return the records that each source of a Headwater job delivered, by its name; None is an unnamed source."""
    found: dict[str | None, SourceProgress] = {}
    for metric, values in (report.get("observedMetrics") or {}).items():
        if metric != METRIC and not metric.startswith(f"{METRIC}_"):
            continue
        name = metric.removeprefix(METRIC).removeprefix("_") or None
        counted = values or {}
        records = counted.get("records")
        found[name] = SourceProgress(
            name=name,
            records=None if records is None else int(records),
            malformed=int(counted.get("malformed") or 0),
        )
    return found


def _sources(
    reports: list[dict[str, Any]],
    observed: Mapping[str | None, SourceProgress],
    uris: Mapping[str, str],
    source_ids: Sequence[str],
) -> tuple[SourceProgress, ...]:
    """Return each source as Spark reported it, with its name and its observed records where they can be matched.

    An observation that matches no single source, such as those of a self-join, follows without an id.
    """
    ids = list(source_ids) if len(source_ids) == len(reports) else [str(place) for place in range(len(reports))]
    traits = {
        source: traits_from_description(report.get("description"), _json_value(report.get("endOffset")))
        for source, report in zip(ids, reports, strict=True)
    }
    names: dict[str, str | None] = dict(match_names(traits, uris))
    names |= {source: source for source in ids if source in observed}
    if len(reports) == 1 and len(observed) == 1:
        names[ids[0]] = next(iter(observed))
    found = []
    for source, report in zip(ids, reports, strict=True):
        seen = observed.get(names.get(source)) if source in names else None
        records = seen.records if seen and seen.records is not None else int(report.get("numInputRows") or 0)
        found.append(
            SourceProgress(
                source,
                names.get(source),
                report.get("description"),
                records,
                seen.malformed if seen else None,
                lag_rows([report]),
            )
        )
    return (*found, *(seen for name, seen in observed.items() if name not in names.values()))


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
def listening(
    spark: SparkSession,
    on_batch: Callable[[ProgressRecord], None],
    uris: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[listener.QueryReports]:
    """Pass each batch of a query to a function, once; the query is named with ``follow`` when it has started.

    Spark calls the function from a thread of its own. ``uris`` are the sources of a job that has several, by name.
    """
    last_batch_id: int | None = None
    query: QueryWatermarks | None = None

    def on_start(started: StreamingQuery) -> None:
        nonlocal query
        query = QueryWatermarks(spark, started)

    def on_progress(report: dict[str, Any]) -> None:
        nonlocal last_batch_id
        if query is not None and len(report.get("sources") or ()) > 1:
            batch = progress_record(report, uris=uris, source_ids=query.source_ids(), watermarks=query.read())
        else:
            batch = progress_record(report, uris=uris)
        # An idle query reports its last batch id again every ten seconds, with no rows.
        if batch.batch_id == last_batch_id and batch.input_rows == 0:
            return
        last_batch_id = batch.batch_id
        on_batch(batch)

    with listener.listening(spark, on_progress, on_start) as reports:
        yield reports


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


def _json_value(value: Any) -> Any:
    """Return an offset, which Spark reports as text or as an object."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _kafka_offsets(value: Any) -> dict[str, dict[str, int]] | None:
    """Return offsets such as ``{"visits":{"0":12}}``; None for any other value."""
    value = _json_value(value)
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
