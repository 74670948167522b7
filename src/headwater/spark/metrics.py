"""Prometheus metrics of a running job, served over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import HeadwaterError, SetupProblem, UsageProblem
from headwater.views.page_summary import reach

DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
REACH_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
NOTHING_YET = ProgressRecord(batch_id=-1, at_ms=0)


class JobMetrics:
    """The metrics of one job, each with its name as a label; ``add`` is called after every batch."""

    def __init__(self, job: str, checkpoint: FileTree | None = None) -> None:
        self.registry = CollectorRegistry()
        self._job = job
        self._batches = self._counter("headwater_batches", "Micro-batches that this run has finished.")
        self._rows = self._counter("headwater_input_rows", "Rows that this run has read.")
        self._dropped = self._counter(
            "headwater_dropped_rows", "Rows dropped as late, as Spark counts them: after partial aggregation."
        )
        self._malformed = self._counter("headwater_malformed_records", "Records that could not be decoded.")
        self._duration = Histogram(
            "headwater_batch_duration_seconds",
            "How long a micro-batch took.",
            ["job"],
            registry=self.registry,
            buckets=DURATION_BUCKETS,
        ).labels(job)
        self._phases = Gauge(
            "headwater_batch_phase_seconds",
            "How long the parts of the last micro-batch took, as Spark names them.",
            ["job", "phase"],
            registry=self.registry,
        )
        self._last = self._gauge("headwater_last_batch_id", "The number of the last finished micro-batch.")
        self._last_at = self._gauge("headwater_last_batch_timestamp_seconds", "When the last micro-batch was planned.")
        self._input_rate = self._gauge("headwater_input_rows_per_second", "Rows that came in a second.")
        self._processed_rate = self._gauge(
            "headwater_processed_rows_per_second", "Rows a second at which the last micro-batch was worked on."
        )
        self.latest: ProgressRecord | None = None
        self.registry.register(_Latest(job, checkpoint, self))

    def add(self, record: ProgressRecord) -> None:
        self._batches.inc()
        self._rows.inc(record.input_rows)
        self._dropped.inc(record.dropped)
        self._malformed.inc(record.malformed)
        self._duration.observe(record.duration_ms / 1000)
        for phase, milliseconds in record.durations_ms.items():
            self._phases.labels(self._job, phase).set(milliseconds / 1000)
        self._last.set(record.batch_id)
        self._last_at.set(record.at_ms / 1000)
        self._input_rate.set(record.input_rate)
        self._processed_rate.set(record.processed_rate)
        self.latest = record

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(name, about, ["job"], registry=self.registry).labels(self._job)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, ["job"], registry=self.registry).labels(self._job)


class _Latest(Collector):
    """What is left out while it is not known, and what is worked out when somebody asks."""

    def __init__(self, job: str, checkpoint: FileTree | None, metrics: JobMetrics) -> None:
        self._job = job
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._reach: tuple[float, int | None] = (float("-inf"), None)
        self._lock = threading.Lock()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        record = self._metrics.latest or NOTHING_YET
        watermark_s = None if record.watermark_ms is None else record.watermark_ms / 1000
        lag_s = None if watermark_s is None else time.time() - watermark_s
        known: list[tuple[str, str, float | None]] = [
            ("headwater_watermark_timestamp_seconds", "The watermark of the last micro-batch.", watermark_s),
            ("headwater_watermark_lag_seconds", "How far the watermark is behind the clock.", lag_s),
            ("headwater_state_rows", "Rows in the state stores.", record.state_rows),
            ("headwater_state_memory_bytes", "Memory that the state stores use.", record.state_bytes),
            ("headwater_kafka_lag_records", "Records in Kafka that no batch has read.", record.lag_rows),
            ("headwater_rewindable_batches", "Batches that one can rewind to.", self._rewindable()),
        ]
        for name, about, value in known:
            family = GaugeMetricFamily(name, about, labels=["job"])
            if value is not None:
                family.add_metric([self._job], value)
            yield family

    def _rewindable(self) -> int | None:
        if self._checkpoint is None:
            return None
        with self._lock:
            asked_at, held = self._reach
            if time.monotonic() - asked_at >= REACH_SECONDS:
                try:
                    held = len(reach(History(self._checkpoint).batches()))
                except (HeadwaterError, OSError):  # files move under our eyes; the next scrape will tell
                    held = None
                self._reach = (time.monotonic(), held)
            return held


class MetricsServer:
    """Answers ``GET /metrics`` until it is left."""

    def __init__(self, metrics: JobMetrics, address: str) -> None:
        host, port = parse_address(address)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=metrics.registry)
        except OSError as error:
            raise SetupProblem(
                "port-in-use",
                f"metrics cannot be served on {host} port {port}",
                evidence={"reason": error.strerror or str(error)},
                remedy="choose another port with --metrics",
            ) from None
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def parse_address(text: str) -> tuple[str, int]:
    """``9400`` is on loopback; ``0.0.0.0:9400`` lets a Prometheus on another machine in."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageProblem("bad-port", f"{text!r} is no port", remedy="--metrics 9400, or --metrics 0.0.0.0:9400")
    return host or LOOPBACK, int(port)
