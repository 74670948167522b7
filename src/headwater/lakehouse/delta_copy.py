"""Copy a Delta table as of a batch for a fork: one commit that names the original's data files by absolute paths.

This is what Delta calls a shallow clone. Rows are neither read nor written. The copy needs the original's files, so
VACUUM of the original can break it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.lakehouse.delta_actions import ROW_TRACKING, Action, commit_path
from headwater.lakehouse.delta_commit import ENGINE, line_of
from headwater.lakehouse.delta_features import refuse_features
from headwater.lakehouse.delta_files import absolute, missing_files, vector_path
from headwater.lakehouse.delta_lineage import Mark
from headwater.lakehouse.delta_log import DeltaLog, Snapshot
from headwater.lakehouse.delta_restore import moved, plan_restoration, refuse_cleaned_version
from headwater.lakehouse.tables import Checkpointed, TableCopy


def plan_delta_copy(
    log: DeltaLog, query: Checkpointed, at: int, *, app_id: str, query_id: str, uri: str, pinned: int | None = None
) -> TableCopy:
    """Return the first commit of a copy as of a batch, with the transaction of the query that continues it.

    ``pinned`` is the version with that batch, if a restore point recorded it: the batch may have run again since.
    """
    head = log.snapshot(log.head)
    refuse_features(head, uri)
    if pinned is not None:
        refuse_cleaned_version(log, pinned, uri)
        table = log.snapshot(pinned)
    else:
        found = plan_restoration(log, query, at, uri=uri, app_id=app_id, others_since="leave out")
        table = head if found is None else found.result
        pinned = log.head if found is None else None if found.kept else found.base
    lost = missing_files(log.files, table.files.values())
    if lost:
        raise ChangeRefused(
            "table-file-missing",
            f"{count(len(lost), 'file')} of the table as of batch {at} no longer exist: VACUUM or another program deleted them",
            evidence={"table": uri, "first missing": lost[0]},
            remedy="fork at a later batch",
        )
    warnings = [f"the copy reads data files of {uri}: VACUUM of that table can delete files that only the copy needs"]
    return TableCopy(
        {commit_path(0): _first_commit(log, table, at, query_id, uri).encode()},
        pinned,
        moved(table.files.values()),
        tuple(warnings) if table.files else (),
    )


def _first_commit(log: DeltaLog, table: Snapshot, at: int, query_id: str, uri: str) -> str:
    now = int(time.time() * 1000)
    info: dict[str, Any] = {
        "timestamp": now,
        "operation": "CLONE",
        "operationParameters": {"source": uri, "sourceVersion": str(table.version), "isShallow": "true"},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "userMetadata": Mark(str(uuid.uuid4()), -1, is_copy=True).to_text(),
        "engineInfo": ENGINE,
    }
    if table.is_set("delta.enableInCommitTimestamps"):
        info = {"inCommitTimestamp": now} | info
    lines = [
        line_of("commitInfo", info),
        line_of("protocol", table.protocol),
        line_of("metaData", {**table.metadata, "id": str(uuid.uuid4()), "createdTime": now}),
    ]
    lines += [line_of("domainMetadata", action) for action in table.domains.values()]
    if ROW_TRACKING in log.snapshot(log.head).domains and ROW_TRACKING not in table.domains:
        lines.append(line_of("domainMetadata", log.snapshot(log.head).domains[ROW_TRACKING]))
    lines.append(line_of("txn", {"appId": query_id, "version": at, "lastUpdated": now}))
    lines += [line_of("add", _absolute(log, action)) for action in table.files.values()]
    return "".join(lines)


def _absolute(log: DeltaLog, action: Action) -> Action:
    """Return an ``add`` with absolute paths of the data file and of its deletion vector."""
    found: dict[str, Any] = {**action, "path": absolute(log.files, str(action["path"])), "dataChange": True}
    vector, path = action.get("deletionVector"), vector_path(action)
    if isinstance(vector, Mapping) and path is not None:
        found["deletionVector"] = {**vector, "storageType": "p", "pathOrInlineDv": absolute(log.files, path)}
    return found
