"""Compare the batches of a Delta table with those of the checkpoint, for ``fsck``."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core.finding import Finding
from headwater.lakehouse.delta_lineage import lineage
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_restore import STREAMING
from headwater.lakehouse.tables import Checkpointed


def compare_batches(log: DeltaLog, query: Checkpointed, app_id: str, uri: str) -> Iterator[Finding]:
    """Yield whether the table is ahead of the checkpoint, behind it or equal, and the command that repairs it."""
    if not log.exists:
        if query.committed >= 0:
            message = (
                f"is missing, but the checkpoint has committed batch {query.committed}: check the path of the sink"
            )
            yield Finding("error", "table-missing", uri, message)
        return
    newest, recorded, is_streaming = newest_batch(log, app_id)
    if newest is None and recorded is None:
        message = f"has no batch of this query (id {app_id}): another query or a foreachBatch without txnAppId wrote it"
        yield Finding("warning", "not-its-table", uri, message)
        return
    newest = -1 if newest is None else newest
    rewind = f"run headwater rewind {query.location} --redo"
    if recorded is not None and recorded > newest:
        message = (
            f"was restored by hand: it {_holds(newest)} but would silently skip batches up to {recorded}; "
            f"{rewind} {newest + 1} --sink {uri}"
        )
        yield Finding("error", "table-restored", uri, message)
    elif newest > query.planned:
        message = (
            f"is ahead: it holds batch {newest}, but the checkpoint {_ends(query.planned)}; Delta would silently skip "
            f"batches up to {newest}; {rewind} {query.planned + 1} --sink {uri}"
        )
        yield Finding("error", "table-ahead", uri, message)
    elif newest < query.committed:
        what = "output is missing" if is_streaming else "unless these batches had no rows, output is missing"
        message = (
            f"is behind: it {_holds(newest)}, but the checkpoint has committed batch {query.committed}; {what}; "
            f"{rewind} {newest + 1} --sink {uri}"
        )
        yield Finding("error" if is_streaming else "warning", "table-behind", uri, message)
    elif newest > query.committed and query.is_format_two:
        message = (
            f"contains batch {newest}, which was never committed: Delta skips it and, with checkpoint format 2, Spark "
            f"cannot continue; {rewind} {newest} --sink {uri}"
        )
        yield Finding("error", "batch-stuck", uri, message)
    else:
        what = (
            "which Spark has not committed yet and Delta will skip" if newest > query.committed else "as the checkpoint"
        )
        yield Finding("info", "table-equal", uri, f"is at version {log.head} and ends at batch {newest}, {what}")


def newest_batch(log: DeltaLog, app_id: str) -> tuple[int | None, int | None, bool]:
    """Return the newest batch in the lineage, the one that Delta compares with, and whether Delta's own sink wrote it."""
    recorded = log.snapshot(log.head).transactions.get(app_id)
    for link in lineage(log, log.head):
        batch = link.batch_of(app_id)
        if link.commit is None:
            return log.snapshot(link.version).transactions.get(app_id), recorded, False
        if batch is not None:
            return batch, recorded, link.commit.operation == STREAMING
    return None, recorded, False


def _holds(newest: int) -> str:
    return "holds no batch" if newest < 0 else f"ends at batch {newest}"


def _ends(planned: int) -> str:
    return "has no batches" if planned < 0 else f"ends at batch {planned}"
