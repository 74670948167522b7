"""The contents to give to a Delta table, as a commit and the commit that reverts it.

The commit removes the files that came later, adds those that left, exactly as the log had them, and sets the query's
transaction back to the batch: without that, Delta would silently skip the batches that run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.lakehouse.delta_actions import ROW_TRACKING, Action, Commit
from headwater.lakehouse.delta_lineage import Mark
from headwater.lakehouse.delta_log import Snapshot

ENGINE = "Headwater"


@dataclass(frozen=True)
class Restoration:
    """The contents to give to a table, and where they come from.

    They are those of version ``base`` (-1: none) and of the commits in ``kept``. ``gone`` are the batches that leave.
    """

    head: Snapshot
    result: Snapshot
    base: int
    kept: tuple[int, ...]
    app_id: str
    batch: int
    gone: tuple[int, ...]
    others: tuple[Commit, ...] = ()
    is_copy: bool = False
    """Whether the contents are those of another table, so that earlier batches of the query are not known here."""

    @property
    def leaving(self) -> list[Action]:
        return [action for key, action in self.head.files.items() if key not in self.result.files]

    @property
    def returning(self) -> list[Action]:
        return [action for key, action in self.result.files.items() if key not in self.head.files]

    def commits(self, change_id: str, verb: str, after_ms: int) -> tuple[str, str]:
        """Return the commit and the one that reverts it, for the two versions after the head, later than a time."""
        now = max(int(time.time() * 1000), after_ms + 1)
        there = Mark(change_id, self.base, self.kept, self.is_copy)
        before = self.head.transactions.get(self.app_id, -1)
        return (
            "".join(self._lines(self.head, self.result, there, verb, self.batch, now)),
            "".join(self._lines(self.result, self.head, Mark(change_id, self.head.version), "abort", before, now + 1)),
        )

    def _lines(
        self, before: Snapshot, after: Snapshot, mark: Mark, verb: str, batch: int, now_ms: int
    ) -> Iterator[str]:
        removed = [action for key, action in before.files.items() if key not in after.files]
        added = [action for key, action in after.files.items() if key not in before.files]
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": f"HEADWATER {verb.upper()}",
            "operationParameters": {"batch": str(batch), "version": str(mark.base), "queryId": self.app_id},
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {"numRemovedFiles": str(len(removed)), "numRestoredFiles": str(len(added))},
            "userMetadata": mark.to_text(),
            "engineInfo": ENGINE,
            "txnId": f"{mark.change_id}-{verb}",
        }
        if self.head.is_set("delta.enableInCommitTimestamps"):
            info = {"inCommitTimestamp": now_ms} | info
        yield line_of("commitInfo", info)
        if _settings_of(before) != _settings_of(after):
            yield line_of("metaData", after.metadata)
        for domain in _changed_domains(before, after):
            yield line_of("domainMetadata", domain)
        yield line_of("txn", {"appId": self.app_id, "version": batch, "lastUpdated": now_ms})
        for action in removed:
            yield line_of("remove", _removal(action, now_ms))
        for action in added:
            yield line_of("add", {**action, "dataChange": True})


def line_of(kind: str, action: Action) -> str:
    """Return an action as a line of a commit."""
    return json.dumps({kind: action}, separators=(",", ":"), ensure_ascii=False) + "\n"


def _removal(add: Action, now_ms: int) -> Action:
    """Return the ``remove`` of a file that is in the table."""
    kept = ("partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "stats")
    return {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        **{name: add[name] for name in kept if name in add},
    }


def _settings_of(table: Snapshot) -> tuple[Any, ...]:
    """Return what readers see of the metadata. Log checkpoints write the rest in another form than commits."""
    found = table.metadata
    return tuple(found.get(name) for name in ("schemaString", "partitionColumns", "name")), dict(table.configuration)


def _changed_domains(before: Snapshot, after: Snapshot) -> Iterator[Action]:
    """Yield the domains to write. The highest row id stays: ids must never be given twice."""
    for name in sorted({*before.domains, *after.domains} - {ROW_TRACKING}):
        if name not in after.domains:
            yield {**before.domains[name], "removed": True}
        elif before.domains.get(name) != after.domains[name]:
            yield after.domains[name]
