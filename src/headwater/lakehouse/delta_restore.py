"""Plan the return of a Delta table to a batch: which commits leave, which stay, and why that may be impossible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.lakehouse.delta_actions import Action, Commit, file_key, rows_in
from headwater.lakehouse.delta_commit import Restoration
from headwater.lakehouse.delta_files import missing_files
from headwater.lakehouse.delta_lineage import Link, lineage, lineage_until, mark_of, repeats_metadata
from headwater.lakehouse.delta_log import DeltaLog, Snapshot
from headwater.lakehouse.tables import Checkpointed, FilesMoved

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
STREAMING = "STREAMING UPDATE"
SHOWN_COMMITS = 5
OthersSince = Literal["refuse", "keep", "leave out"]


def plan_restoration(
    log: DeltaLog, query: Checkpointed, to: int, *, uri: str, app_id: str, others_since: OthersSince
) -> Restoration | None:
    """Return the contents as of a batch, -1 for before the first; None if the table is there already.

    ``others_since`` decides about commits of other programs after the batch.
    """
    head = log.snapshot(log.head)
    _refuse_unknown_query(log, head, app_id, uri, query)
    links, is_complete = lineage_until(log, log.head, lambda link: _is_start(log, link, app_id, to))
    newest = max((batch for link in links if (batch := _batch_at(log, link, app_id)) is not None), default=-1)
    recorded = head.transactions.get(app_id, -1)
    _refuse_behind(query, links, newest, recorded, to, uri)
    gone = [link for link in links if (batch := link.batch_of(app_id)) is not None and batch > to]
    if not gone and recorded <= to:
        return None
    if not is_complete:
        raise _log_cleaned(log, query, to, uri)
    _refuse_copy_start(gone, to, uri, query)
    base, rest = _split(links, {link.version for link in gone})
    first_gone = links.index(gone[0]) if gone else len(links)
    others = _others(log, links[first_gone:], app_id)
    if others_since == "leave out":
        before = {link.version for link in links[:first_gone]}
        others, rest = [], [link for link in rest if link.version in before]
    if others and others_since == "refuse":
        raise _foreign(others, query, to, uri)
    rest = rest if any(_matters(log, link) for link in rest) else []
    result, kept = _replay(log, head, base, rest, gone, uri)
    batches = {batch for link in gone if not link.is_jump and (batch := link.batch_of(app_id)) is not None}
    return Restoration(
        head,
        result,
        -1 if base is None else base,
        kept,
        app_id,
        to,
        tuple(sorted(batches)),
        tuple(link.commit for link in others if link.commit),
    )


def plan_return(
    log: DeltaLog, query: Checkpointed, undone_at: int, *, uri: str, keep_foreign: bool, app_id: str
) -> Restoration:
    """Return the contents that the table had before a commit of Headwater, with other programs' commits since."""
    links, found = lineage_until(log, log.head, lambda link: link.version == undone_at)
    if not found or links[0].version != undone_at:
        raise ChangeRefused(
            "table-moved",
            "another program has restored the table since, so the change to it cannot be undone",
            evidence={"table": uri, "version now": log.head, "version of the change": undone_at},
            remedy="restore the table to that version, and try again",
        )
    since = links[1:]
    before = undone_at - 1
    if not log.can_rebuild(before):
        raise ChangeRefused(
            "table-log-cleaned",
            f"the log of the table no longer has version {before}, to which undo would return",
            evidence={"table": uri, "oldest commit": log.versions[0] if log.versions else "none"},
        )
    batch = log.snapshot(before).transactions.get(app_id, -1)
    return _return_to(log, query, before, since, batch, uri=uri, keep_foreign=keep_foreign, app_id=app_id, to=None)


