"""``headwater import``: replace the state of a checkpoint by exported state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import DryRun, PlanJson, Yes
from headwater.cli.edit import REASON, SINK, carry_out
from headwater.cli.job_options import Conf, Settings, SourceUris, parse_pairs, select_job
from headwater.cli.output import json_line, note
from headwater.cli.state_source import OPERATOR, STORE, VAR
from headwater.core.errors import UsageProblem
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.jobs.job import Job


@app.command("import", rich_help_panel=CHANGE)
def import_state(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE|CKPT", help="The exported file or folder, with --checkpoint; or the checkpoint, with --from."
        ),
    ],
    checkpoint: Annotated[
        str | None, typer.Option(metavar="CKPT", help="Checkpoint: a folder, an object-store URL or a job name.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="What headwater export wrote: a file or a folder.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Create the checkpoint, for this job: a gallery name, module:NAME or path/to/file.py:NAME. Starts Spark.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POSITION",
            help="With --job: where the source continues, as for headwater seed; default: where the exported batch ended.",
        ),
    ] = None,
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    reason: Annotated[str | None, REASON] = None,
    source_uri: SourceUris = None,
    sink: Annotated[str | None, SINK] = None,
    settings: Settings = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Replace state with what headwater export wrote.

    The checkpoint has to have state of the same schema; the number of partitions may differ. Adds a batch that reads no
    input and contains the imported rows in place of the old ones. Can be undone. Does not start Spark.

    With --job, a new checkpoint is created for a job. It has the imported state and watermark, and its source continues
    where the exported batch ended. Its number of partitions is that of --conf spark.sql.shuffle.partitions=N.

    Examples:
      headwater import totals.parquet --checkpoint running-totals
      headwater import totals.parquet --checkpoint totals-8 --job jobs.py:TOTALS --conf spark.sql.shuffle.partitions=8
    """
    from headwater.cli.checkpoint_options import open_to_change
    from headwater.timemachine.transfer import plan_import
    from headwater.views.state_files import read_tables

    if (checkpoint is None) == (source is None):
        raise UsageProblem(
            "bad-option",
            "either --checkpoint or --from is required",
            remedy="headwater import FILE --checkpoint CKPT, or headwater import CKPT --from FILE",
        )
    file, into = (place, checkpoint) if source is None else (source, place)
    assert file is not None
    assert into is not None
    if job is not None:
        chosen = select_job(job, source=source_uri, sink=sink, settings=settings)
        chosen = replace(chosen, conf={**chosen.conf, **parse_pairs(conf, "--conf")})
        _create(chosen, job, file, into, at or [], reason, dry_run, yes, as_json)
        return
    given = {"--at": at, "--source": source_uri, "--set": settings, "--conf": conf}
    if unneeded := [option for option, value in given.items() if value]:
        raise UsageProblem("bad-option", f"{unneeded[0]} needs --job", remedy="--job JOB, to create the checkpoint")
    files = open_to_change(into)
    plan = plan_import(files, read_tables(file), StoreRef(operator, store, var), reason=reason, sink=sink)
    carry_out(plan, into, "Replace the state?", dry_run=dry_run, yes=yes, as_json=as_json)


def _create(
    job: Job,
    reference: str,
    file: str,
    checkpoint: str,
    at: list[str],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Create a checkpoint for a job with imported state."""
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.spark.importing import plan_job_import
    from headwater.spark.ownership import checkpoint_location
    from headwater.spark.preflight import check_services
    from headwater.spark.seed_request import named_texts
    from headwater.spark.seeding import session_for
    from headwater.views.plans import job_import_text, shown_place
    from headwater.views.state_files import read_tables

    place = checkpoint_location(checkpoint, job)
    planned = plan_job_import(job, reference, place, read_tables(file), named_texts(at, job), reason=reason)
    shown = {**planned.plan.as_dict(), "verb": "import", "rows": planned.rows}
    print_plan(shown, job_import_text(planned.plan, file, planned.rows).lines(), as_json=as_json)
    if dry_run or not confirm("Create the checkpoint?", yes=yes):
        return
    check_services(job, warn=note)
    with session_for(planned.request) as spark:
        done = planned.apply(spark, warn=note)
    if as_json:
        json_line({"done": done.checkpoint, "rows": planned.rows})
        return
    note(f"done: {planned.rows:,} rows. To continue: headwater run {reference} --checkpoint {shown_place(place)}")
