"""The table that a query writes to, beside its checkpoint: found, compared, and planned together with a change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TypedDict

from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import METADATA
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.record import FILES, read_job_record, sink_of
from headwater.checkpoint.restore_points import RestorePoint, restore_points
from headwater.core.errors import ChangeRefused, HeadwaterError, UsageProblem, redact
from headwater.core.finding import Finding
from headwater.lakehouse.tables import TABLE_NAMES, TABLE_URIS, Checkpointed, RewindableTable, open_table
from headwater.timemachine.journal import added_batches, first_rerun


def table_of(files: FileTree, given: str | None = None) -> RewindableTable | None:
    """Return the table of a checkpoint's query: as given, or as it was recorded. None if the sink is not a table.

    A recorded table that does not exist is not returned; one that is given is, so that planning can refuse it.
    """
    uri = given if given is not None else read_job_record(files).sink
    table = open_table(uri) if uri else None
    return table if table is not None and (given is not None or table.exists) else None


def checkpointed(history: History) -> Checkpointed:
    """Return what a table is compared with. Batches that Headwater itself added have written nothing to any sink."""
    added = added_batches(history.files)
    commits, offsets = history.logs.commits.ids, history.logs.offsets.ids
    return Checkpointed(
        history.files.location,
        parse_query_metadata(read_bytes(history.files, METADATA)).query_id,
        max((number for number in commits if number not in added), default=-1),
        max([*commits[-1:], *offsets[-1:]], default=-1),
        history.logs.is_format_two,
    )


class Pinned(TypedDict):
    """What a restore point records of a table."""

    table: str | None
    table_version: int | None
    table_id: str | None


def pinned_table(history: History, batch: int) -> Pinned:
    """Return the recorded table of a query and the version that a restore point of a batch pins; None if unknown."""
    unknown = Pinned(table=None, table_version=None, table_id=None)
    try:
        table = table_of(history.files)
        version = None if table is None else table.version_of(checkpointed(history), batch)
        if table is None or version is None:
            return unknown
        return Pinned(table=table.uri, table_version=version, table_id=table.table_id)
    except (HeadwaterError, OSError):
        return unknown


def pinned_version(files: FileTree, point: RestorePoint, table: RewindableTable) -> int | None:
    """Return the version of the table that the point recorded; None if the table itself still shows it."""
    if point.table == table.uri and point.table_version is not None:
        if point.table_id and table.table_id and point.table_id != table.table_id:
            raise ChangeRefused(
                "table-not-kept",
                f"the table of the restore point {point.name} is gone: another one is at its place now",
                evidence={"table": table.uri, "id": table.table_id, "recorded": point.table_id},
                remedy="choose a restore point that was made since",
            )
        return point.table_version
    if first_to_undo(files, point) > point.batch_id:
        return None
    raise ChangeRefused(
        "table-not-kept",
        f"the restore point {point.name} does not record the version of the table, and its batches ran again since",
        evidence={"table": table.uri, "recorded": point.table or "none"},
        remedy="undo the rewinds since, or choose a restore point that was made after them",
    )


def first_to_undo(files: FileTree, point: RestorePoint) -> int:
    """Return the first batch that may not be one that the point continues: rewinds since may have gone back further."""
    again = first_rerun(files, point.generation)
    return point.batch_id + 1 if again is None else min(point.batch_id + 1, again)


def fsck(files: FileTree, sink: str | None = None) -> list[Finding]:
    """Return the findings about a checkpoint and its sink.

    ``sink`` is ``files:DIR`` or the URI of a table, by default the sink that ``headwater run`` recorded.
    """
    table = table_of(files, sink)
    if sink is not None and table is None and not sink.startswith(FILES):
        raise UsageProblem(
            "not-a-file-sink",
            f"only a file sink or {TABLE_NAMES} can be checked, and {redact(sink)!r} is neither",
            remedy=f"headwater fsck CKPT --sink files:DIR   (or {TABLE_URIS})",
        )
    context = CheckContext(files, time.time_ns() // 1_000_000, None if table else sink_of(files, sink))
    found = _check(context, sink)
    if any(finding.severity != "info" for finding in found) and context.has_moved_on():
        # A running query may have changed files between two checks. Only what is damaged is found twice.
        again = _check(context.again(), sink)
        lasting = {(finding.code, finding.path) for finding in found}
        return [finding for finding in again if finding.severity == "info" or (finding.code, finding.path) in lasting]
    return found


def _check(context: CheckContext, sink: str | None) -> list[Finding]:
    return [*run_checks(context), *_compare(context, sink)]


def _pins(context: CheckContext, table: RewindableTable) -> Iterator[Finding]:
    table_id = table.table_id
    for point in restore_points(context.files):
        if point.table == table.uri and point.table_version is not None:
            if not point.table_id or not table_id or point.table_id == table_id:
                problem = table.check_pinned(point.table_version, point.kept_at_ms, context.now_ms)
            else:
                problem = "another table is at its place now"
            if problem:
                message = f"restore point {point.name}, batch {point.batch_id}: {problem}"
                yield Finding("warning", "kept-table", table.uri, message)


def _confirmed(context: CheckContext, table: RewindableTable, found: list[Finding]) -> list[Finding]:
    """Return the findings that apply to the batches listed before the table was read, and to those listed after it."""
    try:
        after = list(table.compare(checkpointed(History(context.files))))
    except HeadwaterError:
        return found
    codes = {finding.code for finding in after}
    lasting = [finding for finding in found if finding.code in codes]
    return lasting or [finding for finding in after if finding.severity == "info"]


def _compare(context: CheckContext, sink: str | None) -> list[Finding]:
    try:
        query = checkpointed(context.history)
    except HeadwaterError:  # the checks have reported why the checkpoint cannot be read
        return []
    # Opened only now: all batches that were listed as committed are in the table.
    table = table_of(context.files, sink)
    if table is None:
        return []
    found = list(table.compare(query))
    if any(finding.severity != "info" for finding in found):
        found = _confirmed(context, table, found)
    with suppress(HeadwaterError):  # the comparison has reported why the table cannot be read
        found += _pins(context, table)
    return found
