"""The metadata of an Iceberg table: snapshots, the branches and tags that name them, and which batch each one holds.

Iceberg's streaming sink gives each snapshot the query's id and the batch. Before it commits a batch, it follows the
parents of the current snapshot to the newest one of the query. A table whose main branch is set back therefore accepts
the later batches again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

MAIN = "main"
# In lower case: Spark folds the names of options, so that a function for foreachBatch cannot write any other.
QUERY_ID = "spark.sql.streaming.queryid"
EPOCH_ID = "spark.sql.streaming.epochid"
COPY_PROPERTY = "headwater.copy."
PREVIOUS_FILES = "write.metadata.previous-versions-max"
LEGACY_VERSION = 2
NO_SNAPSHOT = -1


@dataclass(frozen=True)
class Snapshot:
    """A version of the table."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    summary: Mapping[str, str] = field(repr=False)
    manifest_list: str | None = field(default=None, repr=False)
    manifests: tuple[str, ...] = field(default=(), repr=False)
    """The manifests of a snapshot that has no list of them, as early versions of the format allow it."""

    @property
    def operation(self) -> str:
        return self.summary.get("operation", "unknown")

    @property
    def changes_rows(self) -> bool:
        """Whether rows were added or removed. Compaction only rearranges them."""
        return self.operation != "replace"

    @property
    def starts_empty(self) -> bool:
        """Whether all its files are its own and it removed none, so that the table was empty before it."""
        added, removed = (int(self.summary.get(f"{what}-data-files", 0)) for what in ("added", "deleted"))
        return removed == 0 and self.summary.get("total-data-files") == str(added)

    @property
    def query_id(self) -> str | None:
        return self._property(QUERY_ID)

    @property
    def batch(self) -> int | None:
        text = self._property(EPOCH_ID)
        return int(text) if text is not None and text.isdigit() else None

    def _property(self, name: str) -> str | None:
        return next((value for key, value in self.summary.items() if key.lower() == name), None)


@dataclass(frozen=True)
class Wanted:
    """What a commit sets: the snapshot of the main branch (None: no such branch), tags and properties (None: removed)."""

    main: int | None
    tags: Mapping[str, int | None] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)


