"""``headwater replay``: run recorded batches again, beside the production they come from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.job_options import Conf, Settings, SourceUri, jars_for, pairs, recorded_job
from headwater.cli.names import CheckpointName, JobName
from headwater.cli.output import LivingLine, json_line, note, say
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.spark.replay import ReplayedBatch


@app.command(rich_help_panel=LOOK)
def replay(
    job: JobName,
    checkpoint: CheckpointName,
    batch: Annotated[str, typer.Option("--batch", metavar="A[..B]", help="The recorded batches: 41 or 41..45.")],
    against: Annotated[
        str | None, typer.Option(metavar="JOB", help="A changed job: show what it gives differently.")
    ] = None,
    from_empty_state: Annotated[
        bool, typer.Option("--from-empty-state", help="Start from nothing at batch A instead of its recorded state.")
    ] = False,
    source: SourceUri = None,
    settings: Settings = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a batch.")] = False,
) -> None:
    """Run recorded batches again with their recorded offsets, on a scratch copy. Checkpoint, sink and topics are not touched.

    With --against the same batches run through a second job, and the command exits with 1 when their rows differ.

    Examples:
      headwater replay browser-stats-stateful browser-stats-stateful --batch 3
      headwater replay jobs.py:STATS prod-stats --batch 40..45 --against jobs.py:STATS_V2
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.recorded import recorded_batches

    files = open_checkpoint(checkpoint)
    first, last = _range(batch)
    jobs = [recorded_job(files, name, source, settings) for name in (job, against) if name]
    recorded_batches(files, first, last)

    from headwater.spark.nondeterminism import unstable_expressions
    from headwater.spark.replay import replay as run_again
    from headwater.spark.session import start_session, stop_session

    if from_empty_state:
        who = "both jobs start" if against else "the job starts"
        note(f"{who} batch {first} from empty state: what came before it is not counted")
    line = LivingLine()
    line.show("starting Spark")
    spark = start_session(
        "headwater replay",
        conf={**jobs[0].conf, **pairs(conf, "--conf")},
        jars=jars_for(jobs[0], files.location),
        log=Path(".headwater/logs/replay.log"),
    )
    try:
        for one in jobs:
            for part in unstable_expressions(spark, one):
                line.keep(part.warning_for(one.name))
        results = [
            run_again(
                spark,
                one,
                files,
                first,
                last,
                from_empty_state=from_empty_state,
                on_batch=lambda number: line.show(f"replaying batch {number}"),
            )
            for one in jobs
        ]
    finally:
        line.clear()
        stop_session(spark)
    if against:
        _show_differences(results[0], results[1], as_json=as_json)
    else:
        _show(results[0], as_json=as_json)


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if not found or (found[2] and int(found[2]) < int(found[1])):
        raise UsageProblem("bad-option", f"--batch {text!r} is not of the form A or A..B", remedy="--batch 41..45")
    return int(found[1]), int(found[2] or found[1])


def _show(batches: list[ReplayedBatch], *, as_json: bool) -> None:
    for one in batches:
        if as_json:
            json_line({"batch_id": one.batch_id, "rows": one.rows})
            continue
        say(f"batch {one.batch_id}: {len(one.rows)} row{'' if len(one.rows) == 1 else 's'}")
        _say_rows("  ", one.rows)


def _show_differences(before: list[ReplayedBatch], after: list[ReplayedBatch], *, as_json: bool) -> None:
    from headwater.views.comparison import compare_rows

    different = 0
    for old, new in zip(before, after, strict=True):
        compared = compare_rows(old.batch_id, old.rows, new.rows)
        different += not compared.same
        if as_json:
            json_line(compared.as_dict())
            continue
        say(f"batch {old.batch_id}: " + ("same rows" if compared.same else "rows differ"))
        _say_rows("  - ", list(compared.only_before))
        _say_rows("  + ", list(compared.only_after))
        for was, now in compared.differ:
            _say_rows("  ~ ", [was])
            _say_rows("    ", [now])
    note(f"{different} of {len(before)} batches differ" if different else f"{len(before)} batches, same rows")
    if different:
        raise typer.Exit(1)


def _say_rows(mark: str, rows: list[dict[str, object]]) -> None:
    import json

    for row in rows:
        say(mark + json.dumps(row, ensure_ascii=False))
