"""``headwater late``: the records that a batch did not count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.job_options import Conf, Settings, SourceUri, jars_for, pairs, recorded_job
from headwater.cli.names import CheckpointName
from headwater.cli.output import LivingLine, json_line, note, say
from headwater.core.errors import redact

if TYPE_CHECKING:
    from headwater.checkpoint.history import History

Record = dict[str, Any]


@app.command(rich_help_panel=LOOK)
def late(
    checkpoint: CheckpointName,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="The job, if the checkpoint does not know it.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="B", help="Only this batch; default: all in the log.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="URI", help="Save them: kafka://…, files:DIR or table:NAME.")
    ] = None,
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
    from headwater.checkpoint.history import History
    from headwater.cli.opening import open_to_read

    files = open_to_read(checkpoint)
    history = History(files)
    chosen = recorded_job(files, job, source, settings)
    wanted = _wanted(history, batch, as_recorded=not (job or source or settings or conf))

    from headwater.spark.dropped import DeadLetterStore, DroppedRecords, query_id_of
    from headwater.spark.failures import explained
    from headwater.spark.preflight import check_letters
    from headwater.spark.session import start_session, stop_session

    kept_in = check_letters(chosen, to) if to else None
    if not wanted:
        _answer([], to, None, summary=summary, as_json=as_json)
        return
    line = LivingLine()
    line.show("starting Spark")
    spark = start_session(
        "headwater late",
        conf={**chosen.conf, **pairs(conf, "--conf")},
        jars=jars_for(chosen, files.location, letters=to),
        log=Path(".headwater/logs/late.log"),
    )
    try:
        finder = DroppedRecords(spark, chosen, history)
        records: list[Record] = []
        for number in wanted:
            line.show(f"reading batch {number} again")
            records += [record.as_dict() for record in finder.of(number)]
        if kept_in is not None:
            with explained("the records cannot be saved"):
                DeadLetterStore(spark, kept_in, chosen.name, query_id_of(files)).save(records)
    finally:
        line.clear()
        stop_session(spark)
    delay_ms = finder.rule.delay_ms if finder.rule else None
    _answer(records, to, delay_ms, summary=summary, as_json=as_json)


def _wanted(history: History, batch: str | None, *, as_recorded: bool) -> list[int]:
    """Committed batches whose range is known; without those of which the run itself said that nothing was dropped."""
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import clean_batches

    if batch:
        return [revisions.resolve(batch, history.batch_ids, history.committed_at_ms)]
    held = history.logs.offsets.entries
    known = [number for number in history.logs.commits.ids if number == 0 or number - 1 in held]
    clean = clean_batches(history, known) if as_recorded else set()
    return [number for number in known if number not in clean]


def _answer(records: list[Record], to: str | None, delay_ms: int | None, *, summary: bool, as_json: bool) -> None:
    if to:
        note(f"{_counted(records)}, saved to {redact(to)}")
    elif summary:
        _summarise(records, delay_ms, as_json=as_json)
    else:
        _show(records, as_json=as_json)


def _show(records: list[Record], *, as_json: bool) -> None:
    for record in records:
        if as_json:
            json_line(record)
            continue
        place = (
            f"{record['topic']}[{record['partition']}]@{record['offset']}"
            if record["kind"] == "kafka"
            else f"{record['path']}:{record['line']}"
        )
        say(f"batch {record['batch_id']}  {record['reason']:<9}  {place}  {record['detail']}")
        say(f"  {record['value']}")
    if not as_json:
        note(_counted(records))


def _counted(records: list[Record]) -> str:
    late_ones = sum(record["reason"] == "late" for record in records)
    return f"{late_ones} late, {len(records) - late_ones} malformed"


def _summarise(records: list[Record], delay_ms: int | None, *, as_json: bool) -> None:
    from headwater.views.lateness import lateness_summary, spelled_seconds, suggested_extra_delay_seconds

    for one in lateness_summary(records):
        if as_json:
            json_line(one)
            continue
        behind = ", ".join(f"{count} {step}" for step, count in one["behind"].items())
        say(f"batch {one['batch_id']}  {one['records']} {one['reason']}" + (f": behind by {behind}" if behind else ""))
    extra = suggested_extra_delay_seconds(records)
    now = (delay_ms or 0) // 1000
    if as_json:
        if extra is not None:
            json_line({"watermark_delay_seconds": now, "suggested_watermark_delay_seconds": now + extra})
        return
    note(_counted(records))
    if extra is not None:
        note(
            f"a watermark delay of {spelled_seconds(now + extra)} instead of {spelled_seconds(now)} "
            "would have kept 99 % of the late records"
        )
