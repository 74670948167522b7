"""``headwater run``: run one or more jobs, with an optional live page and metrics."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import Conf, ModeName, Settings, SinkUri, SourceUris, job_names
from headwater.cli.output import StatusLine, note, note_from_signal_handler, say
from headwater.cli.supervision import OnBatch, SupervisedJob, Supervision
from headwater.core.errors import HeadwaterError, UsageProblem

if TYPE_CHECKING:
    from types import FrameType

    from headwater.jobs.job import Job
    from headwater.spark.ownership import Run
    from headwater.timemachine.keeping import KeepPolicy
    from headwater.web.server import ServedCheckpoint


@app.command(rich_help_panel=RUN)
def run(
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...",
            help="Jobs: gallery names, module:NAME or path/to/file.py:NAME.",
            autocompletion=job_names,
        ),
    ],
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
        typer.Option(
            metavar="URI", help="Save late and malformed records to kafka://…, files:DIR, table:NAME or delta:PATH."
        ),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page while the job runs.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1, or on HOST:PORT."),
    ] = None,
    keep_every: Annotated[
        str | None,
        typer.Option(metavar="INTERVAL", help="Make a restore point at this interval, after a batch: 30m, 1h or 1d."),
    ] = None,
    keep_for: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Drop restore points of --keep-every that are older: 7d. Default: never."
        ),
    ] = None,
    fail_together: Annotated[
        bool, typer.Option("--fail-together", help="If one of several jobs fails, stop the others too.")
    ] = False,
    accept_change: Annotated[
        bool,
        typer.Option(
            "--accept-change", help="Run although the code gives the state of the checkpoint another meaning."
        ),
    ] = False,
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
    """Run a job, or several in one process. Ctrl-C finishes the current batch and stops; a killed job resumes where it left off.

    Several jobs share a Spark session, and each has a checkpoint of its own. If one fails, the others continue. Options
    that belong to a single job (--source, --sink, --mode, --set, --checkpoint, --dead-letters, --every) are refused.

    A socket cannot be read again, so a job on a socket cannot resume: each run gets its own checkpoint, named by the
    job and the time.

    Examples:
      headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
      headwater run sliding-counts --query "SELECT * FROM sliding_counts" --every 5s
      headwater run jobs.py:VISITS jobs.py:ORDERS --trigger "10 seconds" --keep-every 1h --keep-for 7d
    """
    own = {"--source": source, "--sink": sink, "--mode": mode, "--set": settings, "--checkpoint": checkpoint}
    own |= {"--dead-letters": dead_letters, "--every": every}
    if len(jobs) > 1:
        _refuse_options_of_one_job(jobs, [option for option, given in own.items() if given])

    from headwater.cli.job_options import parse_pairs, select_job

    shared = parse_pairs(conf, "--conf")
    chosen = [select_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings) for job in jobs]
    chosen = [
        replace(job, dead_letters=dead_letters or job.dead_letters, conf={**job.conf, **shared}) for job in chosen
    ]
    sql = _Sql(query, _interval(every, query, chosen[0]))
    keep = _keep_policy(keep_every, keep_for)

    from headwater.spark.ownership import Run, check_run, checkpoint_location
    from headwater.spark.preflight import check_services
    from headwater.spark.together import refuse_shared

    runs = [
        Run(one, name, checkpoint_location(checkpoint, one), accept_change)
        for one, name in zip(chosen, jobs, strict=True)
    ]
    refuse_shared(runs)
    for one in runs:
        check_run(one)
    for one in runs:
        check_services(one.job, master, warn=note)
        _note_socket(one)
    stop = threading.Event()
    _stop_on_signals(stop)
    line = StatusLine(shared=any(one.job.writes.kind == "console" for one in runs))
    with _served(runs, page=ui, metrics=metrics) as on_batch:
        supervised = [SupervisedJob(one, each) for one, each in zip(runs, on_batch, strict=True)]
        supervision = Supervision(supervised, stop, line, fail_together=fail_together)
        line.show(f"{', '.join(one.name for one in chosen)}: starting Spark")
        try:
            _run(supervision, runs, shared, master, stop, line, sql, keep)
        finally:
            line.clear()
            _remove_unused(supervised)
    if supervision.failures:
        _raise(supervision.failures, is_shown=len(jobs) > 1)


def _raise(failures: Sequence[HeadwaterError], *, is_shown: bool) -> NoReturn:
    """End the command with a failure, unless it has already been shown. ``--debug`` shows all of them."""
    if not is_shown:
        raise failures[0]
    if "--debug" in sys.argv:
        raise ExceptionGroup("jobs failed", failures)
    raise typer.Exit(failures[0].exit_status)


def _refuse_options_of_one_job(jobs: Sequence[str], given: Sequence[str]) -> None:
    if given:
        raise UsageProblem(
            "bad-option",
            f"{given[0]} belongs to a single job, and several are named",
            evidence={"options": ", ".join(given)} if len(given) > 1 else None,
            remedy=f"set it in the job's definition, or run the job alone: headwater run {jobs[0]} {given[0]} …",
        )


def _note_socket(run: Run) -> None:
    from headwater.jobs.rules import has_socket

    if has_socket(run.job):
        shown = os.path.relpath(run.checkpoint)
        note(f"{run.job.name}: a socket cannot be read again, so each run gets its own checkpoint: {shown}")


def _run(
    supervision: Supervision,
    runs: Sequence[Run],
    shared: dict[str, str],
    master: str,
    stop: threading.Event,
    line: StatusLine,
    sql: _Sql,
    keep: KeepPolicy | None,
) -> None:
    """Start Spark, run the jobs on it, and show the result of ``--query``."""
    from headwater.spark.job_session import log_file
    from headwater.spark.memory_tables import sql_result
    from headwater.spark.runner import start_job
    from headwater.spark.session import jars_for, start_session, stop_session
    from headwater.spark.together import keep_settings_apart, session_conf

    jobs = [run.job for run in runs]
    try:
        spark = start_session(
            ", ".join(job.name for job in jobs),
            master=master,
            conf=session_conf(runs),
            jars=sorted({name for run in runs for name in jars_for(run.job, run.checkpoint)}),
            log=log_file(jobs),
        )
    except KeyboardInterrupt:  # while PySpark starts, its own signal handler is installed
        stop.set()
        return

    def show_result(text: str) -> None:
        line.clear()
        say(f"{text}\n")

    try:
        if len(runs) > 1:
            keep_settings_apart(spark, runs, shared)
        supervision.run(partial(start_job, spark, keep=keep), _repeated(spark, jobs[0], sql, show_result))
        if sql.text and len(supervision.failures) < len(runs):
            last = supervision.jobs[0].last_batch_id
            header = f"after batch {last}:\n" if sql.seconds and last is not None else ""
            show_result(header + sql_result(spark, sql.text))
    finally:
        stop_session(spark)


def _repeated(spark: Any, job: Job, sql: _Sql, show: Callable[[str], None]) -> Callable[[SupervisedJob], None] | None:
    """Return a function that repeats the query of ``--every``, if there is one."""
    if not sql.text or not sql.seconds:
        return None
    from headwater.spark.memory_tables import RepeatedQuery
    from headwater.spark.running import explained_death

    repeated = RepeatedQuery(spark, job, sql.text, sql.seconds, show)

    def poll(supervised: SupervisedJob) -> None:
        if supervised.handle:
            with explained_death(job):
                repeated.poll(supervised.handle.query)

    return poll


@contextmanager
def _served(runs: Sequence[Run], *, page: bool, metrics: str | None) -> Iterator[list[OnBatch]]:
    """Serve the page and the metrics while the block runs. Yield a function for each job to call after its batches."""
    from headwater.checkpoint.locate import open_files

    if page:
        _serve_page(runs)
    if metrics is None:
        yield [lambda _: None for _ in runs]
        return
    from headwater.spark.metrics import CombinedMetrics, JobMetrics, MetricsServer

    each = [JobMetrics(run.job.name, open_files(run.checkpoint)) for run in runs]
    with MetricsServer(CombinedMetrics(each), metrics) as server:
        note(f"metrics: {server.url}")
        yield [one.add for one in each]


def _serve_page(runs: Sequence[Run]) -> None:
    """Serve the page from a thread of this process, so that it ends whenever the jobs do."""
    from headwater.cli.ui import find_dropped_records, find_view_rows
    from headwater.web.server import PageServer

    served = [_served_checkpoint(run) for run in runs]
    server = PageServer(served, find_records=find_dropped_records, find_view_rows=find_view_rows)
    server.start()
    note(f"page: {server.url}")


def _served_checkpoint(run: Run) -> ServedCheckpoint:
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.jobs.endpoints import Kafka
    from headwater.kafka.options import Connection
    from headwater.web.server import ServedCheckpoint

    job, folder = run.job, Path(run.checkpoint).name
    name = job.name if folder == job.name else f"{job.name} ({folder})"
    brokers = [Connection(one.servers, one.options) for one in job.sources.values() if isinstance(one, Kafka)]
    return ServedCheckpoint(name, lambda: open_checkpoint(run.checkpoint), brokers[0] if brokers else None)


def _keep_policy(every: str | None, keep_for: str | None) -> KeepPolicy | None:
    if every is None and keep_for is None:
        return None
    from headwater.timemachine.keeping import KeepPolicy

    return KeepPolicy.parse(every, keep_for)


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


def _remove_unused(jobs: Sequence[SupervisedJob]) -> None:
    """Remove the checkpoint of a start on a socket that committed no batch: no other start can resume it."""
    for job in jobs:
        checkpoint = Path(job.run.checkpoint)
        if job.failure and job.failure.code == "socket-unreachable" and not any(checkpoint.glob("commits/[0-9]*")):
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
