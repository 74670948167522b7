"""``headwater seed``: create a checkpoint whose state comes from history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import DryRun, PlanJson, Yes
from headwater.cli.edit import REASON
from headwater.cli.job_options import Conf, JobName, ModeName, Settings, SinkUri, SourceUris
from headwater.cli.output import StatusLine, json_line, note
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.spark.seed_request import SeedRequest
    from headwater.timemachine.seed import SeedPlan


@app.command(rich_help_panel=CHANGE)
def seed(
    job: JobName,
    history: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="URI",
            help="History to read: files:DIR or delta:PATH; NAME=URI, or NAME=none, if the job has several sources. "
            "Repeatable.",
        ),
    ],
    at: Annotated[
        list[str],
        typer.Option(
            metavar="POSITION",
            help='Where the source continues: {"topic":{"0":1000}}, 0:1000,1:998, the version of a Delta table, a time, '
            "earliest or latest. NAME=POSITION if the job has several sources. Repeatable.",
        ),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="CKPT", help="New checkpoint; default: .headwater/checkpoints/ and the job name."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="How records of the history are told apart from those of the source: by offset or by event-time.",
        ),
    ] = "offset",
    event_time: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="With --by event-time: the column or expression with the event time."),
    ] = None,
    offset_columns: Annotated[
        str | None,
        typer.Option(
            metavar="PARTITION,OFFSET",
            help="Columns of the history with each record's partition and offset: records at or after the position are left out.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(metavar="WHERE", help="What happens to the output of the history: write, aside or drop."),
    ] = "aside",
    aside: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="With --output aside: folder for the output; default: CKPT.output."),
    ] = None,
    source: SourceUris = None,
    sink: SinkUri = None,
    mode: ModeName = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    settings: Settings = None,
    conf: Conf = None,
    reason: Annotated[str | None, REASON] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Create a checkpoint whose state is computed from history and that continues at a given source position.

    Spark runs the job over the history in one batch. The new checkpoint has the resulting state and watermark, and its
    source begins at the position: no record is read twice or left out if the history ends exactly there.
    headwater run then continues as usual.

    Output of the history, such as closed windows, is kept in a folder, or written to the sink (--output write), or dropped.
    An interrupted seed continues if the same command is run again.

    Examples:
      headwater seed browser-stats-stateful --from files:archive --at '{"visits":{"0":1000,"1":998}}'
      headwater seed jobs.py:TOTALS --from files:old --at 2026-07-01T00:00:00Z --by event-time --event-time event_time
    """
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.cli.job_options import parse_pairs, select_job
    from headwater.spark.ownership import checkpoint_location
    from headwater.spark.preflight import check_services
    from headwater.spark.seed_plan import plan_seed
    from headwater.spark.seed_request import named_texts, request_of
    from headwater.views.plans import seed_text

    chosen = select_job(job, source=source, sink=sink, mode=mode, settings=settings)
    chosen = replace(chosen, conf={**chosen.conf, **parse_pairs(conf, "--conf")})
    request = request_of(
        chosen,
        job,
        checkpoint_location(checkpoint, chosen),
        named_texts(history, chosen),
        named_texts(at, chosen),
        by=by,
        event_time=event_time,
        offset_columns=offset_columns,
        output=output,
        aside=aside,
        reason=reason,
    )
    plan = plan_seed(request)
    print_plan(plan.as_dict(), seed_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Seed the checkpoint?", yes=yes):
        return
    check_services(chosen, master, warn=note)
    is_changed = bool(source or sink or mode or settings)
    _carry_out(request, plan, master, job, is_changed=is_changed, as_json=as_json)


def _carry_out(
    request: SeedRequest,
    plan: SeedPlan,
    master: str,
    job: str,
    *,
    is_changed: bool,
    as_json: bool,
) -> None:
    from headwater.spark.seeding import seed as seed_with_spark
    from headwater.spark.seeding import session_for
    from headwater.views.plans import shown_place

    line = StatusLine()
    line.show(f"{request.job.name}: starting Spark")
    try:
        with session_for(request, master=master) as spark:
            done = seed_with_spark(
                spark,
                request,
                plan,
                report=lambda rows: line.show(f"{request.job.name}: {rows:,} rows of history"),
                warn=note,
            )
    finally:
        line.clear()
    if as_json:
        json_line(done.as_dict())
        return
    if not done.state_rows:
        note("warning: the state has no rows; do the records of the history have the fields of the source?")
    rows = f"{count(done.rows, 'row')} of history, {count(done.state_rows, 'row')} of state"
    same = " (with the same --source, --sink, --mode and --set)" if is_changed else ""
    place = shown_place(plan.checkpoint)
    note(f"done: {rows}. To continue: headwater run {job} --checkpoint {place}{same}")
