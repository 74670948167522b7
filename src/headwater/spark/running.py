"""A started job: Spark's query together with the lease, the record and the dead letters of its checkpoint."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from socket import create_connection as connect
from types import TracebackType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.record import ProgressRecord
from headwater.checkpoint.stop_request import StopRequest, StopRequests
from headwater.core.errors import HeadwaterError, InternalError, JobFailed, ServiceUnreachable
from headwater.jobs.endpoints import Socket
from headwater.jobs.job import Job
from headwater.spark.failures import is_interruption, resume_failure, root_cause
from headwater.spark.internals.gateway import is_stopped
from headwater.spark.internals.listener import QueryReports
from headwater.spark.internals.query_end import stop_after_batch
from headwater.spark.ownership import Run
from headwater.spark.progress import Totals

if TYPE_CHECKING:
    from headwater.api import Checkpoint

POLL_SECONDS = 0.2
LAST_REPORT_SECONDS = 30.0
EXIT_SECONDS = 30.0
CONNECT_SECONDS = 2.0


class BatchCounts:
    """The last batch of a run and the totals over all of its batches."""

    def __init__(self) -> None:
        self.last: ProgressRecord | None = None
        self.totals = Totals()

    def add(self, batch: ProgressRecord) -> None:
        self.totals.add(batch)
        self.last = batch


class RunningJob:
    """A job that ``Job.start`` has started. As a context manager, it stops the job at the end of the block.

    The checkpoint's lease is released, and dead letters are saved, when the query ends: by itself, by ``stop``, by a
    failure, or when the interpreter exits. ``query`` is Spark's own ``StreamingQuery``, ``spark`` its session.
    """

    def __init__(
        self,
        spark: SparkSession,
        run: Run,
        query: StreamingQuery,
        counts: BatchCounts,
        reports: QueryReports,
        requests: StopRequests,
        resources: ExitStack,
    ) -> None:
        self.spark = spark
        self.query = query
        self._run = run
        self._counts = counts
        self._reports = reports
        self._requests = requests
        self._request: StopRequest | None = None
        self._resources = resources
        self._failure: HeadwaterError | None = None
        self._stop = threading.Event()
        self._abandon = threading.Event()
        self._ended = threading.Event()
        _active.add(self)
        # The thread outlives a handle that the program has dropped, as the query does.
        threading.Thread(target=self._follow, name=f"headwater-{self.job.name}", daemon=True).start()

    def __repr__(self) -> str:
        state = "running" if self.is_active else "failed" if self.failure else "ended"
        return f"RunningJob({self.job.name!r}, {state}, checkpoint={self._run.checkpoint!r})"

    @property
    def job(self) -> Job:
        """The job, with the trigger that it was started with."""
        return self._run.job

    @property
    def is_active(self) -> bool:
        """Whether the job is running. False means that its query has ended and the checkpoint is free."""
        return not self._ended.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` or ``headwater stop`` was called."""
        return self._stop.is_set()

    @property
    def stop_request(self) -> StopRequest | None:
        """The request by which another process stops the job; None if there is none."""
        return self._request

    @property
    def failure(self) -> HeadwaterError | None:
        """Why the job failed; None while it runs, and if it did not fail."""
        return self._failure

    @property
    def progress(self) -> ProgressRecord | None:
        """The last batch that has finished: rows, watermark, state, dropped and malformed records; None before that."""
        return self._counts.last

    @property
    def totals(self) -> Totals:
        """The number of batches, rows, dropped and malformed records since the start."""
        return self._counts.totals

    @property
    def status(self) -> str:
        """What Spark is doing, such as ``processing new data``; empty when the job has ended."""
        try:
            message = self.query.status["message"] if self.is_active else ""
        except (Py4JError, ConnectionError):
            return ""
        return f"{message[:1].lower()}{message[1:]}"

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, which can be read while the job runs."""
        from headwater.api import Checkpoint  # noqa: PLC0415  built on this package

        return Checkpoint(self._run.checkpoint)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; raise its failure if it failed. Return False if it is still running then.

        ``timeout`` is in seconds; None waits without limit.
        """
        if not self._ended.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, *, wait: bool = True, now: bool = False) -> None:
        """Finish the current batch, then end the job. With ``wait=False``, return immediately.

        With ``now``, interrupt the current batch, which runs again at the next start. A failure is not raised here: see
        ``failure`` and ``wait``.
        """
        if now:
            self._abandon.set()
        self._stop.set()
        if wait:
            self._ended.wait()

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the job. Raise its failure, unless an exception is already leaving the block."""
        self.stop()
        if error is None and self._failure is not None:
            raise self._failure

    def _follow(self) -> None:
        """Wait for the end of the query, then release everything that the run holds."""
        try:
            with self._resources:
                self._wait_for_query()
        except HeadwaterError as error:
            self._failure = error
        except Exception as error:
            self._failure = InternalError(error)
            self._failure.__cause__ = error
        finally:
            _active.discard(self)
            self._ended.set()

    def _wait_for_query(self) -> None:
        with explained_death(self.job):
            try:
                while not self.query.awaitTermination(POLL_SECONDS):
                    self._obey_request()
                    if self._stop.is_set():
                        stop_after_batch(self.query, self._is_abandoned)
                        break
            except StreamingQueryException:
                pass  # raised below, with its explanation
            self._wait_for_last_report()
            _raise_if_failed(self.query, self._run, interrupted=self._abandon.is_set())

    def _obey_request(self) -> None:
        request = self._requests.poll()
        if request is not None:
            self._request = request
            self.stop(wait=False, now=request.now)

    def _is_abandoned(self) -> bool:
        self._obey_request()
        return self._abandon.is_set()

    def _wait_for_last_report(self) -> None:
        deadline = time.monotonic() + LAST_REPORT_SECONDS
        while not self._reports.wait_for_last(POLL_SECONDS):
            if time.monotonic() >= deadline or is_stopped(self.spark):  # a stopped session sends no more reports
                return


@contextmanager
def explained_death(job: Job) -> Iterator[None]:
    """Turn the loss of the connection to Spark inside the block into a failure of the job."""
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, ConnectionError) as error:
        raise JobFailed(
            "spark-died",
            f"the Spark process died while it was running {job.name}",
            evidence={"likely": "it was killed, or ran out of memory; see its log"},
            remedy="run the job again; it resumes where it left off",
        ) from error


def _raise_if_failed(query: StreamingQuery, run: Run, *, interrupted: bool) -> None:
    error, job = query.exception(), run.job
    if error is None or (interrupted and is_interruption(error)):
        return
    socket = next((source for source in job.sources.values() if isinstance(source, Socket)), None)
    if socket is not None and "refused" in root_cause(error).lower() and _refuses(socket):
        raise ServiceUnreachable(
            "socket-unreachable",
            f"nothing is listening at {socket.host}:{socket.port}",
            remedy=f"nc -lk {socket.port}   (in another terminal; then type lines)",
        )
    raise resume_failure(job.name, error, job=run.reference or job.name, checkpoint=run.checkpoint) from error


def _refuses(source: Socket) -> bool:
    """Return whether a server refuses connections: the refused one may have been that of another service."""
    try:
        connect((source.host, source.port), timeout=CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


_active: set[RunningJob] = set()


@atexit.register
def _stop_at_exit() -> None:
    """Let every running job finish its current batch, for a limited time: Spark ends with this process."""
    waited_for = [running for running in list(_active) if not running.is_stopping]
    for running in waited_for:
        running.stop(wait=False)
    deadline = time.monotonic() + EXIT_SECONDS
    for running in waited_for:
        running._ended.wait(max(0.0, deadline - time.monotonic()))
