"""``headwater check``: whether a job can run, and whether it can resume from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import BUILD, app
from headwater.cli.checkpoint_options import checkpoint_names
from headwater.cli.job_options import Conf, JobName, ModeName, Settings, SinkUri, SourceUris
from headwater.cli.output import json_line, note, say
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.jobs.job import Job
    from headwater.migration.comparison import Comparison


@app.command(rich_help_panel=BUILD)
def check(
    job: JobName,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="CKPT",
            help="Checkpoint that the job is to resume from: a folder, an object-store URL or a job name.",
            autocompletion=checkpoint_names,
        ),
    ] = None,
    mode: ModeName = None,
    source: SourceUris = None,
    sink: SinkUri = None,
    settings: Settings = None,
    conf: Conf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --checkpoint: print the result as one JSON object.")
    ] = False,
) -> None:
    """Check whether a job can run, without running it.

    The job is analyzed by Spark on this machine. Its source and sink do not have to be reachable.

    With --checkpoint, also check whether the job can resume from a checkpoint of older code, and whether the state keeps
    its meaning. The verdict is same, compatible, changes-meaning, needs-migrate or needs-new-checkpoint. The exit status is
    0 for the first two and 1 for the others. The checkpoint is only read, and its query may be running.

    Examples:
      headwater check order-status --mode append
      headwater check jobs.py:SESSIONS --checkpoint sessions
    """
    from headwater.cli.job_options import parse_pairs, select_job

    if as_json and checkpoint is None:
        raise UsageProblem("bad-option", "--json needs --checkpoint", remedy=f"headwater check {job} --checkpoint CKPT")
    chosen = select_job(job, source=source, sink=sink, mode=mode, settings=settings)
    given = parse_pairs(conf, "--conf")
    if checkpoint is not None:
        comparison = _compared(chosen, job, checkpoint, given)
        if as_json:
            json_line(comparison.as_dict())
        else:
            from headwater.views.code_check import comparison_lines

            say("\n".join(comparison_lines(comparison)))
        raise typer.Exit(0 if comparison.is_safe else 1)

    from headwater.jobs.rules import check_job
    from headwater.spark.job_session import log_file
    from headwater.spark.prepared import check_only
    from headwater.spark.session import jars_for, start_session, stop_session

    check_job(chosen)
    spark = start_session(
        chosen.name,
        master="local[1]",
        conf={**chosen.conf, **given},
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


def _compared(job: Job, reference: str, checkpoint: str, given: dict[str, str]) -> Comparison:
    from headwater.cli.checkpoint_options import open_to_read

    files = open_to_read(checkpoint)

    from headwater.jobs.rules import check_job
    from headwater.spark.code_check import check_code
    from headwater.spark.job_session import log_file
    from headwater.spark.session import jars_for, start_session, stop_session

    check_job(job)
    conf = {**job.conf, **given}
    spark = start_session(job.name, master="local[1]", conf=conf, jars=jars_for(job), log=log_file([job]))
    try:
        return check_code(spark, job, files, reference=reference, given=given)
    finally:
        stop_session(spark)
