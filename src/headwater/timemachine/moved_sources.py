"""Sources whose table was rewound: where a query continues after the commit that took rows back.

A query that reads a Delta table cannot pass a commit that removes rows. But if the files that it has read are the first
ones of the table as of that commit, in the order in which Delta reads a table, then it can continue with the others.
When Spark starts a query, it also asks the source for the last batch, so the offsets before it move as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.source_offsets import offset_value
from headwater.checkpoint.table_offsets import DeltaPosition, delta_position
from headwater.core.errors import CheckpointUnreadable
from headwater.core.text import count
from headwater.lakehouse.delta_actions import commit_path, file_key
from headwater.lakehouse.delta_lineage import Link
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_source import files_before, removes_rows, snapshot_files, unread_rows
from headwater.lakehouse.tables import TablePlan, TableUri, parse_table_uri
from headwater.timemachine.change import Preview, Put
from headwater.timemachine.compacted_log import LogCut
from headwater.timemachine.relocate import Place


@dataclass(frozen=True)
class MovedSource:
    """A source that continues at another position. ``returned_at`` is the version that has the files it has read."""

    source: str
    label: str
    table: str
    before: DeltaPosition
    after: DeltaPosition
    returned_at: int
    rows: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        places = {"from": str(self.before), "to": str(self.after), "returned_at": self.returned_at}
        return {"source": self.source, "table": self.table, **places, "rows": self.rows}

    @property
    def sentence(self) -> str:
        rows = "" if self.rows is None else f", {count(self.rows, 'row')}"
        if self.after.in_snapshot:
            return f"{self.label} with the rest of {self.table} as of version {self.returned_at}{rows}"
        return (
            f"{self.label} at version {self.after} of {self.table}{rows}: version {self.returned_at} returned the table "
            "to what the query has read"
        )


OpenLog = Callable[[TableUri], DeltaLog]
"""Returns the log of a table that a source reads: as it is, or as it will be after a change that is planned as well."""


def log_of(table: TableUri) -> DeltaLog:
    """Return the log of a table as it is."""
    return DeltaLog(open_files(table.path))


def log_after(tables: Iterable[TablePlan | None]) -> OpenLog:
    """Return what opens the log of a table as it will be after what is planned for some tables."""
    commits = {
        Place.of(parsed.path): plan.action
        for plan in tables
        if plan is not None and plan.action is not None and (parsed := parse_table_uri(plan.uri))
    }

    def open_log(table: TableUri) -> DeltaLog:
        action = commits.get(Place.of(table.path))
        if action is None:
            return log_of(table)
        put = Put("checkpoint", commit_path(int(action["version"])), str(action["commit"]).encode())
        return DeltaLog(Preview(open_files(table.path), [put]))

    return open_log


def moved_sources(
    history: History, to: int, table_of: Callable[[str], TableUri | None], open_log: OpenLog = log_of
) -> tuple[MovedSource, ...]:
    """Return the sources that have to continue at another position after batch ``to``, which is the last one kept.

    ``table_of`` returns the Delta table that a source reads, by the source's name in the offset log.
    """
    found = []
    for source, position in _positions(history, to).items():
        table = table_of(source)
        if table is None or table.options.get("skipChangeCommits", "").lower() == "true":
            continue
        log = open_log(table)
        before = _positions(history, to - 1).get(source)
        after = _moved(log, position)
        # Without an equivalent for the offsets before it, Spark could not start the query.
        if after is None or (before is not None and _moved(log, before) is None):
            continue
        identity = history.logs.identities.get(source)
        label = identity.label if identity else f"source {source}"
        rows = unread_rows(log, after)
        returned_at = after.version if after.in_snapshot else after.version - 1
        found.append(MovedSource(source, label, table.sink, position, after, returned_at, rows))
    return tuple(found)


def moved_offsets(
    history: History,
    to: int,
    moved: Sequence[MovedSource],
    table_of: Callable[[str], TableUri | None],
    open_log: OpenLog = log_of,
) -> Iterator[LogCut]:
    """Yield the replacement of the offsets of batch ``to`` and of the one before it, if a source continues elsewhere."""
    for batch in (to - 1, to) if moved else ():
        if history.logs.offsets.get(batch) is None:
            continue
        entry = history.logs.offsets.read(batch)
        text = entry.text.to_bytes().decode("utf-8")
        for one in moved:
            old = next(source.text for source in entry.sources if source.name == one.source)
            place, table = delta_position(offset_value(old)), table_of(one.source)
            if old is None or place is None or table is None:
                continue
            after = _moved(open_log(table), place)
            assert after is not None
            text = text.replace(old, _offset_text(json.loads(old), after), 1)
        name = history.logs.offsets.path(batch).removeprefix(f"{OFFSETS}/")
        yield LogCut((name,), {name: text.encode("utf-8")})


def _positions(history: History, batch: int) -> dict[str, DeltaPosition]:
    """Return the position of each Delta source after a batch."""
    entry = history.logs.offsets.get(batch)
    found = {source.name: delta_position(offset_value(source.text)) for source in (entry.sources if entry else ())}
    return {source: position for source, position in found.items() if position is not None}


def _moved(log: DeltaLog, position: DeltaPosition) -> DeltaPosition | None:
    """Return the position with the same files before it, after the last version that removed rows; None if none has.

    A restore after that version can bring the files back that the query has read.
    """
    try:
        removing = _removing(log, position) if log.exists else []
        if not removing or log.snapshot(log.head).table_id != position.table_id:
            return None
        has_read = {file_key(action) for action in files_before(log, position)}
        since = range(removing[-1] + 1, log.head + 1)
        restored = [number for number in since if log.has(number) and Link(number, log.commit(number)).is_jump]
        for version in (removing[-1], *restored):
            files = [file_key(action) for action in snapshot_files(log, version)]
            if set(files[: len(has_read)]) == has_read:
                if len(has_read) == len(files):
                    return DeltaPosition(version + 1, None, False, position.table_id)
                return DeltaPosition(version, len(has_read) - 1 if has_read else None, True, position.table_id)
    except (CheckpointUnreadable, OSError):
        pass
    return None


def _removing(log: DeltaLog, position: DeltaPosition) -> list[int]:
    """Return the versions that a query at a position has yet to pass and that remove rows."""
    first = position.version + 1 if position.in_snapshot else position.version
    return [number for number in range(first, log.head + 1) if log.has(number) and removes_rows(log.commit(number))]


def _offset_text(old: dict[str, Any], position: DeltaPosition) -> str:
    before_first = -100 if old.get("sourceVersion") == 3 else -1
    place = before_first if position.file is None else position.file
    offset = {**old, "reservoirVersion": position.version, "index": place, "isStartingVersion": position.in_snapshot}
    return json.dumps(offset, separators=(",", ":"))
