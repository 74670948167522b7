"""The rows of Delta and Iceberg tables that a job has not read yet, counted in the background while the page is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from headwater.checkpoint.history import Batch
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import JobRecord
from headwater.checkpoint.table_offsets import DeltaPosition, TablePosition, table_position
from headwater.core.errors import HeadwaterError
from headwater.lakehouse import delta_source, iceberg_source
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.iceberg_catalog import open_in_catalog
from headwater.lakehouse.tables import parse_table_uri

REFRESH_SECONDS = 2.0


class TableLag:
    """The lag of each source of a job that reads a table, as of the last time that the table's log was read."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, TablePosition], int | None] = {}
        self._refreshed_at = 0.0
        self._refreshing = threading.Lock()

    def by_source(self, job: JobRecord, batches: Sequence[Batch]) -> dict[str, int | None]:
        """Return the lag of each such source by its label, at once; None while it is unknown."""
        found = _positions(job, batches)
        if found and time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = time.monotonic()
            threading.Thread(target=self.refresh, args=(found,), daemon=True).start()
        return {label: self._rows.get(place) for label, place in found.items()}

    def refresh(self, places: Mapping[str, tuple[str, TablePosition]]) -> None:
        """Read the logs of the tables, unless another thread is still doing so."""
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            self._rows = {place: _unread(*place) for place in places.values()}
        finally:
            self._refreshing.release()


def _positions(job: JobRecord, batches: Sequence[Batch]) -> dict[str, tuple[str, TablePosition]]:
    """Return the table and the position of each source after the newest batch, by the source's label."""
    found = {}
    for source in batches[-1].sources if batches else ():
        uri = source.uri or (job.source if len(batches[-1].sources) == 1 else None)
        table, position = parse_table_uri(uri), table_position(source.end)
        if uri is not None and table is not None and position is not None and table.kind == position.kind:
            found[source.label] = (uri, position)
    return found


def _unread(uri: str, position: TablePosition) -> int | None:
    table = parse_table_uri(uri)
    assert table is not None
    try:
        if isinstance(position, DeltaPosition):
            return delta_source.unread_rows(DeltaLog(open_files(table.path)), position)
        found = open_in_catalog(table).load()
        return None if found is None else iceberg_source.unread_rows(found, position)
    except (HeadwaterError, OSError, ValueError):
        return None
