"""Check that what a query has read from a Delta or Iceberg table can be read again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.table_offsets import delta_position, iceberg_position
from headwater.core.errors import CheckpointUnreadable, HeadwaterError
from headwater.lakehouse import delta_source, iceberg_source
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.iceberg_catalog import open_in_catalog
from headwater.lakehouse.iceberg_metadata import TableMetadata
from headwater.lakehouse.tables import TableUri

if TYPE_CHECKING:
    from headwater.timemachine.effects import Reread


def check_delta(table: TableUri | None, reread: Reread, *, from_scratch: bool) -> Reread:
    """Check that the versions and files are still there. A query that restarts from scratch reads it as it is now."""
    end = delta_position(reread.end)
    if table is None or end is None:
        return replace(reread, why="the table is unknown; name it with --source delta:PATH")
    start = delta_position(reread.start)
    if start is None and reread.start is None:
        start = delta_source.start_position(end, table.options.get("startingVersion"))
    if start is None or "startingTimestamp" in table.options:
        return replace(reread, why="the checkpoint does not record where the batch started")
    try:
        log = DeltaLog(open_files(table.path))
        if not log.exists:
            return replace(reread, still_there=False, why=f"there is no Delta table at {table.path}")
        if from_scratch and not {"startingVersion", "startingTimestamp"} & table.options.keys():
            return replace(reread, start=None, end=None, rows=None, still_there=True)
        skips = table.options.get("skipChangeCommits", "").lower() == "true"
        why = delta_source.unreadable_part(log, start, end, skips_changes=skips)
        reads = [] if why else list(delta_source.reads_between(log, start, end))
    except (OSError, CheckpointUnreadable) as error:
        return replace(reread, why=f"the table cannot be read: {error}")
    rows = [read.rows for read in reads]
    total = reread.rows if None in rows or reread.rows is not None else sum(row for row in rows if row is not None)
    return replace(reread, rows=total, files=sum(len(read.adds) for read in reads), still_there=why is None, why=why)


def check_iceberg(history: History, table: TableUri | None, reread: Reread, *, replan: bool) -> Reread:
    """Check that the snapshots and files are still there."""
    end = iceberg_position(reread.end)
    if table is None or table.kind != "iceberg" or end is None:
        return replace(reread, why="the table is unknown; name it with --source iceberg:CATALOG.DATABASE.TABLE")
    try:
        found = open_in_catalog(table).load()
        if found is None:
            return replace(reread, still_there=False, why=f"there is no Iceberg table {table.path}")
        start = iceberg_position(reread.start) or iceberg_source.initial_position(history.files, reread.source)
        start = iceberg_source.start_position(found, start, end)
        if iceberg_source.is_rolled_back(found, start if replan else end):
            why: str | None = _rolled_back(history, reread, found)
        elif replan and iceberg_source.is_rolled_back(found, end):
            return replace(reread, end=None, rows=None, still_there=True)
        else:
            why = iceberg_source.unreadable_part(found, start, end, table.options)
        reads = [] if why else list(iceberg_source.reads_between(found, start, end))
    except HeadwaterError as error:
        return replace(reread, why=error.problem)
    except OSError as error:
        return replace(reread, why=f"the table cannot be read: {error}")
    rows = reread.rows if why or reread.rows is not None else sum(read.rows for read in reads)
    return replace(reread, rows=rows, files=sum(len(read.files) for read in reads), still_there=why is None, why=why)


def _rolled_back(history: History, reread: Reread, table: TableMetadata) -> str:
    """Return why a query cannot continue in an Iceberg table, and the last batch from which it can."""
    for number in reversed(history.batch_ids):
        ends = [iceberg_position(part.end) for part in history.batch(number).sources if part.name == reread.source]
        if ends and ends[0] is not None and not iceberg_source.is_rolled_back(table, ends[0]):
            return f"the table was rolled back; rewind to batch {number} or an earlier one, with --replan"
    return "the table was rolled back to before the first batch; start the query with a new checkpoint"
