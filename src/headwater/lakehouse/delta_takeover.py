"""Give a Delta table the contents of a fork's table, by one commit, so that the fork continues in it.

The data files that only the fork's table has become files of the table itself: the caller shares them before the commit,
and until then no reader sees them. Rows that the original has written since the fork leave with the same commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.lakehouse.delta_actions import ROW_TRACKING, Action, file_key
from headwater.lakehouse.delta_commit import Restoration
from headwater.lakehouse.delta_files import absolute, is_absolute, missing_files, vector_path
from headwater.lakehouse.delta_lineage import lineage_until, mark_of, repeats_metadata
from headwater.lakehouse.delta_log import DeltaLog, Snapshot
from headwater.lakehouse.delta_restore import plan_restoration
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.tables import Checkpointed


@dataclass(frozen=True)
class TableTakeover:
    """A commit to a table, and the files of another table that it needs there, by path. ``action`` None: nothing to do."""

    action: Mapping[str, Any] | None
    files: tuple[str, ...] = ()
    leaving: int = 0
    coming: int = 0
    """How many files are removed from the table, and how many are added."""


@dataclass(frozen=True)
class Fork:
    """The fork's side: its own table, its query, and the last batch of the original that it continues; None for none."""

    table: DeltaTable
    query: Checkpointed
    at: int | None
    mode: str = "append"
    """``append``, ``complete``, or ``merge`` if rows are updated."""


def plan_delta_takeover(table: DeltaTable, original: Checkpointed, fork: Fork, *, change_id: str) -> TableTakeover:
    """Plan the commit after which the original's table has the rows of the fork.

    Raise ``ChangeRefused`` if other programs have changed the table since the fork, or if the tables do not match.
    """
    log, own = table.log, fork.table.log
    if not own.exists:
        raise ChangeRefused(
            "nothing-to-do",
            "the fork has no table yet: it has not committed a batch",
            evidence={"table": fork.table.uri},
        )
    head, theirs = log.snapshot(log.head), own.snapshot(own.head)
    copied = _copied_version(own)
    is_copy = copied is not None
    _refuse_mismatch(head, theirs, is_copy)
    if copied is not None:
        _refuse_changes_since(log, copied, table.app_id(original), table.uri)
    at = -1 if fork.at is None else fork.at
    before = plan_restoration(log, original, at, uri=table.uri, app_id=table.app_id(original), others_since="refuse")
    lost = missing_files(own.files, theirs.files.values())
    if lost:
        raise ChangeRefused(
            "table-file-missing",
            f"{count(len(lost), 'file')} of the fork's table no longer exist",
            evidence={"table": fork.table.uri, "first missing": lost[0]},
        )
    if fork.mode == "merge" and not is_copy:
        raise ChangeRefused(
            "sink-not-taken-over",
            "the table of the fork is not a copy of the original's, so rows would be in the result twice",
        )
    keeps_earlier = fork.mode == "append" and not is_copy
    result = (head if before is None else before.result).copy() if keeps_earlier else Snapshot(-1)
    result.protocol, result.domains = head.protocol, dict(head.domains)
    result.metadata = {**head.metadata, "schemaString": theirs.metadata.get("schemaString")}
    result.files |= {file_key(action): action for action in _as_files_of(table, theirs.files.values())}
    app_id = fork.table.app_id(fork.query)
    batch = theirs.transactions.get(app_id, at)
    found = Restoration(head, result, -1, (), app_id, batch, (), is_copy=True)
    shared = tuple(_relative_paths(theirs.files.values()))
    return TableTakeover(
        table.action_for(found, change_id, "promote"), shared, len(found.leaving), len(found.returning)
    )


