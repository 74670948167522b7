"""``headwater run``: run a job until it is done or told to stop."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import (
    Conf,
    ModeName,
    Settings,
    SinkUri,
    SourceUri,
    chosen_job,
    jars_for,
    log_file,
    pairs,
)
from headwater.cli.names import JobName
from headwater.cli.output import LivingLine, call_out
from headwater.cli.watching import Hear, watched

if TYPE_CHECKING:
    from types import FrameType

    from headwater.spark.ownership import Run
    from headwater.spark.progress import BatchProgress

CHECKPOINTS = Path(".headwater/checkpoints")


@app.command(rich_help_panel=RUN)
def run(
    job: JobName,
    source: SourceUri = None,
    sink: SinkUri = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="CKPT", help="A folder or URL; by default .headwater/checkpoints/ and the name of the job."
        ),
    ] = None,
    mode: ModeName = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help='once, available-now, "10 seconds" or "real-time 5 seconds"; by default at once.'
        ),
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master; the same job runs on a cluster.")
    ] = "local[*]",
    settings: Settings = None,
    conf: Conf = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Keep late and malformed records: kafka://…, files:DIR or table:NAME."),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page while the job runs.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1, or HOST:PORT."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="SQL to ask when the run ends, for example of a memory table.")
    ] = None,
) -> None:
    """Run a job. Ctrl-C ends the batch in hand and stops; a killed job goes on where it was.

    Example:
      headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
    """
    chosen = chosen_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings)
    chosen = replace(chosen, dead_letters=dead_letters or chosen.dead_letters)
    wanted = pairs(conf, "--conf")
    place = _place(checkpoint, chosen.name)

    from headwater.jobs.rules import check_job

    check_job(chosen)

    from headwater.spark.ownership import Run
    from headwater.spark.preflight import check_services
    from headwater.spark.runner import check_checkpoint

    asked = Run(chosen, job, place)
    check_checkpoint(asked)
    check_services(chosen, master)
    stop = threading.Event()
    _stop_on_signals(stop)
    line = LivingLine(shared=chosen.writes.kind == "console")
    with watched(chosen.name, place, page=ui, metrics=metrics) as hear:
        line.show(f"{chosen.name}: starting Spark")
        try:
            _run(asked, {**chosen.conf, **wanted}, master, stop, line, query, hear)
        finally:
            line.clear()


def _run(
    asked: Run,
    conf: dict[str, str],
    master: str,
    stop: threading.Event,
    line: LivingLine,
    query: str | None,
    hear: Hear,
) -> None:
    from headwater.spark.failures import explained
    from headwater.spark.progress import Totals
    from headwater.spark.runner import run_job
    from headwater.spark.session import start_session, stop_session

    job, totals = asked.job, Totals()

    def show_batch(batch: BatchProgress) -> None:
        totals.add(batch)
        line.keep(batch.line())
        hear(batch)

    def show_wait(doing: str) -> None:
        line.show(f"{job.name}: {doing[:1].lower()}{doing[1:]}")

    try:
        spark = start_session(
            job.name, master=master, conf=conf, jars=jars_for(job, asked.checkpoint), log=log_file(job)
        )
    except KeyboardInterrupt:  # PySpark's own handler stands for a moment
        stop.set()
        return
    _stop_on_signals(stop)
    try:
        if not stop.is_set():
            waits = show_wait if line.is_alive else None
            run_job(spark, asked, stop=stop, on_batch=show_batch, on_wait=waits, tell=line.keep)
        line.keep(f"{job.name}: {'stopped' if stop.is_set() else 'nothing more to read'}  {totals.line()}")
        if query:
            with explained("--query cannot be answered"):
                spark.sql(query).show(n=2**31 - 1, truncate=False)
    finally:
        stop_session(spark)


def _place(checkpoint: str | None, name: str) -> str:
    place = (checkpoint or str(CHECKPOINTS / name)).removeprefix("file://")
    return place if "://" in place else str(Path(place).absolute())


def _stop_on_signals(stop: threading.Event) -> None:
    def ask_to_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature is Python's
        if stop.is_set() and number == signal.SIGINT:
            _abandon()
        if not stop.is_set():
            stop.set()
            call_out("stopping after the batch in hand (Ctrl-C again: at once)")

    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGTERM, ask_to_stop)


def _abandon() -> NoReturn:
    """A second Ctrl-C: whoever asks twice does not want to wait for the batch."""
    from headwater.spark.internals.gateway import kill_jvm

    kill_jvm()
    call_out("stopped at once; the batch in hand will run again at the next start")
    os._exit(130)
