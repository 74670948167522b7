"""``headwater run``: run one or more jobs, with an optional live page and metrics."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import Conf, ModeName, Settings, SinkUri, SourceUris, job_names
from headwater.cli.output import say
from headwater.cli.run_followers import check_accompaniment
from headwater.cli.run_log import TextLog, reported_errors, run_log
from headwater.cli.run_query import RunQuery, parse_query, repeated
from headwater.cli.supervision import SupervisedJob, Supervision
from headwater.core.errors import HeadwaterError, UsageProblem

if TYPE_CHECKING:
    from types import FrameType

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
            help="Checkpoint folder, URL or name; default: .headwater/checkpoints/ and the job name. Not for a socket source.",
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
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="latency|throughput",
            help="Settings for small batches, or for large ones; default: the size of the batches decides.",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Save late and malformed records to kafka://…, files:DIR, table:NAME, delta:PATH or iceberg:TABLE.",
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
    commit_group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Commit the offsets of each committed batch to this Kafka consumer group, so that lag tools show the stream.",
        ),
    ] = None,
    otel: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send an OpenTelemetry span for each batch to this OTLP/HTTP collector."),
    ] = None,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="Progress lines, or one JSON object per line.")
    ] = "text",
    fail_together: Annotated[
        bool, typer.Option("--fail-together", help="If one of several jobs fails, stop the others too.")
    ] = False,
    accept_change: Annotated[
        bool,
        typer.Option("--accept-change", help="Run even if the code changes the meaning of the checkpoint's state."),
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
    that belong to a single job (--source, --sink, --mode, --set, --checkpoint, --dead-letters, --commit-group, --every)
    are refused with several jobs.

    A socket cannot be read again, so a job on a socket cannot resume: each run gets its own checkpoint, named after
    the job and the time.

    Examples:
      headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
      headwater run sliding-counts --query "SELECT * FROM sliding_counts" --every 5s
      headwater run jobs.py:VISITS jobs.py:ORDERS --trigger "10 seconds" --keep-every 1h --keep-for 7d
    """
    log = run_log(log_format, prefixed=len(jobs) > 1)
    with reported_errors(log):
        own = {"--source": source, "--sink": sink, "--mode": mode, "--set": settings, "--checkpoint": checkpoint}
        own |= {"--dead-letters": dead_letters, "--every": every, "--commit-group": commit_group}
        if len(jobs) > 1:
            _refuse_options_of_one_job(jobs, [option for option, given in own.items() if given])

        from headwater.cli.job_options import parse_pairs, select_job
        from headwater.jobs.profiles import profile_settings

        shared = parse_pairs(conf, "--conf")
        chosen = [
            select_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings) for job in jobs
        ]
        chosen = [
            replace(
                job,
                dead_letters=dead_letters or job.dead_letters,
                conf={**job.conf, **profile_settings(profile), **shared},
            )
            for job in chosen
        ]
        sql = parse_query(query, every, chosen[0])
        keep = _keep_policy(keep_every, keep_for)
        accompaniment = check_accompaniment(chosen, metrics=metrics, commit_group=commit_group, otel=otel)

        from headwater.spark.ownership import Run, checkpoint_location

        runs = [
            Run(one, name, checkpoint_location(checkpoint, one), accept_change)
            for one, name in zip(chosen, jobs, strict=True)
        ]
        _check(runs, master, log)
        if any(one.job.writes.kind == "console" for one in runs):
            log.share_terminal()
        stop = threading.Event()
        _stop_on_signals(stop, log)
        if ui:
            _serve_page(runs, log)
        with accompaniment.followers_of(runs, log) as followers:
            supervised = [SupervisedJob(one, each) for one, each in zip(runs, followers, strict=True)]
            supervision = Supervision(supervised, stop, log, fail_together=fail_together)
            log.show(f"{', '.join(one.name for one in chosen)}: starting Spark")
            try:
                _run(supervision, runs, shared, master, stop, log, sql, keep)
            finally:
                log.clear()
                _remove_unused(supervised)
        if supervision.failures:
            _raise(supervision.failures, is_shown=len(jobs) > 1)


