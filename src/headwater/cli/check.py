"""``headwater check``: would this job run?"""

from __future__ import annotations

from headwater.cli.app import BUILD, app
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
from headwater.cli.output import say


@app.command(rich_help_panel=BUILD)
def check(
    job: JobName,
    mode: ModeName = None,
    source: SourceUri = None,
    sink: SinkUri = None,
    settings: Settings = None,
    conf: Conf = None,
) -> None:
    """Say whether a job would run, or why not. Nothing is started, no service has to be there.

    Example:
      headwater check order-status --mode append
    """
    chosen = chosen_job(job, source=source, sink=sink, mode=mode, settings=settings)

    from headwater.jobs.rules import check_job
    from headwater.spark.prepared import check_only
    from headwater.spark.session import start_session, stop_session

    check_job(chosen)
    wanted = {**chosen.conf, **pairs(conf, "--conf")}
    spark = start_session(chosen.name, master="local[1]", conf=wanted, jars=jars_for(chosen), log=log_file(chosen))
    try:
        check_only(spark, chosen)
    finally:
        stop_session(spark)
    say(f"{chosen.name}: ready to run in {chosen.mode} mode, {chosen.reads.kind} to {chosen.writes.kind}")
