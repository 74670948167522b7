"""The transaction log of a Delta table, read from any ``FileTree``: commits, log checkpoints and snapshots.

A snapshot is the newest log checkpoint at or before a version (one Parquet file, several, or version 2 with sidecar
files) and the commits after it. Actions stay as the dictionaries that the log has, so that a removed file can return
exactly as it was.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import CheckpointUnreadable

LOG = "_delta_log"
ROW_TRACKING = "delta.rowTracking"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)")
_READ_FROM_CHECKPOINTS = ("add", "metaData", "protocol", "txn", "domainMetadata", "sidecar")

Action: TypeAlias = Mapping[str, Any]
FileKey: TypeAlias = tuple[str, str | None]
"""The path of a data file and the id of its deletion vector: the same path with another vector is another file."""


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


@dataclass
class Snapshot:
    """A table at one version. ``files`` holds the ``add`` action of each file."""

    version: int
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, Action] = field(default_factory=dict)
    files: dict[FileKey, Action] = field(default_factory=dict)

    @property
    def table_id(self) -> str:
        return str(self.metadata.get("id", ""))

    @property
    def configuration(self) -> Mapping[str, str]:
        found = self.metadata.get("configuration")
        return found if isinstance(found, Mapping) else {}

    def is_set(self, name: str) -> bool:
        """Return whether a property of the table is true."""
        return str(self.configuration.get(name, "")).lower() == "true"

    def apply(self, kind: str, action: Action) -> None:
        """Apply one action of a log checkpoint or of a later commit."""
        match kind:
            case "add":
                self.files[file_key(action)] = action
            case "remove":
                self.files.pop(file_key(action), None)
            case "metaData":
                self.metadata = action
            case "protocol":
                self.protocol = action
            case "txn":
                self.transactions[action["appId"]] = int(action["version"])
            case "domainMetadata" if action.get("removed"):
                self.domains.pop(action["domain"], None)
            case "domainMetadata":
                self.domains[action["domain"]] = action

    def after(self, commit: Commit) -> None:
        """Apply a commit. Removals come first: a file can leave and return with another deletion vector."""
        for action in commit.removes:
            self.apply("remove", action)
        for kind, actions in commit.actions.items():
            if kind != "remove":
                for action in actions:
                    self.apply(kind, action)
        self.version = commit.version

    def copy(self) -> Snapshot:
        return Snapshot(
            self.version,
            self.protocol,
            self.metadata,
            dict(self.transactions),
            dict(self.domains),
            dict(self.files),
        )


class DeltaLog:
    """The log of the table in a folder. The folder is listed once; each commit is read at most once."""

    def __init__(self, files: FileTree) -> None:
        self.files = files
        self._commits: dict[int, Commit] = {}
        self._snapshots: dict[int, Snapshot] = {}

    @cached_property
    def _names(self) -> list[str]:
        return [entry.name for entry in self.files.entries(LOG) if not entry.is_folder]

    @cached_property
    def versions(self) -> list[int]:
        """The versions whose commits are in the log, ascending. Delta removes old ones after a log checkpoint."""
        return sorted(int(found[1]) for name in self._names if (found := _COMMIT.fullmatch(name)))

    @cached_property
    def checkpoints(self) -> dict[int, tuple[str, ...]]:
        """The files of each complete log checkpoint by version."""
        found: dict[int, tuple[str, ...]] = {}
        parts: dict[tuple[int, int], list[str]] = {}
        for name in self._names:
            matched = _CHECKPOINT.fullmatch(name)
            if matched and matched[2]:
                parts.setdefault((int(matched[1]), int(matched[3])), []).append(name)
            elif matched:
                found[int(matched[1])] = (name,)
        for (version, count), names in parts.items():
            if len(names) == count:
                found.setdefault(version, tuple(sorted(names)))
        return found

    @property
    def exists(self) -> bool:
        return bool(self.versions or self.checkpoints)

    @property
    def head(self) -> int:
        """The newest version."""
        return max([*self.versions[-1:], *self.checkpoints])

    def has(self, version: int) -> bool:
        """Return whether the commit of a version is in the log."""
        return version in self._present

    @cached_property
    def _present(self) -> frozenset[int]:
        return frozenset(self.versions)

    def commit(self, version: int) -> Commit:
        """Return a commit; raise ``CheckpointUnreadable`` if it is missing or corrupt."""
        if version not in self._commits:
            path = commit_path(version)
            self._commits[version] = parse_commit(_read(self.files, path), version)
        return self._commits[version]

    def can_rebuild(self, version: int) -> bool:
        """Return whether the log has everything that a snapshot needs."""
        start = self._start_of(version)
        return start is not None and all(self.has(number) for number in range(start + 1, version + 1))

    def snapshot(self, version: int) -> Snapshot:
        """Return the table as of a version; the caller must not modify it."""
        if version not in self._snapshots:
            start = self._start_of(version)
            nearest = max((known for known in self._snapshots if known < version), default=None)
            if nearest is not None and (start is None or nearest > start):
                snapshot, start = self._snapshots[nearest].copy(), nearest
            elif start is None:
                raise _unreadable(commit_path(0), "is missing, and no log checkpoint replaces it")
            else:
                snapshot = self._from_checkpoint(start)
            for number in range(start + 1, version + 1):
                snapshot.after(self.commit(number))
            self._snapshots[version] = snapshot
        return self._snapshots[version]

    def _start_of(self, version: int) -> int | None:
        """Return the log checkpoint to start from; -1 for an empty table before version 0; None if there is none."""
        found = [number for number in self.checkpoints if number <= version]
        return max(found) if found else (-1 if self.has(0) else None)

    def _from_checkpoint(self, version: int) -> Snapshot:
        snapshot = Snapshot(version)
        if version < 0:
            return snapshot
        sidecars = []
        for name in self.checkpoints[version]:
            for kind, action in self._checkpoint_actions(f"{LOG}/{name}"):
                if kind == "sidecar":
                    sidecars.append(str(action["path"]))
                else:
                    snapshot.apply(kind, action)
        for path in sidecars:
            for kind, action in self._checkpoint_actions(f"{LOG}/_sidecars/{path}"):
                snapshot.apply(kind, action)
        return snapshot

    def _checkpoint_actions(self, path: str) -> Iterator[tuple[str, Action]]:
        data = _read(self.files, path)
        if path.endswith(".json"):
            actions = parse_commit(data, -1, path).actions
            yield from ((kind, one) for kind in _READ_FROM_CHECKPOINTS for one in actions.get(kind, ()))
        else:
            yield from _parquet_actions(data, path)


def commit_path(version: int) -> str:
    """Return the path of a version's commit."""
    return f"{LOG}/{version:020d}.json"


