"""``headwater check``: whether a job can run."""

from __future__ import annotations

from headwater.cli.app import BUILD, app
from headwater.cli.job_options import Conf, JobName, ModeName, Settings, SinkUri, SourceUris
from headwater.cli.output import note, say


@app.command(rich_help_panel=BUILD)
def check(
    job: JobName,
    mode: ModeName = None,
    source: SourceUris = None,
    sink: SinkUri = None,
    settings: Settings = None,
    conf: Conf = None,
) -> None:
    """Check whether a job can run, without running it.

    The job is analyzed by Spark on this machine. Its source and sink do not have to be reachable.

    Example:
      headwater check order-status --mode append
    """
    from headwater.cli.job_options import parse_pairs, select_job

    chosen = select_job(job, source=source, sink=sink, mode=mode, settings=settings)

    from headwater.jobs.rules import check_job
    from headwater.spark.job_session import log_file
    from headwater.spark.prepared import check_only
    from headwater.spark.session import jars_for, start_session, stop_session

    check_job(chosen)
    spark = start_session(
        chosen.name,
        master="local[1]",
        conf={**chosen.conf, **parse_pairs(conf, "--conf")},
        jars=jars_for(chosen),
        log=log_file([chosen]),
    )
    try:
        warnings = check_only(spark, chosen)
    finally:
        stop_session(spark)
    for warning in warnings:
        note(warning)
    kinds = " and ".join(dict.fromkeys(source.kind for source in chosen.sources.values()))
    say(f"{chosen.name}: ready to run in {chosen.mode} mode, {kinds} to {chosen.writes.kind}")