def plan_pinned(
    log: DeltaLog, query: Checkpointed, version: int, batch: int, *, uri: str, keep_foreign: bool, app_id: str
) -> Restoration | None:
    """Return the contents of a version that a restore point has recorded; None if the table has them already.

    The version may be in a branch that a rewind has left since.
    """
    if not log.can_rebuild(version):
        raise _log_cleaned(log, query, batch, uri)
    pinned = list(lineage(log, version))
    _refuse_foreign_return(log, pinned, app_id, uri, query, batch)
    known = {link.version for link in pinned}
    links, _ = lineage_until(log, log.head, lambda link: link.version in known)
    since = [link for link in links if link.version not in known]
    head = log.snapshot(log.head)
    if log.snapshot(version).files.keys() == head.files.keys() and head.transactions.get(app_id) == batch:
        return None
    return _return_to(log, query, version, since, batch, uri=uri, keep_foreign=keep_foreign, app_id=app_id, to=batch)


def _refuse_foreign_return(
    log: DeltaLog, pinned: Iterable[Link], app_id: str, uri: str, query: Checkpointed, batch: int
) -> None:
    """Raise ``ChangeRefused`` if a version has changes of other programs that these have undone since."""
    present = {link.version for link in lineage(log, log.head)}
    others = _others(log, (link for link in pinned if link.version not in present), app_id)
    if others:
        raise ChangeRefused(
            "foreign-commits",
            f"the restore point would bring back changes of other programs that have been undone since "
            f"({count(len(others), 'commit')})",
            evidence={"table": uri, "commits": described([link.commit for link in others if link.commit])},
            remedy=f"headwater rewind {query.location} --to {batch} --sink {uri}   (if the checkpoint still has the batch)",
        )


def version_of_batch(log: DeltaLog, app_id: str, batch: int) -> int | None:
    """Return the newest version with a batch of the query and none after it; None if the table has not recorded it."""
    found = None
    for link in lineage(log, log.head):
        own = link.batch_of(app_id)
        if own is not None and own > batch:
            found = None
        elif found is None and link.is_exact:
            found = link.version
        if own is not None and own <= batch:
            return found
    return None


def _return_to(
    log: DeltaLog,
    query: Checkpointed,
    base: int,
    since: Sequence[Link],
    batch: int,
    *,
    uri: str,
    keep_foreign: bool,
    app_id: str,
    to: int | None,
) -> Restoration:
    """Return the contents of a version, without the query's commits since, and with those of others if they are kept."""
    others = _others(log, since, app_id)
    if others and not keep_foreign:
        raise _foreign(others, query, to, uri)
    gone = [link for link in since if link.batch_of(app_id) is not None]
    rest = [link for link in since if link.batch_of(app_id) is None] if others else []
    head = log.snapshot(log.head)
    result, kept = _replay(log, head, base, rest, gone, uri)
    batches = {number for link in gone if not link.is_jump and (number := link.batch_of(app_id)) is not None}
    return Restoration(
        head,
        result,
        base,
        kept,
        app_id,
        batch,
        tuple(sorted(batches)),
        tuple(link.commit for link in others if link.commit),
    )


def _is_start(log: DeltaLog, link: Link, app_id: str, to: int) -> bool:
    """Return whether everything before a link is certain to stay."""
    batch = _batch_at(log, link, app_id)
    return link.is_exact and batch is not None and batch <= to


def _batch_at(log: DeltaLog, link: Link, app_id: str) -> int | None:
    """Return the batch of a link; if only a log checkpoint is left of it, the newest one until then, -1 for none."""
    if link.commit is None:
        return log.snapshot(link.version).transactions.get(app_id, -1)
    return link.batch_of(app_id)


def _split(links: Sequence[Link], gone: set[int]) -> tuple[int | None, list[Link]]:
    """Return the newest exact version before all that leaves, and the links after it that stay."""
    base, start = None, 0
    for number, link in enumerate(links):
        if link.version in gone:
            break
        if link.is_exact:
            base, start = link.version, number + 1
    return base, [link for link in links[start:] if link.version not in gone]


def _others(log: DeltaLog, links: Iterable[Link], app_id: str) -> list[Link]:
    return [link for link in links if link.is_foreign(app_id) and not repeats_metadata(log, link)]