def plan_delta_catch_up(
    own: DeltaTable, table: DeltaTable, fork: Checkpointed, since: int, *, change_id: str
) -> TableTakeover:
    """Plan the commit that adds to a fork's table what the fork has written to another one after version ``since``."""
    log, head = table.log, own.log.snapshot(own.log.head)
    then, now = log.snapshot(since), log.snapshot(log.head)
    app_id = own.app_id(fork)
    batch = now.transactions.get(app_id, -1)
    if batch <= head.transactions.get(app_id, -1):
        return TableTakeover(None)
    added = [action for key, action in now.files.items() if key not in then.files]
    gone = {
        place for key, action in then.files.items() if key not in now.files for place in _places(own, table, action)
    }
    result = head.copy()
    result.files = {
        key: action for key, action in head.files.items() if absolute(own.files, action["path"]) not in gone
    }
    result.files |= {file_key(action): action for action in _as_files_of(own, added)}
    result.metadata = {**head.metadata, "schemaString": now.metadata.get("schemaString")}
    found = Restoration(head, result, -1, (), app_id, batch, (), is_copy=True)
    shared = tuple(_relative_paths(added))
    return TableTakeover(own.action_for(found, change_id, "undo"), shared, len(found.leaving), len(found.returning))


def _places(own: DeltaTable, table: DeltaTable, action: Action) -> Iterator[str]:
    """Yield where a file of one table may be for the other one: shared with it, or a copy with the same name."""
    path = str(action["path"])
    yield absolute(table.files, path)
    if not is_absolute(path):
        yield absolute(own.files, path)


def _copied_version(own: DeltaLog) -> int | None:
    """Return the version of the original's table that a fork's table began with; None if it began empty."""
    if not own.has(0):
        raise ChangeRefused(
            "sink-not-taken-over",
            "the log of the fork's table no longer shows how the table began",
            evidence={"oldest commit": own.versions[0] if own.versions else "none"},
        )
    mark = mark_of(own.commit(0))
    return int(own.commit(0).parameters["sourceVersion"]) if mark is not None and mark.is_copy else None


def _refuse_changes_since(log: DeltaLog, version: int, app_id: str, uri: str) -> None:
    """Raise ``ChangeRefused`` if other programs have changed a table since it was copied: the copy lacks that."""
    links, _ = lineage_until(log, log.head, lambda link: link.version <= version)
    others = [
        link for link in links if link.version > version and link.is_foreign(app_id) and not repeats_metadata(log, link)
    ]
    if others:
        raise ChangeRefused(
            "foreign-commits",
            f"other programs have changed the table since the fork ({count(len(others), 'commit')})",
            evidence={"table": uri, "versions": ", ".join(str(link.version) for link in others[:5])},
        )


def _refuse_mismatch(head: Snapshot, theirs: Snapshot, is_copy: bool) -> None:
    problem = None
    if list(head.metadata.get("partitionColumns") or ()) != list(theirs.metadata.get("partitionColumns") or ()):
        problem = "the two tables have different partition columns"
    elif not _protocol_of(theirs) <= _protocol_of(head):
        problem = "the table of the fork has features that the table of the original does not have"
    elif head.configuration.get("delta.columnMapping.mode", "none") != "none" and not is_copy:
        problem = "the table of the original has a column mapping, and the table of the fork is not a copy of it"
    elif ROW_TRACKING in head.domains or ROW_TRACKING in theirs.domains:
        problem = "the tables have row tracking, and both may have given the same row ids"
    if problem:
        raise ChangeRefused("sink-not-taken-over", problem)


def _protocol_of(table: Snapshot) -> set[str]:
    """Return what a reader and a writer have to support: features, and all versions up to the required ones."""
    names = {
        f"{kind} {name}" for kind in ("readerFeatures", "writerFeatures") for name in table.protocol.get(kind) or ()
    }
    versions = {
        f"{kind} {number}"
        for kind in ("minReaderVersion", "minWriterVersion")
        for number in range(table.protocol[kind] + 1)
    }
    return names | versions


def _as_files_of(table: DeltaTable, actions: Iterable[Action]) -> Iterator[Action]:
    """Yield ``add`` actions of another table as those of this one, which then has the files that they name."""
    root = absolute(table.files, "")
    for action in actions:
        path = re.sub("^file:/+", "file:/", str(action["path"]))
        yield {**action, "path": path.removeprefix(root)} if path.startswith(root) else action


def _relative_paths(actions: Iterable[Action]) -> Iterator[str]:
    """Yield the paths of files that belong to the table of the actions itself, decoded."""
    for action in actions:
        for path in (str(action["path"]), vector_path(action)):
            if path is not None and not is_absolute(path):
                yield unquote(path)
