"""``headwater late``: the records that were dropped as late or could not be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName, open_to_read
from headwater.cli.job_options import Conf, Settings, SourceUris, parse_pairs
from headwater.cli.output import StatusLine, json_line, json_lines, note, say
from headwater.core.errors import UsageProblem, redact

Record = dict[str, Any]


@app.command(rich_help_panel=INSPECT)
def late(
    checkpoint: CheckpointName,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Job, if the checkpoint does not record it.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="B", help="Only this batch; default: all in the log.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Save the records to kafka://…, files:DIR, table:NAME, delta:PATH or iceberg:TABLE."
        ),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Show counts and how late the records were instead of the records.")
    ] = False,
    source: SourceUris = None,
    settings: Settings = None,
    conf: Conf = None,
    as_json: JsonLines = False,
) -> None:
    """Show the records that were dropped as late or could not be decoded.

    Starts Spark and reads the recorded offsets of the batches from the source again. Batches whose input no longer exists
    are skipped with a warning, unless --batch names one.

    Examples:
      headwater late browser-stats-stateful --batch 41
      headwater late browser-stats-stateful --summary
    """
    from headwater.checkpoint.history import History
    from headwater.checkpoint.revisions import resolve
    from headwater.spark.recorded_job import recorded_job

    if to is not None and (summary or as_json):
        raise UsageProblem(
            "bad-option",
            f"{'--summary' if summary else '--json'} has no effect with --to, which saves the records",
            remedy="omit one of them",
        )
    files = open_to_read(checkpoint)
    history = History(files)
    chosen = recorded_job(files, job, sources=source or (), settings=parse_pairs(settings, "--set"))
    only = resolve(batch, history.batch_ids, history.committed_at_ms) if batch else None

    from headwater.spark.dropped.search import find_dropped, suspect_batches

    as_recorded = not (job or source or settings or conf)
    batches = suspect_batches(history, as_recorded=as_recorded) if only is None else [only]
    line = StatusLine()
    try:
        found = find_dropped(
            files,
            chosen,
            batches,
            conf=parse_pairs(conf, "--conf"),
            to=to,
            skip_unreadable=only is None,
            report=line.show,
            warn=line.keep,
        )
    finally:
        line.clear()
    records = [record.as_dict() for record in found.records]
    _print_result(records, to, found.delays_ms, summary=summary, as_json=as_json)


def _print_result(
    records: list[Record], to: str | None, delays_ms: Mapping[str | None, int], *, summary: bool, as_json: bool
) -> None:
    """Print the records or their summary. ``delays_ms`` has the watermark delay of each source, by name."""
    if to:
        note(f"{_counts(records)}, saved to {redact(to)}")
    elif summary:
        _print_summary(records, delays_ms, as_json=as_json)
    else:
        _print_records(records, as_json=as_json)


def _print_records(records: list[Record], *, as_json: bool) -> None:
    if as_json:
        json_lines(records)
        return
    for record in records:
        place = (
            f"{record['topic']}[{record['partition']}]@{record['offset']}"
            if record["kind"] == "kafka"
            else f"{record['path']}:{record['line']}"
        )
        named = f"{record['source']}  " if record["source"] else ""
        say(f"batch {record['batch_id']}  {record['reason']:<9}  {named}{place}  {record['detail']}")
        octets = record.get("value_base64")
        say(f"  {record['value']}" if record["value"] is not None or octets is None else f"  base64: {octets}")
    note(_counts(records))


def _counts(records: list[Record]) -> str:
    late_ones = sum(record["reason"] == "late" for record in records)
    return f"{late_ones} late, {len(records) - late_ones} malformed"


def _print_summary(records: list[Record], delays_ms: Mapping[str | None, int], *, as_json: bool) -> None:
    from headwater.views.lateness import lateness_summary, spell_seconds, suggested_extra_delay_seconds

    for one in lateness_summary(records):
        if as_json:
            json_line(one)
            continue
        lag = ", ".join(f"{count} by {step}" for step, count in one["behind"].items())
        say(f"batch {one['batch_id']}  {one['records']} {one['reason']}" + (f": {lag}" if lag else ""))
    if not as_json:
        note(_counts(records))
    for source, delay_ms in delays_ms.items():
        extra = suggested_extra_delay_seconds([record for record in records if record["source"] == source])
        now = delay_ms // 1000
        if extra is None:
            continue
        if as_json:
            named = {"source": source} if source else {}
            json_line({**named, "watermark_delay_seconds": now, "suggested_watermark_delay_seconds": now + extra})
        else:
            note(
                f"{f'{source}: ' if source else ''}a watermark delay of {spell_seconds(now + extra)} instead of "
                f"{spell_seconds(now)} would have kept 99% of the late records"
            )