def _matters(log: DeltaLog, link: Link) -> bool:
    changes = link.commit is not None and link.commit.changes_rows and not link.is_jump
    return changes and not repeats_metadata(log, link)


def _replay(
    log: DeltaLog, head: Snapshot, base: int | None, rest: Iterable[Link], gone: Sequence[Link], uri: str
) -> tuple[Snapshot, tuple[int, ...]]:
    """Return the contents of a version with some later commits, and those commits.

    A commit is kept if all the files that it removed are there. One that only rearranged rows is left out otherwise.
    """
    if base is not None:
        refuse_cleaned_version(log, base, uri)
    empty = Snapshot(-1, head.protocol, head.metadata, domains=dict(head.domains))
    result = log.snapshot(base).copy() if base is not None else empty
    result.metadata = _merged_metadata(result.metadata, head)
    kept = []
    for link in rest:
        commit = link.commit
        if commit is None or link.is_jump:
            continue
        lost = [action["path"] for action in commit.removes if file_key(action) not in result.files]
        if lost and commit.changes_rows:
            raise _cannot_keep(commit, f"it rewrote {lost[0]}, which holds rows of undone batches", uri)
        if lost or not (commit.adds or commit.removes or commit.changes_rows):
            continue
        result.after(commit)
        kept.append(commit.version)
    if kept:
        changed = next((link.commit for link in gone if link.commit and "metaData" in link.commit.actions), None)
        if changed is not None and changed.version > 0:
            raise _cannot_keep(changed, "a batch that leaves changed the schema", uri)
        result.metadata = head.metadata
        result.domains = dict(head.domains)
    result.protocol = head.protocol
    return result, tuple(kept)


def refuse_cleaned_version(log: DeltaLog, version: int, uri: str) -> None:
    """Raise ``ChangeRefused`` if the log has been cleaned so far that a version cannot be read."""
    if not log.can_rebuild(version):
        raise ChangeRefused(
            "table-log-cleaned",
            f"the log of the table no longer has version {version}",
            evidence={"table": uri, "oldest commit": log.versions[0] if log.versions else "none"},
        )


def _merged_metadata(earlier: Action, head: Snapshot) -> Action:
    """Return metadata of an earlier version. Column ids must never be given twice, so their highest stays."""
    highest = head.configuration.get(MAX_COLUMN_ID)
    settings = earlier.get("configuration")
    if highest is None or not isinstance(settings, dict) or MAX_COLUMN_ID not in settings:
        return earlier
    return {**earlier, "configuration": {**settings, MAX_COLUMN_ID: highest}}


def moved(actions: Iterable[Action]) -> FilesMoved:
    """Return how many files and rows some actions are about."""
    counts = [rows_in(action) for action in actions]
    return FilesMoved(len(counts), None if None in counts else sum(count for count in counts if count is not None))


def refuse_missing_files(log: DeltaLog, restoration: Restoration, uri: str, remedy: str | None) -> None:
    """Raise ``ChangeRefused`` if files that have to return were deleted."""
    lost = missing_files(log.files, restoration.returning)
    if lost:
        raise ChangeRefused(
            "table-file-missing",
            f"{len(lost)} of the files that the table needs again were deleted, by VACUUM or by hand",
            evidence={"table": uri, "first missing": lost[0]},
            remedy=remedy,
        )


