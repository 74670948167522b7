"""An Iceberg table as one that rewinds with its stream: its plans, and the only code that commits to it.

A rewind is one commit that sets the main branch back to an earlier snapshot. A tag keeps the present one, so that it does
not expire and undo can return to it. Rows are neither read nor written.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import REDACTED, ChangeRefused, HeadwaterError, SetupProblem, UsageProblem
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.core.uris import shown_value
from headwater.lakehouse.iceberg_catalog import METADATA, VERSION_HINT, CatalogTable, open_in_catalog
from headwater.lakehouse.iceberg_files import counted, files_moved, live_files, manifests_of, missing_of
from headwater.lakehouse.iceberg_metadata import NO_SNAPSHOT, Snapshot, TableMetadata, Wanted, copied_metadata
from headwater.lakehouse.iceberg_restore import (
    Named,
    Return,
    compare_batches,
    plan_return_to_batch,
    plan_return_to_snapshot,
    refuse_behind,
    refuse_format,
    snapshot_of_batch,
)
from headwater.lakehouse.tables import Checkpointed, FilesMoved, RewindableTable, TableCopy, TablePlan, TableUri

TAG = "headwater-"
DATA_PATH = "write.data.path"
# Iceberg uses these if the table does not have the one above, the first of them only in layouts for object stores.
_FORMER_DATA_PATHS = ("write.object-storage.path", "write.folder-storage.path")
_OBJECT_LAYOUT = "write.object-storage.enabled"
SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
DAY_MS = 86_400_000
DEFAULT_AGE_MS = 5 * DAY_MS
DOWNSTREAM = (
    "streams that read this Iceberg table cannot continue from a snapshot that leaves its history: rewind them to a batch "
    "before it, with --replan"
)


class IcebergTable(RewindableTable):
    """A table of a catalog. ``reference`` names it together with the settings of the catalog."""

    def __init__(self, catalog: CatalogTable, uri: str, reference: str) -> None:
        self.catalog = catalog
        self._uri = uri
        self._reference = reference

    @classmethod
    def at(cls, uri: TableUri) -> IcebergTable:
        settings = {name: value for name, value in uri.options.items() if name.startswith("catalog.")}
        # A password is never recorded. PyIceberg's own configuration can provide it.
        values = {name: shown_value(name, value) for name, value in settings.items()}
        shown = [f"{name}={value}" for name, value in values.items() if value != REDACTED]
        return cls(open_in_catalog(uri), uri.sink, uri.sink + (f"?{'&'.join(shown)}" if shown else ""))

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def reference(self) -> str:
        return self._reference

    @property
    def named(self) -> Named:
        """How messages name the table."""
        return Named(self._uri, shlex.quote(self._reference))

    @property
    def exists(self) -> bool:
        try:
            return self.catalog.load() is not None
        except (UsageProblem, SetupProblem):
            # If not even its URI describes the catalog, there is none. Otherwise a password or PyIceberg is missing.
            return "?" in self._reference
        except HeadwaterError:  # whoever uses the table learns why it cannot be read
            return True

    @cached_property
    def table(self) -> TableMetadata:
        """The metadata as it was when it was first needed. Raise ``ChangeRefused`` if there is no such table."""
        found = self.catalog.load()
        if found is None:
            raise ChangeRefused(
                "not-an-iceberg-table",
                "there is no such Iceberg table",
                evidence={"table": self._uri},
                remedy="name the table that the query writes to: --sink iceberg:CATALOG.DATABASE.TABLE",
            )
        return found

    @property
    def table_id(self) -> str | None:
        return self.table.table_id if self.exists else None

    def fingerprint(self) -> str:
        found = self.catalog.load()
        return "none" if found is None else f"{found.table_id} {found.head}"

    def plan_rewind(
        self, query: Checkpointed, to: int, *, change_id: str, keep_foreign: bool = False, pinned: int | None = None
    ) -> TablePlan:
        refuse_format(self.table, self.named)
        if pinned is None:
            found = plan_return_to_batch(self.table, query, to, named=self.named, keep_foreign=keep_foreign)
        else:
            found = plan_return_to_snapshot(
                self.table, query, pinned, to=to, named=self.named, keep_foreign=keep_foreign
            )
        if found is None or found.to == self.table.head:
            head = _number(self.table.head)
            return TablePlan(self.uri, None, head, head, (), noun="snapshot")
        folder = {DATA_PATH: own_data_path(self.table, change_id)}
        return self._plan(query, found, change_id, folder, "rewind to a later batch, whose files are still there")

    def plan_undo(
        self, query: Checkpointed, done: Mapping[str, Any], *, change_id: str, keep_foreign: bool = False
    ) -> TablePlan:
        self._refuse_other_table(self.table, done)
        after, before = done["after"], done["before"]
        known = {snapshot.snapshot_id for snapshot in self.table.lineage(self.table.head)}
        if after is not None and after not in known:
            raise ChangeRefused(
                "table-moved",
                "another program has rolled back the table since, so the change to it cannot be undone",
                evidence={"table": self.uri, "snapshot now": self.table.head or "none", "of the change": after},
                remedy="set the table to that snapshot, and try again",
            )
        found = plan_return_to_snapshot(self.table, query, before, to=None, named=self.named, keep_foreign=keep_foreign)
        returned = {
            name: value
            for name, value in done["properties_before"].items()
            if self.table.properties.get(name) == done["properties_after"].get(name)
        }
        return self._plan(query, found, change_id, returned, None, drop_tag=done["tag"])

    def _plan(
        self,
        query: Checkpointed,
        found: Return,
        change_id: str,
        properties: Mapping[str, str | None],
        remedy: str | None,
        drop_tag: str | None = None,
    ) -> TablePlan:
        table = self.table
        now = None if table.head is None else table.snapshots[table.head]
        then = None if found.to is None else table.snapshots[found.to]
        leaving, returning = self._moved(now, then, remedy)
        is_kept = table.head is None or any(one.snapshot_id == table.head for one in table.lineage(found.to))
        action = {
            "table_id": table.table_id,
            "query_id": query.query_id,
            "before": table.head,
            "after": found.to,
            "tag": None if is_kept else f"{TAG}{change_id}",
            "drop_tag": drop_tag,
            "properties_before": {name: table.properties.get(name) for name in properties},
            "properties_after": dict(properties),
        }
        return TablePlan(
            self.uri,
            action,
            _number(table.head),
            _number(found.to),
            found.gone,
            leaving,
            returning,
            warnings=(DOWNSTREAM,) if leaving.files else (),
            noun="snapshot",
            note="" if is_kept else f"the tag {action['tag']} keeps the present one",
        )

    def _moved(self, now: Snapshot | None, then: Snapshot | None, remedy: str | None) -> tuple[FilesMoved, FilesMoved]:
        try:
            leaving, returning = files_moved(now, then)
            lost = missing_of(returning)
        except FileNotFoundError as error:
            lost, leaving, returning = [str(error.filename or error)], [], []
        if lost:
            raise ChangeRefused(
                "table-file-missing",
                f"{count(len(lost), 'file')} that the table needs again were deleted",
                evidence={"table": self.uri, "first missing": lost[0]},
                remedy=remedy,
            )
        return counted(leaving), counted(returning)

    def apply(self, action: Mapping[str, Any]) -> None:
        self._commit(action, _wanted(action))

    def take_back(self, action: Mapping[str, Any]) -> None:
        self._commit(action, _wanted_before(action))

    def _commit(self, action: Mapping[str, Any], wanted: Wanted) -> None:
        found = self._loaded(action)
        if found.head in (action["before"], action["after"]):
            self.catalog.commit(found, wanted)
            found = self._loaded(action)
        if not found.is_set(wanted):
            raise ChangeRefused(
                "table-moved",
                "another program has committed to the table since this was planned",
                evidence={
                    "table": self.uri,
                    "planned for snapshot": action["before"] or "none",
                    "snapshot now": found.head or "none",
                },
                remedy="headwater rewind CKPT --abort   (or, if that is refused for the same reason, set the table back "
                "to one of these snapshots with Spark, and try again)",
            )

    def _loaded(self, action: Mapping[str, Any]) -> TableMetadata:
        found = self.catalog.load()
        if found is None:
            raise ChangeRefused("not-an-iceberg-table", "the table no longer exists", evidence={"table": self.uri})
        self._refuse_other_table(found, action)
        return found

    def _refuse_other_table(self, table: TableMetadata, action: Mapping[str, Any]) -> None:
        if table.table_id != action["table_id"]:
            raise ChangeRefused(
                "not-its-table",
                "the table of this name is not the one that the change was planned for",
                evidence={"table": self.uri, "id": table.table_id, "planned for": action["table_id"]},
                remedy="if you renamed the table, name it: --sink iceberg:CATALOG.DATABASE.TABLE",
            )

    def version_of(self, query: Checkpointed, batch: int) -> int | None:
        return snapshot_of_batch(self.table, query.query_id, batch)

    def check_pinned(self, version: int, kept_at_ms: int, now_ms: int) -> str | None:
        snapshot = self.table.snapshots.get(version)
        if snapshot is None:
            return f"snapshot {version} of the table has expired"
        try:
            lost = missing_of(live_files(manifests_of(snapshot)))
        except FileNotFoundError as error:
            lost = [str(error)]
        if lost:
            return f"files of snapshot {version} were deleted"
        age = int(self.table.properties.get(SNAPSHOT_AGE, DEFAULT_AGE_MS))
        named = {int(ref["snapshot-id"]) for ref in self.table.refs.values()}
        if now_ms - kept_at_ms > age and version not in named:
            days = count(age // DAY_MS, "day")
            return f"expire_snapshots may remove snapshot {version}: {SNAPSHOT_AGE} is {days}. A tag would keep it"
        return None

    def compare(self, query: Checkpointed) -> Iterator[Finding]:
        try:
            yield from compare_batches(self.catalog.load(), query, self.named)
        except HeadwaterError as error:
            yield Finding("error", error.code, self.uri, error.problem)
        except (OSError, KeyError, TypeError, ValueError) as error:
            yield Finding("error", "table-unreadable", self.uri, f"cannot be read: {error}")

    def plan_copy(
        self, query: Checkpointed, at: int, *, query_id: str, into: FileTree, pinned: int | None = None
    ) -> TableCopy:
        refuse_format(self.table, self.named)
        if pinned is None:
            refuse_behind(self.table, query, at, self.named)
        head = snapshot_of_batch(self.table, query.query_id, at) if pinned is None else pinned
        if head not in self.table.snapshots:
            raise ChangeRefused(
                "snapshot-expired",
                f"the table has no snapshot of batch {at}",
                evidence={"table": self.uri},
                remedy="fork at a later batch",
            )
        folder = into.spark_uri().removeprefix("file:") if into.is_local else into.spark_uri(like=self.table.folder)
        data = copied_metadata(self.table, head, table_id=str(uuid.uuid4()), folder=folder, batch=at, query_id=query_id)
        _, shared = self._moved(None, self.table.snapshots[head], "fork at a later batch")
        warning = (
            f"the copy reads data files of {self.uri}: expire_snapshots there can delete files that only the copy needs"
        )
        files = {f"{METADATA}/v1.metadata.json": data, VERSION_HINT: b"1"}
        return TableCopy(files, head, shared, (warning,) if shared.files else (), noun="snapshot")


def own_data_path(table: TableMetadata, change_id: str) -> str:
    """Return a folder for the data files that are written from now on.

    The names of a batch's files consist of the query's id, the batch and the numbers of Spark's tasks. A batch that runs
    again can therefore get the names of its first run, and would replace files that undo needs.
    """
    former = _FORMER_DATA_PATHS[0 if table.properties.get(_OBJECT_LAYOUT, "").lower() == "true" else 1 :]
    chosen = (table.properties.get(name) for name in (DATA_PATH, *former))
    before = next(filter(None, chosen), f"{table.folder.rstrip('/')}/data")
    folder, slash, name = before.rstrip("/").rpartition("/")
    return f"{folder if name.startswith(TAG) else folder + slash + name}/{TAG}{change_id}"


def _wanted(action: Mapping[str, Any]) -> Wanted:
    tags = {action["tag"]: action["before"], action["drop_tag"]: None}
    return Wanted(action["after"], _named(tags), action["properties_after"])


def _wanted_before(action: Mapping[str, Any]) -> Wanted:
    tags = {action["tag"]: None, action["drop_tag"]: action["after"]}
    return Wanted(action["before"], _named(tags), action["properties_before"])


def _named(tags: Mapping[str | None, int | None]) -> dict[str, int | None]:
    """Return the tags without those that an action does not have."""
    return {name: snapshot for name, snapshot in tags.items() if name is not None}


def _number(snapshot: int | None) -> int:
    return NO_SNAPSHOT if snapshot is None else snapshot
