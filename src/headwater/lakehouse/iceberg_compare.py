"""Compare the batches of an Iceberg table with those of the checkpoint, for ``fsck``."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core.finding import Finding
from headwater.lakehouse.iceberg_metadata import TableMetadata
from headwater.lakehouse.iceberg_restore import Named, newest_batch
from headwater.lakehouse.tables import Checkpointed


def compare_batches(table: TableMetadata | None, query: Checkpointed, named: Named) -> Iterator[Finding]:
    """Yield whether the table is ahead of the checkpoint, behind it or equal, and the command that repairs it."""
    uri = named.uri
    if table is None:
        if query.committed >= 0:
            message = (
                f"is missing, but the checkpoint has committed batch {query.committed}: check the name of the sink"
            )
            yield Finding("error", "table-missing", uri, message)
        return
    found = newest_batch(table, query.query_id)
    if found is None and all(one.query_id != query.query_id for one in table.snapshots.values()):
        if query.committed >= 0 or table.head is not None:
            message = f"has no batch of this query (id {query.query_id}): another query wrote it, or its snapshots have expired"
            yield Finding("warning", "not-its-table", uri, message)
        return
    newest = -1 if found is None else found
    rewind = f"run headwater rewind {query.location} --redo"
    if newest > query.planned:
        ends = "has no batches" if query.planned < 0 else f"ends at batch {query.planned}"
        message = (
            f"is ahead: it holds batch {newest}, but the checkpoint {ends}; Iceberg would silently skip batches up to "
            f"{newest}; {rewind} {query.planned + 1} --sink {named.option}"
        )
        yield Finding("error", "table-ahead", uri, message)
    elif newest < query.committed:
        holds = "holds no batch" if newest < 0 else f"ends at batch {newest}"
        message = (
            f"is behind: it {holds}, but the checkpoint has committed batch {query.committed}; output is missing; "
            f"{rewind} {newest + 1} --sink {named.option}"
        )
        yield Finding("error", "table-behind", uri, message)
    else:
        what = (
            "which Spark has not committed yet and Iceberg will skip"
            if newest > query.committed
            else "as the checkpoint"
        )
        yield Finding("info", "table-equal", uri, f"is at snapshot {table.head} and ends at batch {newest}, {what}")