class TableMetadata:
    """A metadata file. ``location`` is where it was read, as the table itself would name it.

    Raise ``ValueError`` if it lacks a part that readers rely on.
    """

    def __init__(self, value: Mapping[str, Any], location: str) -> None:
        _check_form(value)
        self.value = value
        self.location = location

    @property
    def format_version(self) -> int:
        return int(self.value["format-version"])

    @property
    def table_id(self) -> str:
        return str(self.value.get("table-uuid"))

    @property
    def folder(self) -> str:
        """The location of the table."""
        return str(self.value["location"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.value.get("properties") or {}

    @property
    def refs(self) -> Mapping[str, Mapping[str, Any]]:
        return self.value.get("refs") or {}

    @cached_property
    def snapshots(self) -> dict[int, Snapshot]:
        return {found.snapshot_id: found for found in map(_snapshot, self.value.get("snapshots") or ())}

    @property
    def head(self) -> int | None:
        """The snapshot of the main branch; None if the table is empty."""
        named = self.refs.get(MAIN)
        current = named["snapshot-id"] if named else self.value.get("current-snapshot-id")
        return None if current is None or current == NO_SNAPSHOT else int(current)

    def tag(self, name: str) -> int | None:
        found = self.refs.get(name)
        return None if found is None else int(found["snapshot-id"])

    def lineage(self, head: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot and those before it, newest first, as far as they have not expired."""
        seen: set[int] = set()
        while head is not None and head in self.snapshots and head not in seen:
            found = self.snapshots[head]
            seen.add(head)
            yield found
            head = found.parent_id

    def has_expired(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot before this one has expired. Some programs then remove its id as well."""
        if snapshot.parent_id is not None:
            return snapshot.parent_id not in self.snapshots
        return not snapshot.starts_empty

    def batch_of(self, snapshot: Snapshot, query_id: str) -> int | None:
        """Return the batch of a query that a snapshot holds: of a copy for a fork, the last one before the fork."""
        if snapshot.query_id == query_id:
            return snapshot.batch
        return self.copied_batch(snapshot, query_id)

    def copied_batch(self, snapshot: Snapshot, query_id: str) -> int | None:
        """Return the batch that a copy of a table starts with; None for other snapshots."""
        batch, _, copied = self.properties.get(f"{COPY_PROPERTY}{query_id}", "").partition("@")
        return int(batch) if copied == str(snapshot.snapshot_id) else None

    def is_set(self, wanted: Wanted) -> bool:
        """Return whether the table has what a commit would set."""
        return (
            self.head == wanted.main
            and all(self.tag(name) == target for name, target in wanted.tags.items())
            and all(self.properties.get(name) == value for name, value in wanted.properties.items())
        )


def next_metadata(base: TableMetadata, wanted: Wanted) -> dict[str, Any]:
    """Return the metadata after a commit that moves branches and tags. Everything else stays as it is."""
    now = max(int(time.time() * 1000), int(base.value.get("last-updated-ms", 0)))
    refs = {name: dict(ref) for name, ref in base.refs.items()}
    for name, target in wanted.tags.items():
        refs.pop(name, None)
        if target is not None:
            refs[name] = {"snapshot-id": target, "type": "tag"}
    log = list(base.value.get("snapshot-log") or ())
    if wanted.main is None:
        refs.pop(MAIN, None)
    elif wanted.main != base.head:
        refs[MAIN] = {**refs.get(MAIN, {"type": "branch"}), "snapshot-id": wanted.main}
        log.append({"timestamp-ms": now, "snapshot-id": wanted.main})
    properties = {**base.properties, **{name: value for name, value in wanted.properties.items() if value is not None}}
    removed = {name for name, value in wanted.properties.items() if value is None}
    files = [
        *(base.value.get("metadata-log") or ()),
        {"timestamp-ms": base.value.get("last-updated-ms", now), "metadata-file": base.location},
    ]
    found = {
        **base.value,
        "last-updated-ms": now,
        "current-snapshot-id": NO_SNAPSHOT if wanted.main is None else wanted.main,
        "refs": refs,
        "snapshot-log": log,
        "properties": {name: value for name, value in properties.items() if name not in removed},
        "metadata-log": files[-int(base.properties.get(PREVIOUS_FILES, "100")) :],
    }
    if wanted.main is None and base.format_version > LEGACY_VERSION:
        del found["current-snapshot-id"]
    return found


def copied_metadata(base: TableMetadata, head: int, *, table_id: str, folder: str, batch: int, query_id: str) -> bytes:
    """Return the first metadata of a table in another folder that starts with a snapshot and shares its files."""
    kept = {snapshot.snapshot_id for snapshot in base.lineage(head)}
    now = int(time.time() * 1000)
    elsewhere = {"write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"}
    properties = {name: value for name, value in base.properties.items() if name not in elsewhere}
    found = {
        **base.value,
        "table-uuid": table_id,
        "location": folder,
        "last-updated-ms": now,
        "current-snapshot-id": head,
        "refs": {MAIN: {"snapshot-id": head, "type": "branch"}},
        "snapshots": _of(base.value.get("snapshots"), kept),
        "snapshot-log": [{"timestamp-ms": now, "snapshot-id": head}],
        "metadata-log": [],
        # Iceberg must not delete data files that belong to the original.
        "properties": {**properties, "gc.enabled": "false", f"{COPY_PROPERTY}{query_id}": f"{batch}@{head}"},
    }
    for name in ("statistics", "partition-statistics"):
        if name in found:
            found[name] = _of(base.value[name], kept)
    return json.dumps(found).encode()


def _of(items: Sequence[Mapping[str, Any]] | None, kept: set[int]) -> list[Mapping[str, Any]]:
    return [item for item in items or () if item["snapshot-id"] in kept]


def _check_form(value: Any) -> None:
    def require(what: str, *, holds: bool) -> None:
        if not holds:
            raise ValueError(f"it has no valid {what}")

    def is_texts(found: Any) -> bool:
        return isinstance(found, dict) and all(isinstance(text, str) for text in found.values())

    require("table", holds=isinstance(value, dict))
    require("format-version", holds=isinstance(value.get("format-version"), int))
    require("location", holds=isinstance(value.get("location"), str))
    require("current-snapshot-id", holds=isinstance(value.get("current-snapshot-id"), int | None))
    require("last-updated-ms", holds=isinstance(value.get("last-updated-ms", 0), int))
    require("properties", holds=is_texts(value.get("properties") or {}))
    for name in ("snapshots", "snapshot-log", "metadata-log"):
        found = value.get(name) or []
        require(name, holds=isinstance(found, list) and all(isinstance(one, dict) for one in found))
    refs = value.get("refs") or {}
    require("refs", holds=isinstance(refs, dict) and all(isinstance(ref, dict) for ref in refs.values()))
    require("refs", holds=all(isinstance(ref.get("snapshot-id"), int) for ref in refs.values()))
    for snapshot in value.get("snapshots") or ():
        require("snapshot-id", holds=isinstance(snapshot.get("snapshot-id"), int))
        require("parent-snapshot-id", holds=isinstance(snapshot.get("parent-snapshot-id"), int | None))
        require("timestamp-ms", holds=isinstance(snapshot.get("timestamp-ms", 0), int))
        require("summary", holds=is_texts(snapshot.get("summary") or {}))
        require("manifest-list", holds=isinstance(snapshot.get("manifest-list"), str | None))
        require("manifests", holds=isinstance(snapshot.get("manifests") or [], list))


def _snapshot(value: Mapping[str, Any]) -> Snapshot:
    parent = value.get("parent-snapshot-id")
    return Snapshot(
        int(value["snapshot-id"]),
        None if parent is None or parent == NO_SNAPSHOT else int(parent),
        int(value.get("timestamp-ms", 0)),
        value.get("summary") or {},
        value.get("manifest-list"),
        tuple(value.get("manifests") or ()),
    )
