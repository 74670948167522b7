"""What Spark reports after each batch, as the few numbers that people watch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from headwater.spark.decoding import METRIC

EPOCH_START = "1970-01-01T00:00:00.000Z"
LISTENING_MS = 30_000


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
    """Hands every batch of the next query that starts to a function. Spark calls it from a thread of its own."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "Spark is running"
    ensure_callback_server_started(gateway)
    wrapped = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Ear(on_batch))
    queries = spark.streams._jsqm
    queries.addListener(wrapped)
    try:
        yield
    finally:
        with suppress(Py4JError, ConnectionError):  # Spark may be gone
            spark._jsc.sc().listenerBus().waitUntilEmpty(LISTENING_MS)
            queries.removeListener(wrapped)


class _Ear:
    """What the JVM calls, in place of PySpark's own: that asks for every number of a report by itself, and for each report looks
    through all jars for a class. With small batches this took a fifth of the JVM's time.
    """

    def __init__(self, on_batch: Callable[[BatchProgress], None]) -> None:
        self._on_batch = on_batch
        self._run_id: str | None = None
        self._last_batch_id: int | None = None

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802  Spark's name; it calls this within start()
        self._run_id = self._run_id or event.runId().toString()

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        progress = json.loads(event.progress().json())
        if progress["runId"] != self._run_id:  # another query's, perhaps of one that ended a while ago
            return
        batch = BatchProgress.from_spark(progress)
        # An idle query reports its last batch id again, every ten seconds, with nothing in it.
        if batch.batch_id == self._last_batch_id and batch.input_rows == 0:
            return
        self._last_batch_id = batch.batch_id
        self._on_batch(batch)

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        pass

    class Java:
        """The interface, as Py4J wants it named."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
