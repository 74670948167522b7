"""``headwater late``: the records that a batch did not count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.job_options import Conf, Settings, SourceUri, jars_for, pairs, recorded_job
from headwater.cli.names import CheckpointName
from headwater.cli.output import LivingLine, json_line, note, say
from headwater.core.uris import redact

if TYPE_CHECKING:
    from headwater.checkpoint.history import History


@app.command(rich_help_panel=LOOK)
def late(
    checkpoint: CheckpointName,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="The job, if the checkpoint does not know it.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="B", help="Only this batch; default: all in the log.")] = None,
    to: Annotated[str | None, typer.Option(metavar="URI", help="Save them: kafka://… or files:DIR.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Counts and how late, instead of the records.")] = False,
    source: SourceUri = None,
    settings: Settings = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the very records that batches dropped as late or could not decode, read again from the source by their offsets.

    Examples:
      headwater late browser-stats-stateful --batch 41
      headwater late browser-stats-stateful --summary
    """
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import History
    from headwater.cli.opening import open_to_read

    files = open_to_read(checkpoint)
    history = History(files)
    chosen = recorded_job(files, job, source, settings)
    wanted = (
        [revisions.resolve(batch, history.batch_ids, history.committed_at_ms)]
        if batch
        else list(history.logs.commits.ids)
    )

    from headwater.spark.dead_letters import dead_letter_sink, save_records
    from headwater.spark.session import start_session

    line = LivingLine()
    line.show("starting Spark")
    spark = start_session(
        "headwater late",
        conf={**chosen.conf, **pairs(conf, "--conf")},
        jars=jars_for(chosen, files.location),
        log=Path(".headwater/logs/late.log"),
    )
    try:
        records = _find(spark, chosen, history, wanted, line)
        if to:
            save_records(spark, records, dead_letter_sink(to))
    finally:
        line.clear()
        spark.stop()
    if to:
        note(f"{len(records)} records saved to {redact(to)}")
    elif summary:
        _summarise(records, as_json=as_json)
    else:
        _show(records, as_json=as_json)


def _find(spark: Any, job: Any, history: History, wanted: list[Any], line: LivingLine) -> list[dict[str, Any]]:
    from headwater.spark.dropped import DroppedRecords

    finder = DroppedRecords(spark, job, history)
    found: list[dict[str, Any]] = []
    for number in wanted:
        line.show(f"reading batch {number} again")
        found += [record.as_dict() for record in finder.of(number)]
    return found


def _show(records: list[dict[str, Any]], *, as_json: bool) -> None:
    for record in records:
        if as_json:
            json_line(record)
            continue
        place = (
            f"{record['topic']}[{record['partition']}]@{record['offset']}"
            if record["kind"] == "kafka"
            else f"{record['path']}:{record['line']}"
        )
        say(f"batch {record['batch_id']}  {record['reason']:<9}  {place}  {record['detail']}  {record['value']}")
    if not as_json:
        late_ones = sum(record["reason"] == "late" for record in records)
        note(f"{late_ones} late, {len(records) - late_ones} malformed")


def _summarise(records: list[dict[str, Any]], *, as_json: bool) -> None:
    from headwater.views.lateness import lateness_summary, suggested_extra_delay_seconds

    for one in lateness_summary(records):
        if as_json:
            json_line(one)
            continue
        behind = ", ".join(f"{count} {step}" for step, count in one["behind"].items())
        say(f"batch {one['batch_id']}  {one['records']} {one['reason']}" + (f": behind by {behind}" if behind else ""))
    extra = suggested_extra_delay_seconds(records)
    if extra is not None and not as_json:
        note(f"a watermark delay longer by {extra} s would have kept 99 % of the late records")
