"""``headwater run``: run a job, with an optional live page and metrics."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import Conf, JobName, ModeName, Settings, SinkUri, SourceUri
from headwater.cli.output import StatusLine, note, note_from_signal_handler

if TYPE_CHECKING:
    from types import FrameType

    from headwater.checkpoint.record import ProgressRecord
    from headwater.jobs.job import Job
    from headwater.spark.ownership import Run

CHECKPOINTS = Path(".headwater/checkpoints")


@app.command(rich_help_panel=RUN)
def run(
    job: JobName,
    source: SourceUri = None,
    sink: SinkUri = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="CKPT", help="Checkpoint folder or URL; default: .headwater/checkpoints/ and the job name."
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
) -> None:
    """Run a job. Ctrl-C finishes the current batch and stops; a killed job resumes where it left off.

    Example:
      headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
    """
    from headwater.cli.job_options import parse_pairs, select_job

    chosen = select_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings)
    chosen = replace(chosen, dead_letters=dead_letters or chosen.dead_letters)
    spark_conf = {**chosen.conf, **parse_pairs(conf, "--conf")}
    location = _checkpoint_location(checkpoint, chosen.name)

    from headwater.spark.ownership import Run, check_run
    from headwater.spark.preflight import check_services

    requested = Run(chosen, job, location)
    check_run(requested)
    check_services(chosen, master, warn=note)
    stop = threading.Event()
    _stop_on_signals(stop)
    line = StatusLine(shared=chosen.writes.kind == "console")
    with _served(chosen, location, page=ui, metrics=metrics) as on_batch:
        line.show(f"{chosen.name}: starting Spark")
        try:
            _run(requested, spark_conf, master, stop, line, query, on_batch)
        finally:
            line.clear()


def _run(
    requested: Run,
    conf: dict[str, str],
    master: str,
    stop: threading.Event,
    line: StatusLine,
    query: str | None,
    on_batch: Callable[[ProgressRecord], None],
) -> None:
    from headwater.cli.job_options import jars_for, log_file
    from headwater.spark.failures import explained
    from headwater.spark.progress import Totals, progress_line
    from headwater.spark.runner import run_job
    from headwater.spark.session import start_session, stop_session

    job, totals = requested.job, Totals()

    def show_batch(batch: ProgressRecord) -> None:
        totals.add(batch)
        line.keep(progress_line(batch))
        on_batch(batch)

    def show_status(status: str) -> None:
        line.show(f"{job.name}: {status[:1].lower()}{status[1:]}")

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
            on_status = show_status if line.is_live else None
            run_job(spark, requested, stop=stop, on_batch=show_batch, on_status=on_status, warn=line.keep)
        line.keep(f"{job.name}: {'stopped' if stop.is_set() else 'no more data'}  {totals.line()}")
        if query:
            with explained("cannot run --query"):
                spark.sql(query).show(n=2**31 - 1, truncate=False)
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
    from headwater.cli.ui import find_dropped_records
    from headwater.jobs.endpoints import Kafka
    from headwater.kafka.options import Connection
    from headwater.web.server import PageServer, ServedCheckpoint

    name = job.name if Path(checkpoint).name == job.name else f"{job.name} ({Path(checkpoint).name})"
    connection = Connection(job.reads.servers, job.reads.options) if isinstance(job.reads, Kafka) else None
    served = ServedCheckpoint(name, lambda: open_checkpoint(checkpoint), connection)
    server = PageServer([served], find_records=find_dropped_records)
    server.start()
    note(f"page: {server.url}")


def _checkpoint_location(checkpoint: str | None, job: str) -> str:
    location = (checkpoint or str(CHECKPOINTS / job)).removeprefix("file://")
    return location if "://" in location else str(Path(location).absolute())


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
