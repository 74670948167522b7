"""The rows that batches have written, read from the files of a file sink or a Delta table without Spark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from headwater.checkpoint.file_logs import FileSinkLog
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import read_job_record, sink_of, uri_kind
from headwater.core.errors import CheckpointUnreadable, HeadwaterError
from headwater.core.uris import parse_uri
from headwater.lakehouse.delta_actions import Commit
from headwater.lakehouse.delta_lineage import lineage
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.tables import parse_table_uri
from headwater.timemachine.cuts import relative_to_sink

Row = dict[str, Any]
RowsOf = Callable[[int], list[Row] | None]
"""Returns the rows that a batch has written; None if the sink no longer shows which they are."""


def rows_by_batch(files: FileTree) -> tuple[RowsOf | None, str]:
    """Return a reader of the rows that the batches of a checkpoint have written, or None and the reason."""
    record = read_job_record(files)
    kind = uri_kind(record.sink)
    if record.mode not in (None, "append"):
        return None, f"in {record.mode} mode, what a batch writes depends on where the batch ends"
    if kind == "files" or record.table_folder:
        return _file_rows(files, record.sink or "")
    if kind == "delta":
        return _delta_rows(files, record.sink or "")
    return None, f"rows in {kind or 'an unknown sink'} do not show which batch wrote them"


def _file_rows(files: FileTree, uri: str) -> tuple[RowsOf | None, str]:
    sink = sink_of(files)
    if sink is None:
        return None, "the folder of the sink is not recorded"
    log = FileSinkLog(sink)
    if not log.names.ids:
        return None, f"{sink.location} has no file sink log"
    options = parse_uri(uri).options if uri_kind(uri) == "files" else {}

    def rows_of(batch: int) -> list[Row] | None:
        if batch not in log.names.by_id:
            return [] if log.names.latest is not None and batch > log.names.latest else None
        entries = list(log.read(batch).entries)
        if log.names.is_compact(batch) and batch > 0:
            if log.names.missing_for(batch - 1):  # what earlier batches wrote is only in this file
                return None
            numbers = log.names.needed_for(batch - 1)
            earlier = {one.path for number in numbers for one in log.read(number).entries}
            entries = [entry for entry in entries if entry.path not in earlier]
        return [row for entry in entries for row in _read_file(sink, relative_to_sink(sink, entry.path), options)]

    return rows_of, ""


def _delta_rows(files: FileTree, uri: str) -> tuple[RowsOf | None, str]:
    parsed, query = parse_table_uri(uri), History(files).logs.query.entry
    if parsed is None or query is None:
        return None, "the table or the id of the query is unknown"
    folder = open_files(parsed.path)
    log = DeltaLog(folder)
    if not log.exists:
        return None, f"there is no Delta table at {parsed.path}"
    app_id = parsed.options.get("txnAppId", query.query_id)
    by_batch: dict[int, Commit] = {}
    for link in lineage(log, log.head):  # without batches that were rewound
        batch = link.batch_of(app_id)
        if link.commit is not None and batch is not None and not link.is_jump:
            by_batch.setdefault(batch, link.commit)

    def rows_of(batch: int) -> list[Row] | None:
        if batch not in by_batch:
            return None
        adds = by_batch[batch].adds
        if any(action.get("deletionVector") for action in adds):
            return None
        return [row for action in adds for row in _read_file(folder, unquote(str(action["path"])), {}, "parquet")]

    return rows_of, ""


def _read_file(sink: FileTree, path: str, options: dict[str, str], form: str | None = None) -> Iterator[Row]:
    """Yield the rows of a data file; the values of partition columns are in its path."""
    form = form or next((one for one in ("json", "csv", "parquet", "orc", "txt") if f".{one}" in path), None)
    data = sink.read(path)
    partitions = {
        name: unquote(value) for part in path.split("/")[:-1] if "=" in part for name, _, value in [part.partition("=")]
    }
    for row in _parsed(data, form, path, options):
        yield {**row, **partitions}


def _parsed(data: bytes, form: str | None, path: str, options: dict[str, str]) -> Iterator[Row]:
    match form:
        case "json":
            yield from (json.loads(line) for line in data.splitlines() if line.strip())
        case "csv":
            lines = csv.reader(io.StringIO(data.decode("utf-8")), delimiter=options.get("sep", ","))
            yield from ({f"_c{number}": value for number, value in enumerate(row)} for row in lines)
        case "txt":
            texts = data.decode("utf-8").removesuffix("\n").split("\n") if data else []
            yield from ({"value": text} for text in texts)
        case "parquet" | "orc":
            from pyarrow import orc, parquet  # noqa: PLC0415  only these formats need it

            module = parquet if form == "parquet" else orc
            table = module.read_table(io.BytesIO(data))
            yield from (json.loads(json.dumps(row, default=str)) for row in table.to_pylist())
        case _:
            raise CheckpointUnreadable("unreadable-file", f"{path} is in a format that Headwater does not read")


def rows_between(rows_of: RowsOf, first: int, last: int) -> list[Row] | None:
    """Return the rows of several batches; None if those of one of them cannot be read."""
    found: list[Row] = []
    for batch in range(first, last + 1):
        try:
            rows = rows_of(batch)
        except (HeadwaterError, OSError, ValueError):
            return None
        if rows is None:
            return None
        found += rows
    return found