def parse_commit(data: bytes, version: int, path: str | None = None) -> Commit:
    """Return the commit in a JSON file of the log: one action per line."""
    path = path or commit_path(version)
    found: dict[str, list[Action]] = {}
    try:
        for line in data.decode("utf-8").splitlines():
            if line.strip():
                for kind, action in json.loads(line).items():
                    if isinstance(action, dict):
                        found.setdefault(kind, []).append(action)
    except (ValueError, AttributeError):
        raise _unreadable(path, "is not a list of JSON actions") from None
    return Commit(version, {kind: tuple(actions) for kind, actions in found.items()})


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
    except ValueError:
        return None
    vector = action.get("deletionVector") or {}
    return total - int(vector.get("cardinality", 0)) if isinstance(total, int) else None


def _parquet_actions(data: bytes, path: str) -> Iterator[tuple[str, Action]]:
    from pyarrow import parquet  # noqa: PLC0415  most logs are short and have no checkpoint

    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        present = [name for name in _READ_FROM_CHECKPOINTS if name in file.schema_arrow.names]
        batches = list(file.iter_batches(columns=present))
    except Exception as error:
        raise _unreadable(path, f"is not a readable Parquet file ({type(error).__name__})") from None
    for batch in batches:
        for name in present:
            column = batch.column(name)
            parsed = column.filter(column.is_valid())
            yield from ((name, _plain_action(name, value)) for value in parsed.to_pylist())


_MAPS = {"partitionValues", "tags", "configuration", "options"}


def _plain_action(kind: str, value: Mapping[str, Any]) -> Action:
    """Return an action of a Parquet file in the form that JSON has: without nulls, and with objects for maps."""
    found: dict[str, Any] = {}
    for name, part in value.items():
        if part is None or name == "partitionValues_parsed":
            continue
        if name == "stats_parsed":
            found.setdefault("stats", _counts_of(part))
        elif name in _MAPS:
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


def _read(files: FileTree, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        raise _unreadable(path, "does not exist") from None


def _unreadable(path: str, problem: str) -> CheckpointUnreadable:
    return CheckpointUnreadable(
        "table-unreadable",
        f"cannot read the log of the Delta table: {path} {problem}",
        remedy="read the table with Spark to see whether it is damaged",
    )
