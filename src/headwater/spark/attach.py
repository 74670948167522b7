"""Record the queries of a program that does not use Headwater otherwise.

A Java listener (``headwater.streaming``) writes the records and holds the leases, so a program whose batches are short is
not slowed down by calls into Python, and the same class serves programs in which no Python line can be added.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from headwater.alerts.rules import AlertConfig, load_config
from headwater.alerts.watching import AlertThread, StreamAlerts, alerts_of_query
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import parse_line
from headwater.checkpoint.runs import given_version
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.core.extras import naming_extras
from headwater.jars.own_jar import own_jar
from headwater.spark.deployment import program_digest
from headwater.spark.failures import SPARK_ERRORS, root_cause
from headwater.spark.internals import query_recorder
from headwater.spark.internals.query_recorder import QueryRecorder
from headwater.timemachine.keeping import RETRY_MS, Keeper, KeepPolicy

if TYPE_CHECKING:
    from headwater.spark.metrics import JobMetrics

LOGGER = logging.getLogger("headwater")
REPORT_SECONDS = 1.0


class Attachment:
    """The handle that ``attach`` returns. It can be ignored: recording ends with the session."""

    def __init__(self, recorder: QueryRecorder | None) -> None:
        self._recorder = recorder
        self._metrics: _AttachedMetrics | None = None
        self._keeping: _AttachedKeeping | None = None
        self._alerts: _AttachedAlerts | None = None
        self._watch: threading.Thread | None = None
        self._detaching = threading.Lock()

    @property
    def is_active(self) -> bool:
        """Whether queries are being recorded."""
        return self._recorder is not None and not self._recorder.has_ended

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus metrics are served, if they are."""
        return self._metrics.url if self._metrics else None

    def detach(self) -> None:
        """Stop recording. Queries keep running, but Headwater no longer sees that they do."""
        with self._detaching:
            recorder, self._recorder = self._recorder, None
            metrics, self._metrics = self._metrics, None
            keeping, self._keeping = self._keeping, None
            alerts, self._alerts = self._alerts, None
            if alerts is not None:
                alerts.stop()
            if keeping is not None:
                keeping.stop()
            if metrics is not None:
                metrics.stop()
            if recorder is not None:
                recorder.close()

    def detach_if_ended(self) -> None:
        """Stop the threads, and free the port of the metrics, if the session was stopped."""
        if self._recorder is not None and self._recorder.has_ended:
            self.detach()

    def _detach_with_session(self) -> None:
        """Detach when the session is stopped, from a thread."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._wait_for_end, name="headwater-attach-end", daemon=True)
            self._watch.start()

    def _wait_for_end(self) -> None:
        while self._recorder is not None:
            time.sleep(REPORT_SECONDS)
            self.detach_if_ended()

    def keep(self, policy: KeepPolicy) -> None:
        """Make restore points of all queries, unless they are made already."""
        if self._recorder is not None and self._keeping is None:
            self._keeping = _AttachedKeeping(self._recorder, policy)
            self._detach_with_session()

    def alert(self, config: AlertConfig) -> None:
        """Evaluate alert rules on all queries, unless that is done already."""
        if self._recorder is not None and self._alerts is None and config.rules:
            self._alerts = _AttachedAlerts(self._recorder, config)
            self._detach_with_session()

    def serve_metrics(self, address: str) -> None:
        """Serve Prometheus metrics of all queries, unless they are served already."""
        if self._recorder is not None and self._metrics is None:
            self._metrics = _AttachedMetrics(self._recorder, address)
            self._detach_with_session()


_attached: WeakKeyDictionary[Any, Attachment] = WeakKeyDictionary()


def attach(
    spark: SparkSession,
    *,
    metrics: int | str | None = None,
    keep_every: str | None = None,
    keep_for: str | None = None,
    alerts: str | None = None,
) -> Attachment:
    """Record every query of a session that has a checkpoint, also those that are running already.

    Under ``_headwater/`` in its checkpoint, each query gets the record and the lease that ``headwater run`` gives a job:
    ``log``, the live page and ``rewind`` then know its rows, its sink and whether it is running. ``metrics`` is a port of
    127.0.0.1, or ``HOST:PORT``, on which to serve Prometheus metrics. ``keep_every`` and ``keep_for``, such as ``"1h"`` and
    ``"7d"``, make restore points of all queries and drop them after a time. ``alerts`` is a file with alert rules, by
    default ``headwater.toml`` in the current folder, if it exists.

    Nothing here makes a query fail: if it cannot be recorded, a warning is logged. A second call for the same session has
    no effect.
    """
    if not hasattr(spark, "streams"):
        raise ValueError(f"headwater.attach takes a SparkSession, not {type(spark).__name__}")
    policy = KeepPolicy.parse(keep_every, keep_for)
    config = _alert_config(alerts)
    for earlier in list(_attached.values()):
        earlier.detach_if_ended()
    attachment = _attached.get(spark)
    if attachment is None or not attachment.is_active:
        attachment = Attachment(_recorder(spark))
        if attachment.is_active:
            _attached[spark] = attachment
    if policy is not None:
        attachment.keep(policy)
    attachment.alert(config)
    if metrics is not None:
        try:
            with naming_extras():
                attachment.serve_metrics(str(metrics))
        except UsageProblem as error:
            raise UsageProblem("bad-port", error.problem, remedy="metrics=9400, or metrics='0.0.0.0:9400'") from None
        except (HeadwaterError, ImportError, *SPARK_ERRORS) as error:
            _warn(f"headwater cannot serve metrics: {_reason(error)}")
    return attachment


def _alert_config(given: str | None) -> AlertConfig:
    """Return the alert rules of the given file; those of a file that was not named are left out if they are wrong."""
    try:
        return load_config(given)
    except UsageProblem as error:
        if given is not None:
            raise
        _warn(f"headwater evaluates no alert rules: {_reason(error)}", depth=4)
        return AlertConfig()


def _recorder(spark: SparkSession) -> QueryRecorder | None:
    if not hasattr(spark, "_jvm"):
        _warn(
            "headwater cannot attach to a Spark Connect session: start the server with the options that "
            "'headwater attach' prints",
            depth=4,
        )
        return None
    try:
        if query_recorder.probe(spark):
            return QueryRecorder(spark, own_jar(), given_version(), program_digest())
        _warn(f"headwater cannot attach to Spark {spark.version}: it has no support for this release", depth=4)
    except (*SPARK_ERRORS, OSError) as error:
        _warn(f"headwater cannot attach: {_reason(error)}", depth=4)
    return None


def _reason(error: BaseException) -> str:
    if isinstance(error, HeadwaterError):
        return f"{error.problem} ({error.remedy})" if error.remedy else error.problem
    return root_cause(error) if isinstance(error, SPARK_ERRORS) else str(error)


def _warn(text: str, depth: int = 3) -> None:
    """Warn at the line of the program that calls ``attach``, ``depth`` calls up from here."""
    warnings.warn(text, RuntimeWarning, stacklevel=depth)


def _files_at(checkpoint: str) -> FileTree | None:
    try:
        return open_files(checkpoint)
    except (HeadwaterError, ImportError):  # without a client for this store, one metric is missing
        return None


class _AttachedKeeping:
    """Restore points of the recorded queries. A thread asks for the checkpoints, so no batch waits for it."""

    def __init__(self, recorder: QueryRecorder, policy: KeepPolicy) -> None:
        self._recorder = recorder
        self._policy = policy
        self._keepers: dict[str, Keeper] = {}
        self._retry_at: dict[str, float] = {}
        """Checkpoints that could not be opened, with a warning, and when to try again."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headwater-attach-keep", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopped.wait(REPORT_SECONDS):
            try:
                checkpoints = self._recorder.checkpoints()
            except (*SPARK_ERRORS, ConnectionError):  # Spark has ended
                return
            for checkpoint in checkpoints:
                if self._retry_at.get(checkpoint, 0) <= time.monotonic():
                    self._keep(checkpoint)

    def _keep(self, checkpoint: str) -> None:
        try:
            self._keeper(checkpoint).after_batch()
            self._retry_at.pop(checkpoint, None)
        except (HeadwaterError, ImportError, OSError) as error:
            if checkpoint not in self._retry_at:
                LOGGER.warning("cannot make restore points of %s: %s", checkpoint, _reason(error))
            self._retry_at[checkpoint] = time.monotonic() + RETRY_MS / 1000

    def _keeper(self, checkpoint: str) -> Keeper:
        if checkpoint not in self._keepers:
            files = open_files(checkpoint)
            self._keepers[checkpoint] = Keeper(files, self._policy, open_sink=open_files, warn=LOGGER.warning)
        return self._keepers[checkpoint]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        for keeper in self._keepers.values():
            keeper.__exit__()


