"""``headwater run``: run a job until it is done or told to stop."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.job_options import (
    Conf,
    JobName,
    ModeName,
    Settings,
    SinkUri,
    SourceUri,
    chosen_job,
    jars_for,
    log_file,
    pairs,
)
from headwater.cli.output import LivingLine, note

if TYPE_CHECKING:
    from types import FrameType

CHECKPOINTS = Path(".headwater/checkpoints")


@app.command(rich_help_panel=RUN)
def run(
    job: JobName,
    source: SourceUri = None,
    sink: SinkUri = None,
    checkpoint: Annotated[str | None, typer.Option(help="Folder or URL; default .headwater/checkpoints/<job>.")] = None,
    mode: ModeName = None,
    trigger: Annotated[
        str | None, typer.Option(help='once, available-now, "10 seconds" or "real-time 5 seconds"; default: at once.')
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master; the same job runs on a cluster.")] = "local[*]",
    settings: Settings = None,
    conf: Conf = None,
    query: Annotated[
        str | None, typer.Option(help="SQL to ask when the run ends, for example of a memory table.")
    ] = None,
) -> None:
    """Run a job. Ctrl-C ends the batch in hand and stops; a killed job goes on where it was.

    Example: headwater run browser-stats-stateful --source kafka://127.0.0.1:9092/visits --sink console:
    """
    chosen = chosen_job(job, source=source, sink=sink, mode=mode, trigger=trigger, settings=settings)
    place = checkpoint or str(CHECKPOINTS / chosen.name)
    if "://" not in place:
        place = str(Path(place).absolute())

    from headwater.jobs.rules import check_job
    from headwater.spark import preflight

    check_job(chosen)
    preflight.check_source(chosen.reads)

    stop = threading.Event()
    _stop_on_signals(stop)
    line = LivingLine()
    line.show(f"{chosen.name}: starting Spark")

    from headwater.spark.runner import Run, run_job
    from headwater.spark.session import start_session

    spark = start_session(
        chosen.name,
        master=master,
        conf={**chosen.conf, **pairs(conf, "--conf")},
        jars=jars_for(chosen, place),
        log=log_file(chosen),
    )
    _stop_on_signals(stop)  # Spark has put a handler of its own in place
    try:
        line.show(f"{chosen.name}: waiting for the first batch")
        run_job(spark, Run(chosen, job, place), stop=stop, on_batch=lambda batch: line.keep(batch.line()))
        line.clear()
        note(f"{chosen.name}: stopped" if stop.is_set() else f"{chosen.name}: nothing more to read")
        if query:
            spark.sql(query).show(n=2**31 - 1, truncate=False)
    finally:
        line.clear()
        spark.stop()


def _stop_on_signals(stop: threading.Event) -> None:
    def ask_to_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature is Python's
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGTERM, ask_to_stop)
