"""``headwater replay``: re-run recorded batches on a scratch copy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.job_options import Conf, JobName, Settings, SourceUris, parse_pairs
from headwater.cli.output import StatusLine, json_line, note, say
from headwater.core.errors import UsageProblem
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.spark.replay import ReplayedBatch


@app.command(rich_help_panel=INSPECT)
def replay(
    job: JobName,
    checkpoint: CheckpointName,
    batch: Annotated[str, typer.Option("--batch", metavar="A[..B]", help="Recorded batches: 41 or 41..45.")],
    against: Annotated[str | None, typer.Option(metavar="JOB", help="Changed job; show the rows that differ.")] = None,
    from_empty_state: Annotated[
        bool, typer.Option("--from-empty-state", help="Start batch A with empty state instead of the recorded state.")
    ] = False,
    source: SourceUris = None,
    settings: Settings = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch.")] = False,
) -> None:
    """Re-run recorded batches on a scratch copy.

    The batches run with their recorded offsets. The checkpoint, the sink and the topics are not modified. With --against,
    a second job runs the same batches, and the exit status is 1 if any rows differ.

    Examples:
      headwater replay browser-stats-stateful browser-stats-stateful --batch 3
      headwater replay jobs.py:STATS prod-stats --batch 40..45 --against jobs.py:STATS_V2
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.spark.recorded_job import recorded_job
    from headwater.timemachine.replay_scratch import recorded_batches

    files = open_checkpoint(checkpoint)
    first, last = _range(batch)
    chosen = parse_pairs(settings, "--set")
    jobs = [recorded_job(files, name, sources=source or (), settings=chosen) for name in (job, against) if name]
    recorded_batches(files, first, last)

    from headwater.spark.job_session import settings_of_job
    from headwater.spark.nondeterminism import unstable_expressions
    from headwater.spark.replay import replay as replay_batches
    from headwater.spark.replay import replayable
    from headwater.spark.session import jars_for, start_session, stop_session

    given = parse_pairs(conf, "--conf")
    jobs = [replayable(one) for one in jobs]
    if from_empty_state:
        subject = "both jobs start" if against else "the job starts"
        note(f"{subject} batch {first} with empty state: earlier batches are not counted")
    for name in dict.fromkeys(name for one in jobs for name in one.statics):
        note(f"warning: the static table {name} is joined as it is now; it may have changed since the batches ran")
    line = StatusLine()
    line.show("starting Spark")
    spark = start_session(
        "headwater replay",
        conf={**jobs[0].conf, **given},
        jars=list(dict.fromkeys(name for one in jobs for name in jars_for(one, files.location))),
        log=Path(".headwater/logs/replay.log"),
    )
    try:
        for one in jobs:
            for part in unstable_expressions(spark, one):
                line.keep(part.warning_for(one.name))
        results = []
        for one in jobs:
            with settings_of_job(spark, replace(one, conf={**one.conf, **given}), line.keep):
                replayed = replay_batches(
                    spark,
                    one,
                    files,
                    first,
                    last,
                    from_empty_state=from_empty_state,
                    on_batch=lambda number: line.show(f"replaying batch {number}"),
                )
            results.append(replayed)
    finally:
        line.clear()
        stop_session(spark)
    if against:
        _print_differences(results[0], results[1], as_json=as_json)
    else:
        _print_rows(results[0], as_json=as_json)


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if not found or (found[2] and int(found[2]) < int(found[1])):
        raise UsageProblem("bad-option", f"--batch {text!r} is not of the form A or A..B", remedy="--batch 41..45")
    return int(found[1]), int(found[2] or found[1])


def _print_rows(batches: list[ReplayedBatch], *, as_json: bool) -> None:
    for one in batches:
        if as_json:
            json_line({"batch_id": one.batch_id, "rows": one.rows})
            continue
        say(f"batch {one.batch_id}: {count(len(one.rows), 'row', grouped=False)}")
        _say_json("  ", one.rows)


def _print_differences(before: list[ReplayedBatch], after: list[ReplayedBatch], *, as_json: bool) -> None:
    from headwater.views.comparison import compare_rows

    different = 0
    for old, new in zip(before, after, strict=True):
        compared = compare_rows(old.batch_id, old.rows, new.rows)
        different += not compared.same
        if as_json:
            json_line(compared.as_dict())
            continue
        say(f"batch {old.batch_id}: " + ("same rows" if compared.same else "rows differ"))
        _say_json("  - ", list(compared.only_before))
        _say_json("  + ", list(compared.only_after))
        for was, now in compared.differ:
            _say_json("  ~ ", [was])
            _say_json("    ", [now])
    batches = count(len(before), "batch")
    note(f"{different} of {batches} differ" if different else f"{batches}, same rows")
    if different:
        raise typer.Exit(1)


def _say_json(prefix: str, rows: list[dict[str, object]]) -> None:
    import json

    for row in rows:
        say(prefix + json.dumps(row, ensure_ascii=False))