class _AttachedAlerts:
    """Alerts of the recorded queries. A query that has ended is evaluated once more: it may have failed.

    A query may start and fail between two evaluations, so the recorder also keeps those that have ended.
    """

    def __init__(self, recorder: QueryRecorder, config: AlertConfig) -> None:
        self._recorder = recorder
        self._config = config
        self._known: dict[str, StreamAlerts] = {}
        self._recorder.keep_ended()
        self._thread = AlertThread(self._streams, config.every_ms)

    def _streams(self) -> list[StreamAlerts]:
        try:
            running, ended = self._recorder.checkpoints(), self._recorder.take_ended()
        except (*SPARK_ERRORS, ConnectionError):  # Spark has ended
            running, ended = [], []
        for checkpoint in (*running, *ended):
            if checkpoint not in self._known and (files := _files_at(checkpoint)) is not None:
                self._known[checkpoint] = alerts_of_query(files, self._config, LOGGER.warning, LOGGER.warning)
        for checkpoint in self._known.keys() - set(running):
            self._known.pop(checkpoint).close()
        return list(self._known.values())

    def stop(self) -> None:
        self._thread.__exit__()


class _AttachedMetrics:
    """Metrics of the recorded queries, each labeled with the name of the query or else of its checkpoint."""

    def __init__(self, recorder: QueryRecorder, address: str) -> None:
        from headwater.spark.metrics import CombinedMetrics, JobMetrics, MetricsServer  # noqa: PLC0415

        self._metrics_of = JobMetrics
        self._by_checkpoint: dict[str, JobMetrics] = {}
        self._labels: set[str] = set()
        self._all: list[JobMetrics] = []
        self._server = MetricsServer(
            CombinedMetrics(self._all), address, remedy="pass another port, such as metrics=9401"
        )
        self.url = self._server.url
        self._recorder = recorder
        self._recorder.keep_reports()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._collect, name="headwater-attach-metrics", daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while not self._stopped.wait(REPORT_SECONDS):
            try:
                reports = self._recorder.take_reports()
            except (*SPARK_ERRORS, ConnectionError):  # Spark has ended
                return
            for report in map(json.loads, reports):
                record = parse_line(json.dumps(report["record"]))
                if record is not None:
                    self._job(report["job"], report["checkpoint"]).add(record)

    def _job(self, name: str, checkpoint: str) -> JobMetrics:
        if checkpoint not in self._by_checkpoint:
            label = f"{name} ({checkpoint})" if name in self._labels else name
            self._labels.add(label)
            self._by_checkpoint[checkpoint] = self._metrics_of(label, _files_at(checkpoint))
            self._all.append(self._by_checkpoint[checkpoint])
        return self._by_checkpoint[checkpoint]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._server.__exit__(None, None, None)
