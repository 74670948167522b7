"""``headwater run``: run a job, with an optional live page and metrics."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import Conf, JobName, ModeName, Settings, SinkUri, SourceUris
from headwater.cli.output import StatusLine, note, note_from_signal_handler, say
from headwater.core.errors import ServiceUnreachable, UsageProblem

if TYPE_CHECKING:
    from types import FrameType

    from headwater.checkpoint.record import ProgressRecord
    from headwater.jobs.job import Job
    from headwater.spark.ownership import Run


@app.command(rich_help_panel=RUN)
def run(
    job: JobName,
    source: SourceUris = None,
    sink: SinkUri = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="CKPT",
            help="Checkpoint folder or URL; default: .headwater/checkpoints/ and the job name. Not for a socket source.",
        ),
    ] = None,
    mode: ModeName = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TRIGGER",
            help='once, available-now, "10 seconds" or "real-time 5 seconds"; default: as soon as there is data.',
        ),
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    settings: Settings = None,
    conf: Conf = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Save late and malformed records to kafka://…, files:DIR or table:NAME."),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page while the job runs.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1, or on HOST:PORT."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="SQL query to run when the job ends, for example on a memory table."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL", help="With --query and a memory sink: run the query at this interval too, such as 5s."
        ),
    ] = None,
) -> None:
    """Run a job. Ctrl-C finishes the current batch and stops; a killed job resumes where it left off.

    A socket cannot be read again, so a job on a socket cannot resume: each start gets a checkpoint of its own, named
    by the job and the time.

    Examples:
      headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
      headwater run sliding-counts --query "SELECT * FROM sliding_counts" --every 5s
    """
    from headwater.cli.job_options import parse_pairs, select_job

    chosen = select_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings)
    chosen = replace(chosen, dead_letters=dead_letters or chosen.dead_letters)
    spark_conf = {**chosen.conf, **parse_pairs(conf, "--conf")}
    sql = _Sql(query, _interval(every, query, chosen))
    location = _checkpoint_location(checkpoint, chosen)

    from headwater.jobs.rules import has_socket
    from headwater.spark.ownership import Run, check_run
    from headwater.spark.preflight import check_services

    requested = Run(chosen, job, location)
    check_run(requested)
    check_services(chosen, master, warn=note)
    if has_socket(chosen):
        shown = os.path.relpath(location)
        note(f"{chosen.name}: a socket cannot be read again, so each run gets its own checkpoint: {shown}")
    stop = threading.Event()
    _stop_on_signals(stop)
    line = StatusLine(shared=chosen.writes.kind == "console")
    with _served(chosen, location, page=ui, metrics=metrics) as on_batch:
        line.show(f"{chosen.name}: starting Spark")
        try:
            _run(requested, spark_conf, master, stop, line, sql, on_batch)
        except ServiceUnreachable as error:
            if error.code == "socket-unreachable":
                _remove_unused(Path(location))
            raise
        finally:
            line.clear()


def _run(
    requested: Run,
    conf: dict[str, str],
    master: str,
    stop: threading.Event,
    line: StatusLine,
    sql: _Sql,
    on_batch: Callable[[ProgressRecord], None],
) -> None:
    from headwater.cli.job_options import log_file
    from headwater.spark.memory_tables import RepeatedQuery, sql_result
    from headwater.spark.progress import Totals, progress_line
    from headwater.spark.runner import run_job
    from headwater.spark.session import jars_for, start_session, stop_session

    job, totals = requested.job, Totals()
    last_batch: int | None = None

    def show_batch(batch: ProgressRecord) -> None:
        nonlocal last_batch
        last_batch = batch.batch_id
        totals.add(batch)
        line.keep(progress_line(batch))
        on_batch(batch)

    def show_status(status: str) -> None:
        line.show(f"{job.name}: {status[:1].lower()}{status[1:]}")

    def show_result(text: str) -> None:
        line.clear()
        say(f"{text}\n")

    try:
        spark = start_session(
            job.name, master=master, conf=conf, jars=jars_for(job, requested.checkpoint), log=log_file(job)
        )
    except KeyboardInterrupt:  # while PySpark starts, its own signal handler is installed
        stop.set()
        return
    _stop_on_signals(stop)
    try:
        if not stop.is_set():
            callbacks: dict[str, Any] = {"on_batch": show_batch, "warn": line.keep}
            if line.is_live:
                callbacks["on_status"] = show_status
            if sql.text and sql.seconds:
                callbacks["on_poll"] = RepeatedQuery(spark, job, sql.text, sql.seconds, show_result).poll
            run_job(spark, requested, stop=stop, **callbacks)
        line.keep(f"{job.name}: {'stopped' if stop.is_set() else 'no more data'}  {totals.line()}")
        if sql.text:
            header = f"after batch {last_batch}:\n" if sql.seconds and last_batch is not None else ""
            show_result(header + sql_result(spark, sql.text))
    finally:
        stop_session(spark)


@contextmanager
def _served(
    job: Job, checkpoint: str, *, page: bool, metrics: str | None
) -> Iterator[Callable[[ProgressRecord], None]]:
    """Serve the page and the metrics while the block runs. Yield a function to call after each batch."""
    from headwater.checkpoint.locate import open_files

    if page:
        _serve_page(job, checkpoint)
    if metrics is None:
        yield lambda _: None
        return
    from headwater.spark.metrics import JobMetrics, MetricsServer

    job_metrics = JobMetrics(job.name, open_files(checkpoint))
    with MetricsServer(job_metrics, metrics) as server:
        note(f"metrics: {server.url}")
        yield job_metrics.add


def _serve_page(job: Job, checkpoint: str) -> None:
    """Serve the page from a thread of this process, so that it ends whenever the job does."""
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.ui import find_dropped_records, find_view_rows
    from headwater.jobs.endpoints import Kafka
    from headwater.kafka.options import Connection
    from headwater.web.server import PageServer, ServedCheckpoint

    name = job.name if Path(checkpoint).name == job.name else f"{job.name} ({Path(checkpoint).name})"
    brokers = [Connection(one.servers, one.options) for one in job.sources.values() if isinstance(one, Kafka)]
    connection = brokers[0] if brokers else None
    served = ServedCheckpoint(name, lambda: open_checkpoint(checkpoint), connection)
    server = PageServer([served], find_records=find_dropped_records, find_view_rows=find_view_rows)
    server.start()
    note(f"page: {server.url}")


@dataclass(frozen=True)
class _Sql:
    """The SQL query of ``--query``, to run when the job ends and, if ``seconds`` is set, at this interval."""

    text: str | None
    seconds: float | None


def _interval(text: str | None, query: str | None, job: Job) -> float | None:
    """Return the seconds of ``--every``. Raise unless there is a query to repeat, on a table in this process."""
    from headwater.core.times import seconds_from_text
    from headwater.jobs.endpoints import Memory

    if text is None:
        return None
    if query is None or not isinstance(job.writes, Memory):
        raise UsageProblem(
            "bad-option",
            f"--every needs {'--query' if query is None else 'a memory sink'}: it repeats a SQL query on a memory table",
            evidence={"sink": job.writes.kind},
            remedy='--sink memory:counts --query "SELECT * FROM counts" --every 5s',
        )
    try:
        seconds = seconds_from_text(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageProblem(
            "bad-option",
            "--every takes a duration greater than zero",
            evidence={"found": text},
            remedy="--every 5s, 500ms, 2m or 1h",
        )
    return seconds


def _checkpoint_location(checkpoint: str | None, job: Job) -> str:
    """Return the absolute path or URL of the checkpoint: the given one, the job's own, or a new one for a socket."""
    from headwater.checkpoint.locate import CHECKPOINTS, new_start
    from headwater.jobs.rules import has_socket, refuse_socket_checkpoint

    if has_socket(job):
        if checkpoint:
            refuse_socket_checkpoint(job, checkpoint)
        return str(Path(new_start(job.name, datetime.now(UTC))).absolute())
    location = (checkpoint or f"{CHECKPOINTS}/{job.name}").removeprefix("file://")
    if "://" not in location:
        return str(Path(location).absolute())
    # Spark knows S3 as s3a.
    return re.sub("^s3://", "s3a://", location)


def _remove_unused(checkpoint: Path) -> None:
    """Remove the checkpoint of a start on a socket that committed no batch: no other start can resume it."""
    if not any(checkpoint.glob("commits/[0-9]*")):
        shutil.rmtree(checkpoint, ignore_errors=True)


def _stop_on_signals(stop: threading.Event) -> None:
    def request_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  Python passes both
        if stop.is_set() and number == signal.SIGINT:
            _abandon_batch()
        if not stop.is_set():
            stop.set()
            note_from_signal_handler("stopping after the current batch (press Ctrl-C again to stop immediately)")

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)


def _abandon_batch() -> NoReturn:
    """End the process without waiting for the current batch, on a second Ctrl-C."""
    from headwater.spark.internals.gateway import kill_jvm

    kill_jvm()
    note_from_signal_handler("stopped immediately; the current batch will run again at the next start")
    os._exit(130)
