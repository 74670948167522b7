"""The actions of a Delta log: their forms in JSON commits and in the Parquet files of log checkpoints.

Actions stay as the dictionaries that the log has, so that a removed file can return exactly as it was. What
Headwater relies on is checked when they are read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.core.errors import CheckpointUnreadable

LOG = "_delta_log"
ROW_TRACKING = "delta.rowTracking"
READ_FROM_CHECKPOINTS = ("add", "metaData", "protocol", "txn", "domainMetadata", "sidecar")

Action: TypeAlias = Mapping[str, Any]
FileKey: TypeAlias = tuple[str, str | None]
"""The path of a data file and the id of its deletion vector: the same path with another vector is another file."""
# The parts of an action that readers use without asking whether they are there, and of which kind they are.
_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "add": {"path": str},
    "remove": {"path": str},
    "sidecar": {"path": str},
    "txn": {"appId": str, "version": int},
    "domainMetadata": {"domain": str},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "deletionVector": {"storageType": str, "pathOrInlineDv": str},
}
_OPTIONAL: Mapping[str, Mapping[str, type]] = {
    "add": {"modificationTime": int},
    "protocol": {"readerFeatures": list, "writerFeatures": list},
    "deletionVector": {"cardinality": int},
}


@dataclass(frozen=True)
class Commit:
    """The actions of one version, by kind."""

    version: int
    actions: Mapping[str, tuple[Action, ...]]

    @property
    def info(self) -> Action:
        """The ``commitInfo``; empty if there is none."""
        return next(iter(self.actions.get("commitInfo", ())), {})

    @property
    def operation(self) -> str:
        return str(self.info.get("operation") or "unknown operation")

    @property
    def parameters(self) -> Action:
        found = self.info.get("operationParameters")
        return found if isinstance(found, Mapping) else {}

    @property
    def timestamp_ms(self) -> int | None:
        found = self.info.get("inCommitTimestamp") or self.info.get("timestamp")
        return found if isinstance(found, int) else None

    @property
    def adds(self) -> tuple[Action, ...]:
        return self.actions.get("add", ())

    @property
    def removes(self) -> tuple[Action, ...]:
        return self.actions.get("remove", ())

    def batch_of(self, app_id: str) -> int | None:
        """Return the version of the application's transaction, which is the batch for a streaming query."""
        found = [txn["version"] for txn in self.actions.get("txn", ()) if txn.get("appId") == app_id]
        return int(found[-1]) if found else None

    @property
    def changes_rows(self) -> bool:
        """Whether rows, the schema or properties change. OPTIMIZE only rearranges rows."""
        moved = any(action.get("dataChange", True) for action in (*self.adds, *self.removes))
        domains = any(one.get("domain") != ROW_TRACKING for one in self.actions.get("domainMetadata", ()))
        return moved or domains or "metaData" in self.actions


def commit_path(version: int) -> str:
    """Return the path of a version's commit."""
    return f"{LOG}/{version:020d}.json"


def parse_commit(data: bytes, version: int, path: str | None = None) -> Commit:
    """Return the commit in a JSON file of the log: one action per line."""
    path = path or commit_path(version)
    found: dict[str, list[Action]] = {}
    try:
        for line in data.decode("utf-8").split("\n"):  # statistics may contain other separators of lines
            if line.strip():
                for kind, action in json.loads(line).items():
                    if isinstance(action, dict):
                        found.setdefault(kind, []).append(_checked(kind, action, path))
    except (ValueError, AttributeError, RecursionError):
        raise unreadable(path, "is not a list of JSON actions") from None
    return Commit(version, {kind: tuple(actions) for kind, actions in found.items()})


def _checked(kind: str, action: Action, path: str) -> Action:
    """Return an action that has what readers rely on; raise ``CheckpointUnreadable`` for another one."""
    required, optional = _REQUIRED.get(kind, {}), _OPTIONAL.get(kind, {})
    wrong = [name for name, expected in required.items() if not isinstance(action.get(name), expected)]
    wrong += [name for name, expected in optional.items() if not isinstance(action.get(name), expected | None)]
    if wrong:
        raise unreadable(path, f"has an action {kind} without a valid {wrong[0]}")
    if isinstance(vector := action.get("deletionVector"), Mapping):
        _checked("deletionVector", vector, path)
    return action


def file_key(action: Action) -> FileKey:
    """Return what identifies a file in ``add`` and ``remove``."""
    vector = action.get("deletionVector")
    if not isinstance(vector, Mapping):
        return str(action["path"]), None
    offset = vector.get("offset")
    name = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return str(action["path"]), name if offset is None else f"{name}@{offset}"


def rows_in(action: Action) -> int | None:
    """Return the number of rows of an ``add``, without those that its deletion vector hides; None if unknown."""
    text = action.get("stats")
    try:
        total = json.loads(text).get("numRecords") if isinstance(text, str) else None
    except (ValueError, AttributeError, RecursionError):
        return None
    vector = action.get("deletionVector") or {}
    return total - int(vector.get("cardinality", 0)) if isinstance(total, int) else None


def parquet_actions(data: bytes, path: str, *, only: str | None = None) -> Iterator[tuple[str, Action]]:
    """Yield the actions of a log checkpoint, of all kinds or of one, each with its kind."""
    from pyarrow import parquet  # noqa: PLC0415  most logs are short and have no checkpoint

    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        wanted = READ_FROM_CHECKPOINTS if only is None else (only,)
        present = [name for name in wanted if name in file.schema_arrow.names]
        batches = list(file.iter_batches(columns=present))
    except Exception as error:
        raise unreadable(path, f"is not a readable Parquet file ({type(error).__name__})") from None
    for batch in batches:
        for name in present:
            column = batch.column(name)
            parsed = column.filter(column.is_valid())
            yield from ((name, _checked(name, _plain_action(name, value), path)) for value in parsed.to_pylist())


_MAPS = {"partitionValues", "tags", "configuration", "options"}


def _plain_action(kind: str, value: Mapping[str, Any]) -> Action:
    """Return an action of a Parquet file in the form that JSON has: without nulls, and with objects for maps."""
    found: dict[str, Any] = {}
    for name, part in value.items():
        if part is None or name == "partitionValues_parsed":
            continue
        if name == "stats_parsed":
            found.setdefault("stats", _counts_of(part))
        elif name in _MAPS and not isinstance(part, str):  # the configuration of a domain is a text
            found[name] = dict(part)
        elif isinstance(part, Mapping):
            found[name] = _plain_action(name, part)
        else:
            found[name] = part
    if kind == "add":
        found.setdefault("partitionValues", {})
    return found


def _counts_of(stats: Mapping[str, Any]) -> str:
    """Return statistics that are stored as columns as JSON. Bounds of columns are left out: only skipping uses them."""
    kept = {name: stats[name] for name in ("numRecords", "tightBounds") if stats.get(name) is not None}
    return json.dumps(kept, separators=(",", ":"))


def unreadable(path: str, problem: str) -> CheckpointUnreadable:
    """Return the error for a file of the log that is missing or corrupt."""
    return CheckpointUnreadable(
        "table-unreadable",
        f"cannot read the log of the Delta table: {path} {problem}",
        remedy="read the table with Spark to see whether it is damaged",
    )
