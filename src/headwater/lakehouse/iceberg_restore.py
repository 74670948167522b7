"""Plan the return of an Iceberg table to a batch: the snapshot to set the main branch to, and why that may be impossible.

``compare_batches`` says for ``fsck`` whether the table needs one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.core.errors import ChangeRefused
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.lakehouse.iceberg_metadata import Snapshot, TableMetadata
from headwater.lakehouse.tables import Checkpointed

SHOWN = 5
KNOWN_FORMATS = (1, 2, 3)


@dataclass(frozen=True)
class Named:
    """How messages name a table: ``uri`` in text, ``option`` as the value of an option in a shell."""

    uri: str
    option: str


@dataclass(frozen=True)
class Return:
    """The snapshot that the main branch gets, None for an empty table, and the batches that leave."""

    to: int | None
    gone: tuple[int, ...]


def plan_return_to_batch(
    table: TableMetadata, query: Checkpointed, to: int, *, named: Named, keep_foreign: bool
) -> Return | None:
    """Return the snapshot before all later batches, -1 for before the first; None if the table has no later one."""
    lineage = list(table.lineage(table.head))
    own = [(snapshot, batch) for snapshot in lineage if (batch := table.batch_of(snapshot, query.query_id)) is not None]
    if not own:
        _refuse_unknown_query(table, lineage, query, to, named)
        return None
    refuse_behind(table, query, to, named)
    gone = [(snapshot, batch) for snapshot, batch in own if batch > to]
    if not gone:
        return None
    oldest = gone[-1][0]
    is_copy = table.copied_batch(oldest, query.query_id) is not None
    if is_copy and to >= 0:
        raise _before_copy(gone[-1][1], to, query, named)
    if not is_copy and table.has_expired(oldest):
        raise _expired(table, query, to, oldest.parent_id, named)
    # The older snapshots of a copy hold batches of the original, so nothing comes before it.
    target = None if is_copy else oldest.parent_id
    since = lineage[: lineage.index(oldest) + 1]
    refuse_foreign(table, since, query, to, named=named, keep_foreign=keep_foreign)
    return Return(target, tuple(sorted({batch for _, batch in gone})))


def refuse_behind(table: TableMetadata, query: Checkpointed, to: int, named: Named) -> None:
    """Raise ``ChangeRefused`` if the table lacks committed batches up to one."""
    newest = max(
        (batch for one in table.lineage(table.head) if (batch := table.batch_of(one, query.query_id)) is not None),
        default=None,
    )
    if newest is not None and newest < to <= query.committed:
        raise ChangeRefused(
            "table-behind",
            f"the table ends at batch {newest}: rows of later batches that would be kept are missing",
            evidence={"table": named.uri, "checkpoint": query.location, "committed": query.committed},
            remedy=f"headwater rewind {query.location} --to {newest} --sink {named.option}",
        )


def plan_return_to_snapshot(
    table: TableMetadata, query: Checkpointed, target: int | None, *, to: int | None, named: Named, keep_foreign: bool
) -> Return:
    """Return to a snapshot that was recorded. ``to`` is its batch for a rewind, None for an undo."""
    if target is not None and target not in table.snapshots:
        raise _expired(table, query, to, target, named)
    known = {snapshot.snapshot_id for snapshot in table.lineage(target)}
    since = [snapshot for snapshot in table.lineage(table.head) if snapshot.snapshot_id not in known]
    refuse_foreign(table, since, query, to, named=named, keep_foreign=keep_foreign)
    if to is not None:  # changes that other programs have undone since must not come back
        present = {snapshot.snapshot_id for snapshot in table.lineage(table.head)}
        again = [snapshot for snapshot in table.lineage(target) if snapshot.snapshot_id not in present]
        refuse_foreign(table, again, query, to, named=named, keep_foreign=keep_foreign)
    gone = {batch for snapshot in since if (batch := table.batch_of(snapshot, query.query_id)) is not None}
    return Return(target, tuple(sorted(gone)))


def snapshot_of_batch(table: TableMetadata, query_id: str, batch: int) -> int | None:
    """Return the newest snapshot with a batch of the query and none after it; None if the table has not recorded it."""
    found = None
    for snapshot in table.lineage(table.head):
        own = table.batch_of(snapshot, query_id)
        if own is not None and own > batch:
            found = None
        elif found is None:
            found = snapshot.snapshot_id
        if own is not None and own <= batch:
            return found
    return None


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
    found = _newest_batch(table, query.query_id)
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


def _newest_batch(table: TableMetadata, query_id: str) -> int | None:
    """Return the newest batch of a query, which Iceberg compares with; None if the table has none."""
    batches = (table.batch_of(snapshot, query_id) for snapshot in table.lineage(table.head))
    return next((batch for batch in batches if batch is not None), None)


def refuse_format(table: TableMetadata, named: Named) -> None:
    """Raise ``ChangeRefused`` for a table whose rules Headwater does not know."""
    if table.format_version not in KNOWN_FORMATS:
        raise ChangeRefused(
            "table-feature",
            f"the table has format version {table.format_version}, which Headwater cannot write",
            evidence={"table": named.uri, "known versions": ", ".join(map(str, KNOWN_FORMATS))},
            remedy="continue with a table of another format version: headwater fork CKPT INTO",
        )


def refuse_foreign(
    table: TableMetadata,
    since: Sequence[Snapshot],
    query: Checkpointed,
    to: int | None,
    *,
    named: Named,
    keep_foreign: bool,
) -> None:
    """Raise ``ChangeRefused`` if another program changed rows in snapshots that leave."""
    others = [one for one in since if one.changes_rows and table.batch_of(one, query.query_id) is None]
    if not others:
        return
    evidence = {"table": named.uri, "snapshots": described(others)}
    if keep_foreign:
        raise ChangeRefused(
            "cannot-keep-foreign",
            "an Iceberg table returns to one snapshot, so changes of other programs after it cannot be kept",
            evidence=evidence,
            remedy="rewind to a batch after these snapshots, or give the query a table of its own: "
            f"headwater fork {query.location} INTO --sink iceberg:CATALOG.DATABASE.TABLE",
        )
    later = [
        batch for one in since[: since.index(others[0])] if (batch := table.batch_of(one, query.query_id)) is not None
    ]
    raise ChangeRefused(
        "foreign-commits",
        f"other programs have changed the table since; their changes would be lost ({count(len(others), 'snapshot')})",
        evidence=evidence,
        remedy=f"headwater rewind {query.location} --redo {min(later)} --sink {named.option}   (the first batch after them)"
        if later and to is not None
        else "make these changes again afterwards: roll the table back to the snapshot before them, and try again",
    )


def described(snapshots: Sequence[Snapshot]) -> str:
    """Return a short list of snapshots, given newest first: ``3051729675574597004 (append)``."""
    oldest = list(snapshots)[::-1]
    shown = ", ".join(f"{one.snapshot_id} ({one.operation})" for one in oldest[:SHOWN])
    return shown + (f" and {len(oldest) - SHOWN} more" if len(oldest) > SHOWN else "")


def _before_copy(batch: int, to: int, query: Checkpointed, named: Named) -> ChangeRefused:
    return ChangeRefused(
        "snapshot-expired",
        f"the table is a copy that starts with the rows of batch {batch}: it cannot return to batch {to}",
        evidence={"table": named.uri},
        remedy=f"headwater rewind {query.location} --to {batch} --sink {named.option}",
    )


def _refuse_unknown_query(
    table: TableMetadata, lineage: Sequence[Snapshot], query: Checkpointed, to: int, named: Named
) -> None:
    others = sorted({one.query_id for one in table.snapshots.values() if one.query_id is not None})
    if query.planned < 0 or (to < 0 and (not table.snapshots or query.query_id in others)):
        return
    if lineage and table.has_expired(lineage[-1]):
        raise _expired(table, query, None, lineage[-1].parent_id, named)
    if query.query_id in others:
        raise ChangeRefused(
            "table-behind",
            "the table was rolled back to before the first batch of this query",
            evidence={"table": named.uri, "query id": query.query_id},
            remedy=f"headwater rewind {query.location} --redo 0 --sink {named.option}   (the table stays as it is)",
        )
    raise ChangeRefused(
        "not-its-table",
        "the table has no batch of this query: another query wrote it, or foreachBatch writes without its id",
        evidence={"table": named.uri, "query id": query.query_id, "queries in the table": ", ".join(others) or "none"},
        remedy="write with the options snapshot-property.spark.sql.streaming.queryId and "
        "snapshot-property.spark.sql.streaming.epochId in foreachBatch",
    )


def _expired(
    table: TableMetadata, query: Checkpointed, to: int | None, snapshot: int | None, named: Named
) -> ChangeRefused:
    oldest = min(table.snapshots.values(), key=lambda one: one.timestamp_ms, default=None)
    what = "before the first batch" if to == -1 else "that is needed" if to is None else f"of batch {to}"
    return ChangeRefused(
        "snapshot-expired",
        f"the table no longer has the snapshot {what}: it has expired",
        evidence={
            "table": named.uri,
            "snapshot": "unknown" if snapshot is None else snapshot,
            "oldest snapshot": "none" if oldest is None else f"{oldest.snapshot_id} ({oldest.operation})",
        },
        remedy=f"rewind to a later batch, or continue with a table of its own: headwater fork {query.location} INTO",
    )
