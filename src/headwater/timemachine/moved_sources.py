"""Sources whose table was rewound: where a query continues after the commit that took its rows back.

A query that reads a Delta table cannot pass a commit that removes rows. If that commit returned the table to exactly what
the last kept batch has read, then nothing between the two is missing, and the query can continue after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.source_offsets import offset_value
from headwater.checkpoint.table_offsets import DeltaPosition, delta_position
from headwater.core.errors import CheckpointUnreadable
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_source import removes_rows, unread_rows
from headwater.lakehouse.tables import TableUri
from headwater.timemachine.compacted_log import LogCut


@dataclass(frozen=True)
class MovedSource:
    """A source that continues at another version. ``returned_at`` is the version that took back what follows the batch."""

    source: str
    label: str
    table: str
    before: int
    after: int
    returned_at: int
    rows: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"source": self.source, "table": self.table, "from_version": self.before, "to_version": self.after}

    @property
    def sentence(self) -> str:
        return (
            f"{self.label} at version {self.after} of {self.table} instead of {self.before}: version {self.returned_at} "
            "returned the table to what the query has read"
        )


def moved_sources(history: History, to: int, table_of: Callable[[str], TableUri | None]) -> tuple[MovedSource, ...]:
    """Return the sources that have to continue at another version after batch ``to``, which is the last one kept.

    ``table_of`` returns the Delta table that a source reads, by the source's name in the offset log.
    """
    entry = history.logs.offsets.get(to)
    found = []
    for source in entry.sources if entry else ():
        position = delta_position(offset_value(source.text))
        table = table_of(source.name) if position else None
        if position is None or table is None or table.options.get("skipChangeCommits", "").lower() == "true":
            continue
        try:
            log = DeltaLog(open_files(table.path))
            returned_at = _returned_at(log, position) if log.exists else None
            rows = None if returned_at is None else unread_rows(log, DeltaPosition(returned_at + 1))
        except (CheckpointUnreadable, OSError):
            continue
        if returned_at is not None:
            identity = history.logs.identities.get(source.name)
            label = identity.label if identity else f"source {source.name}"
            found.append(
                MovedSource(source.name, label, table.sink, position.version, returned_at + 1, returned_at, rows)
            )
    return tuple(found)


def _returned_at(log: DeltaLog, position: DeltaPosition) -> int | None:
    """Return the last version that removes rows, if the table then has exactly what lies before the position."""
    if position.in_snapshot or position.file is not None or not log.can_rebuild(max(position.version - 1, 0)):
        return None
    later = [number for number in range(position.version, log.head + 1) if log.has(number)]
    removing = [number for number in later if removes_rows(log.commit(number))]
    if not removing or log.snapshot(log.head).table_id != position.table_id:
        return None
    was_read = log.snapshot(position.version - 1).files.keys() if position.version else set()
    return removing[-1] if log.snapshot(removing[-1]).files.keys() == was_read else None


def moved_offsets(history: History, to: int, moved: Sequence[MovedSource]) -> Iterator[LogCut]:
    """Yield the replacement of the offsets of batch ``to``, if a source has to continue elsewhere."""
    if not moved:
        return
    entry = history.logs.offsets.read(to)
    text = entry.text.to_bytes().decode("utf-8")
    for one in moved:
        old = next(source.text for source in entry.sources if source.name == one.source)
        assert old is not None
        offset = {**json.loads(old), "reservoirVersion": one.after}
        text = text.replace(old, json.dumps(offset, separators=(",", ":")), 1)
    name = history.logs.offsets.path(to).removeprefix(f"{OFFSETS}/")
    yield LogCut((name,), {name: text.encode("utf-8")})
