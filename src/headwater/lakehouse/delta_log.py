"""The transaction log of a Delta table, read from any ``FileTree``: commits, log checkpoints and snapshots.

A snapshot is the newest log checkpoint at or before a version (one Parquet file, several, or version 2 with sidecar
files) and the commits after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.checkpoint.filetree import FileTree
from headwater.lakehouse.delta_actions import (
    LOG,
    READ_FROM_CHECKPOINTS,
    Action,
    Commit,
    FileKey,
    commit_path,
    file_key,
    parquet_actions,
    parse_commit,
    unreadable,
)

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)")


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

    @property
    def table_id(self) -> str | None:
        """The id of the table, for which its files need not be read; None if the log no longer tells it."""
        start = self._start_of(self.head)
        for version in range(self.head, -1 if start is None else start, -1):
            if self.has(version) and "metaData" in self.commit(version).actions:
                return self.commit(version).actions["metaData"][-1].get("id")
        for name in self.checkpoints.get(-1 if start is None else start, ()):
            for kind, action in self._checkpoint_actions(f"{LOG}/{name}", only="metaData"):
                if kind == "metaData":
                    return action.get("id")
        return None

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
                raise unreadable(commit_path(0), "is missing, and no log checkpoint replaces it")
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

    def _checkpoint_actions(self, path: str, *, only: str | None = None) -> Iterator[tuple[str, Action]]:
        data = _read(self.files, path)
        if path.endswith(".json"):
            actions = parse_commit(data, -1, path).actions
            yield from ((kind, one) for kind in READ_FROM_CHECKPOINTS for one in actions.get(kind, ()))
        else:
            yield from parquet_actions(data, path, only=only)


def _read(files: FileTree, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        raise unreadable(path, "does not exist") from None