def _refuse_unknown_query(log: DeltaLog, head: Snapshot, app_id: str, uri: str, query: Checkpointed) -> None:
    if app_id in head.transactions or any(log.commit(number).batch_of(app_id) is not None for number in log.versions):
        return
    others = sorted(head.transactions)
    retention = head.configuration.get(TRANSACTION_RETENTION)
    if retention:
        raise ChangeRefused(
            "txn-expired",
            "the table no longer records which batches of this query it holds",
            evidence={"table": uri, "query id": app_id, TRANSACTION_RETENTION: retention},
            remedy=f"continue with a table of its own: headwater fork {query.location} INTO --sink delta:PATH",
        )
    raise ChangeRefused(
        "not-its-table",
        "the table has no batch of this query: another query wrote it, or foreachBatch writes without txnAppId",
        evidence={"table": uri, "query id": app_id, "transactions in the table": ", ".join(others) or "none"},
        remedy=f"--sink '{uri}?txnAppId={others[0]}', if foreachBatch uses that id and the batch as txnVersion"
        if others
        else "write with the options txnAppId (the query's id) and txnVersion (the batch) in foreachBatch",
    )


def _refuse_behind(query: Checkpointed, links: Sequence[Link], newest: int, recorded: int, to: int, uri: str) -> None:
    if newest >= to or to > query.committed:
        return
    if recorded > newest:
        raise ChangeRefused(
            "table-restored",
            f"the table was restored by hand: it holds batches up to {newest} and would skip those up to {recorded}",
            evidence={"table": uri, "checkpoint": query.location},
            remedy=f"headwater rewind {query.location} --redo {newest + 1} --sink {uri}",
        )
    writes_all = any(link.commit and link.commit.operation == STREAMING for link in links)
    if newest >= 0 and writes_all:
        raise ChangeRefused(
            "table-behind",
            f"the table ends at batch {newest}: rows of later batches that would be kept are missing",
            evidence={"table": uri, "checkpoint": query.location, "committed": query.committed},
            remedy=f"headwater rewind {query.location} --to {newest} --sink {uri}",
        )


def _refuse_copy_start(gone: Sequence[Link], to: int, uri: str, query: Checkpointed) -> None:
    first = gone[0].commit if gone else None
    mark = mark_of(first) if first else None
    if first is not None and mark is not None and mark.is_copy and to >= 0:
        batch = first.batch_of(query.query_id)
        raise ChangeRefused(
            "table-log-cleaned",
            f"the table is a copy that starts with the rows of batch {batch}: it cannot return to batch {to}",
            evidence={"table": uri},
            remedy=f"headwater rewind {query.location} --to {batch} --sink {uri}",
        )


def _foreign(others: Sequence[Link], query: Checkpointed, to: int | None, uri: str) -> ChangeRefused:
    verb = f"undo {query.location}" if to is None else f"rewind {query.location} --redo {to + 1}"
    return ChangeRefused(
        "foreign-commits",
        f"other programs have changed the table since; their changes would be lost ({count(len(others), 'commit')})",
        evidence={"table": uri, "commits": described([link.commit for link in others if link.commit])},
        remedy=f"headwater {verb} --sink {uri} --keep-foreign",
    )


def described(commits: Sequence[Commit]) -> str:
    """Return a short list of commits: ``version 7 (DELETE)``."""
    shown = ", ".join(f"version {commit.version} ({commit.operation})" for commit in commits[:SHOWN_COMMITS])
    return shown + (f" and {len(commits) - SHOWN_COMMITS} more" if len(commits) > SHOWN_COMMITS else "")


def _cannot_keep(commit: Commit, why: str, uri: str) -> ChangeRefused:
    return ChangeRefused(
        "cannot-keep-foreign",
        "the changes of other programs cannot be separated from those of the undone batches",
        evidence={"table": uri, "commit": described([commit]), "why": why},
        remedy="rewind to a batch after that commit, or undo it first with the program that made it",
    )


def _log_cleaned(log: DeltaLog, query: Checkpointed, to: int, uri: str) -> ChangeRefused:
    oldest = log.versions[0] if log.versions else None
    return ChangeRefused(
        "table-log-cleaned",
        f"the log of the table does not reach back to {'the first batch' if to < 0 else f'batch {to}'}",
        evidence={"table": uri, "oldest commit": "none" if oldest is None else f"version {oldest}"},
        remedy=f"rewind to a later batch, or continue with a table of its own: headwater fork {query.location} INTO",
    )
