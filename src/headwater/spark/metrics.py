"""Prometheus metrics of running jobs, served over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.checkpoint.failures import read_failures
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import HeadwaterError, SetupProblem, UsageProblem
from headwater.guards.report import SourceReport
from headwater.views.page_summary import rewindable_batches

DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
REACH_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
NO_BATCH = ProgressRecord(batch_id=-1, at_ms=0)


class JobMetrics:
    """The metrics of one job, labeled with its name. Call ``add`` after each batch."""

    def __init__(
        self, job: str, checkpoint: FileTree | None = None, sources: Callable[[], SourceReport | None] = lambda: None
    ) -> None:
        self.registry = CollectorRegistry()
        self._job = job
        self._batches = self._counter("headwater_batches", "Micro-batches finished by this run.")
        self._rows = self._counter("headwater_input_rows", "Rows read by this run.")
        self._dropped = self._counter(
            "headwater_dropped_rows", "Rows dropped as late, as Spark counts them: after partial aggregation."
        )
        self._malformed = self._counter("headwater_malformed_records", "Records that could not be decoded.")
        self._duration = Histogram(
            "headwater_batch_duration_seconds",
            "Duration of a micro-batch.",
            ["job"],
            registry=self.registry,
            buckets=DURATION_BUCKETS,
        ).labels(job)
        self._phases = Gauge(
            "headwater_batch_phase_seconds",
            "Duration of each phase of the last micro-batch, under Spark's name for the phase.",
            ["job", "phase"],
            registry=self.registry,
        )
        self._last = self._gauge("headwater_last_batch_id", "ID of the last finished micro-batch.")
        self._last_at = self._gauge(
            "headwater_last_batch_timestamp_seconds", "Time at which the last micro-batch was planned."
        )
        self._input_rate = self._gauge(
            "headwater_input_rows_per_second", "Rate at which rows arrived, in the last micro-batch."
        )
        self._processed_rate = self._gauge(
            "headwater_processed_rows_per_second", "Rate at which the last micro-batch was processed."
        )
        self.latest: ProgressRecord | None = None
        self.registry.register(_Latest(job, checkpoint, self))
        self.registry.register(_Sources(job, sources))

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
    """Metrics that are omitted while their value is unknown, or that are computed at each scrape."""

    def __init__(self, job: str, checkpoint: FileTree | None, metrics: JobMetrics) -> None:
        self._job = job
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._reach: tuple[float, int | None] = (float("-inf"), None)
        self._lock = threading.Lock()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        record = self._metrics.latest or NO_BATCH
        watermark_s = None if record.watermark_ms is None else record.watermark_ms / 1000
        lag_s = None if watermark_s is None else time.time() - watermark_s
        known: list[tuple[str, str, float | None]] = [
            ("headwater_watermark_timestamp_seconds", "The watermark of the last micro-batch.", watermark_s),
            ("headwater_watermark_lag_seconds", "How far the watermark lags behind the wall clock.", lag_s),
            ("headwater_state_rows", "Rows in the state stores.", record.state_rows),
            ("headwater_state_memory_bytes", "Memory used by the state stores.", record.state_bytes),
            ("headwater_kafka_lag_records", "Records in Kafka that no batch has read yet.", record.lag_rows),
            ("headwater_rewindable_batches", "Batches that the checkpoint can be rewound to.", self._rewindable()),
        ]
        for name, about, value in known:
            family = GaugeMetricFamily(name, about, labels=["job"])
            if value is not None:
                family.add_metric([self._job], value)
            yield family
        failures = CounterMetricFamily(
            "headwater_failures", "Failures of the job that its checkpoint has recorded.", labels=["job"]
        )
        if self._checkpoint is not None:
            recorded = read_failures(self._checkpoint)
            failures.add_metric([self._job], recorded[-1].number if recorded else 0)
        yield failures

    def _rewindable(self) -> int | None:
        if self._checkpoint is None:
            return None
        with self._lock:
            computed_at, count = self._reach
            if time.monotonic() - computed_at >= REACH_SECONDS:
                try:
                    count = len(rewindable_batches(History(self._checkpoint).batches()))
                except (HeadwaterError, OSError):  # the running job moves files; the next scrape reads them again
                    count = None
                self._reach = (time.monotonic(), count)
            return count


class _Sources(Collector):
    """The last check of the sources; no samples before it is done."""

    def __init__(self, job: str, report: Callable[[], SourceReport | None]) -> None:
        self._job = job
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        report = self._report() or SourceReport()
        left = GaugeMetricFamily(
            "headwater_kafka_retention_remaining_seconds",
            "Time until retention removes records before the stream has read them, at its present speed.",
            labels=["job", "topic"],
        )
        for topic, milliseconds in report.overtaken_in_ms.items():
            left.add_metric([self._job, topic], milliseconds / 1000)
        yield left
        unread = GaugeMetricFamily(
            "headwater_kafka_unread_records",
            "Records in Kafka that no batch has read, when last checked.",
            labels=["job"],
        )
        if report.unread is not None:
            unread.add_metric([self._job], report.unread)
        yield unread
        files = GaugeMetricFamily(
            "headwater_source_files", "Input files that vanished, changed or are too old.", labels=["job", "state"]
        )
        for state, number in report.files.items():
            files.add_metric([self._job, state], number)
        yield files
        findings = GaugeMetricFamily(
            "headwater_source_findings", "Findings about the sources, as of fsck --sources.", labels=["job", "severity"]
        )
        if report.checked_at_ms:
            for severity in ("error", "warning"):
                number = sum(finding.severity == severity for finding in report.findings)
                findings.add_metric([self._job, severity], number)
        yield findings


class CombinedMetrics(Collector):
    """The metrics of several jobs under common names, distinguished by the label ``job``."""

    def __init__(self, jobs: Sequence[JobMetrics]) -> None:
        self._jobs = jobs
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Describe nothing in advance, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for job in self._jobs:
            for family in job.registry.collect():
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                families[family.name].samples += family.samples
        yield from families.values()


class MetricsServer:
    """An HTTP server for ``GET /metrics`` that runs until its ``with`` block ends."""

    def __init__(
        self,
        metrics: JobMetrics | CombinedMetrics,
        address: str,
        *,
        remedy: str = "choose another port with --metrics",
    ) -> None:
        host, port = parse_address(address)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=metrics.registry)
        except OSError as error:
            raise SetupProblem(
                "port-in-use",
                f"cannot serve metrics on {host} port {port}",
                evidence={"reason": error.strerror or str(error)},
                remedy=remedy,
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
    """Parse ``9400``, which means loopback, or ``0.0.0.0:9400``, which other machines can reach."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageProblem(
            "bad-port", f"{text!r} is not a valid port", remedy="--metrics 9400, or --metrics 0.0.0.0:9400"
        )
    return host or LOOPBACK, int(port)