def _check(runs: Sequence[Run], master: str, log: TextLog) -> None:
    """Refuse runs for every reason that can be found before Spark starts."""
    from headwater.spark.ownership import check_run
    from headwater.spark.preflight import check_services
    from headwater.spark.together import refuse_shared

    refuse_shared(runs)
    for one in runs:
        check_run(one)
    for one in runs:
        check_services(one.job, master, warn=log.warning)
        _note_socket(one, log)


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


def _note_socket(run: Run, log: TextLog) -> None:
    from headwater.jobs.rules import has_socket

    if has_socket(run.job):
        shown = os.path.relpath(run.checkpoint)
        log.message(f"{run.job.name}: a socket cannot be read again, so each run gets its own checkpoint: {shown}")


def _run(
    supervision: Supervision,
    runs: Sequence[Run],
    shared: dict[str, str],
    master: str,
    stop: threading.Event,
    log: TextLog,
    sql: RunQuery,
    keep: KeepPolicy | None,
) -> None:
    """Start Spark, run the jobs on it, and show the result of ``--query``."""
    from headwater.spark.job_session import log_file
    from headwater.spark.memory_tables import sql_result
    from headwater.spark.real_time import session_for
    from headwater.spark.runner import start_job
    from headwater.spark.session import jars_for, start_session, stop_session
    from headwater.spark.together import keep_settings_apart, session_conf

    jobs = [run.job for run in runs]
    master, settings = session_for(runs, master, session_conf(runs))
    try:
        spark = start_session(
            ", ".join(job.name for job in jobs),
            master=master,
            conf=settings,
            jars=sorted({name for run in runs for name in jars_for(run.job, run.checkpoint)}),
            log=log_file(jobs),
        )
    except KeyboardInterrupt:  # while PySpark starts, its own signal handler is installed
        stop.set()
        return

    def show_result(text: str) -> None:
        log.clear()
        say(f"{text}\n")

    try:
        if len(runs) > 1:
            keep_settings_apart(spark, runs, shared)
        supervision.run(partial(start_job, spark, keep=keep), repeated(spark, jobs[0], sql, show_result))
        if sql.text and len(supervision.failures) < len(runs):
            last = supervision.jobs[0].last_batch_id
            header = f"after batch {last}:\n" if sql.seconds and last is not None else ""
            show_result(header + sql_result(spark, sql.text))
    finally:
        stop_session(spark)


def _serve_page(runs: Sequence[Run], log: TextLog) -> None:
    """Serve the page from a thread of this process, so that it ends whenever the jobs do."""
    from headwater.cli.ui import find_dropped_records, find_view_rows
    from headwater.web.server import PageServer

    served = [_served_checkpoint(run) for run in runs]
    server = PageServer(served, find_records=find_dropped_records, find_view_rows=find_view_rows)
    server.start()
    log.message(f"page: {server.url}")


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


def _remove_unused(jobs: Sequence[SupervisedJob]) -> None:
    """Remove the checkpoint of a start on a socket that committed no batch: no other start can resume it."""
    for job in jobs:
        checkpoint = Path(job.run.checkpoint)
        if job.failure and job.failure.code == "socket-unreachable" and not any(checkpoint.glob("commits/[0-9]*")):
            shutil.rmtree(checkpoint, ignore_errors=True)


def _stop_on_signals(stop: threading.Event, log: TextLog) -> None:
    def request_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  Python passes both
        if stop.is_set() and number == signal.SIGINT:
            _abandon_batch(log)
        if not stop.is_set():
            stop.set()
            log.message_from_signal_handler("stopping after the current batch (press Ctrl-C again to stop immediately)")

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)


def _abandon_batch(log: TextLog) -> NoReturn:
    """End the process without waiting for the current batch, on a second Ctrl-C."""
    from headwater.spark.internals.gateway import kill_jvm

    kill_jvm()
    log.message_from_signal_handler("stopped immediately; the current batch will run again at the next start")
    os._exit(130)
