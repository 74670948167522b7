"""Iceberg tables for tests, which PyIceberg writes and reads: in a database as their catalog, or as a Hadoop catalog."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headwater.lakehouse.iceberg_table import IcebergTable
from headwater.lakehouse.tables import Checkpointed, TablePlan, open_table

SCHEMA = pa.schema([("who", pa.string()), ("batch", pa.int64())])
NAME = "shop.sales"
QUERY_ID, EPOCH_ID = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
Kind = Literal["hadoop", "jdbc"]


def query(committed: int, query_id: str = "a", planned: int | None = None) -> Checkpointed:
    """Return the checkpoint's side of a plan."""
    return Checkpointed("CKPT", query_id, committed, committed if planned is None else planned)


@dataclass
class Lake:
    """A table as several streaming queries and other programs write it.

    PyIceberg has no Hadoop catalog. There, each of its metadata files is copied to the name that such a catalog gives it,
    and the copy that Headwater or Spark has replaced is what PyIceberg continues with.
    """

    home: Path
    kind: Kind = "hadoop"
    properties: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.database = self.home / "catalog.db"
        self.warehouse = self.home / "warehouse"
        self.folder = self.warehouse / "shop" / "sales"
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{self.database}", warehouse=str(self.warehouse))
        self.catalog.create_namespace("shop")
        self.catalog.create_table(NAME, SCHEMA, location=str(self.folder), properties=self.properties)
        self._export()

    @property
    def uri(self) -> str:
        return f"iceberg:lake.{NAME}"

    @property
    def sink(self) -> str:
        if self.kind == "hadoop":
            return f"{self.uri}?catalog.type=hadoop&catalog.warehouse={self.warehouse}"
        return (
            f"{self.uri}?catalog.type=jdbc&catalog.uri=jdbc:sqlite:{self.database}&catalog.warehouse={self.warehouse}"
        )

    def opened(self) -> IcebergTable:
        """Return the table as Headwater opens it: a new one for each use, because it reads the metadata once."""
        found = open_table(self.sink)
        assert isinstance(found, IcebergTable)
        return found

    @property
    def table(self) -> Table:
        """The table as PyIceberg has it."""
        if self.kind == "hadoop":
            newest = self._metadata()[max(self._metadata())]
            with sqlite3.connect(self.database) as database:
                database.execute("UPDATE iceberg_tables SET metadata_location = ?", (str(newest),))
        return self.catalog.load_table(NAME)

    def batch(self, query_id: str, number: int, *, mode: str = "append") -> None:
        rows = pa.table({"who": [query_id], "batch": [number]}, schema=SCHEMA)
        self._write(rows, mode, {QUERY_ID: query_id, EPOCH_ID: str(number)})

    def insert(self, number: int) -> None:
        """Insert a row as a program that is no streaming query."""
        self._write(pa.table({"who": ["other"], "batch": [number]}, schema=SCHEMA), "append", {})

    def _write(self, rows: pa.Table, mode: str, properties: dict[str, str]) -> None:
        table = self.table
        write = table.overwrite if mode == "overwrite" and table.current_snapshot() else table.append
        write(rows, snapshot_properties=properties)
        self._export()

    def expire(self, *snapshots: int) -> None:
        table = self.table
        table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()
        self._export()

    def drop_tags(self) -> None:
        for tag in self.tags:
            self.table.manage_snapshots().remove_tag(tag).commit()
            self._export()

    def roll_back(self, snapshot: int) -> None:
        self.table.manage_snapshots().rollback_to_snapshot(snapshot).commit()
        self._export()

    @property
    def head(self) -> int | None:
        found = self.table.current_snapshot()
        return found.snapshot_id if found else None

    @property
    def tags(self) -> dict[str, int]:
        return {name: ref.snapshot_id for name, ref in self.table.metadata.refs.items() if name != "main"}

    @property
    def rows(self) -> list[tuple[str, int]]:
        found = self.table.scan().to_arrow() if self.head is not None else SCHEMA.empty_table()
        return sorted(zip(found.column("who").to_pylist(), found.column("batch").to_pylist(), strict=True))

    def snapshots(self, query_id: str = "a") -> dict[int, int]:
        """Return the newest snapshot of each batch, in the order in which they were written."""
        found = {}
        for snapshot in self.table.metadata.snapshots:
            summary: Any = snapshot.summary
            if summary is not None and summary.get(QUERY_ID) == query_id:
                found[int(summary[EPOCH_ID])] = snapshot.snapshot_id
        return found

    def rewind(self, to: int, committed: int, query_id: str = "a", **options: Any) -> TablePlan:
        """Rewind the table without a checkpoint, and return the plan."""
        change = f"test-{next(_NUMBERS)}"
        plan = self.opened().plan_rewind(query(committed, query_id), to, change_id=change, **options)
        if plan.action is not None:
            self.opened().apply(plan.action)
        return plan

    def undo(self, plan: TablePlan, committed: int, query_id: str = "a") -> TablePlan:
        done = dict(plan.action or {})
        undone = self.opened().plan_undo(query(committed, query_id), done, change_id=f"undo-{next(_NUMBERS)}")
        self.opened().apply(dict(undone.action or {}))
        return undone

    def _metadata(self) -> dict[int, Path]:
        return {
            int(file.name[1:].partition(".")[0]): file for file in (self.folder / "metadata").glob("v*.metadata.json")
        }

    def _export(self) -> None:
        if self.kind != "hadoop":
            return
        known = self._metadata()
        source = self.catalog.load_table(NAME).metadata_location.removeprefix("file://")
        if known and str(known[max(known)]) == source:
            return
        number = max(known, default=0) + 1
        shutil.copy(source, self.folder / "metadata" / f"v{number}.metadata.json")
        (self.folder / "metadata" / "version-hint.text").write_text(str(number))


_NUMBERS = itertools.count()
