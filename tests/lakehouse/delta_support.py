"""Delta tables for tests: the corpus that Spark wrote, and small ones that delta-rs writes and reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake import DeltaTable as RustTable

from headwater.checkpoint.local_tree import LocalTree
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.tables import Checkpointed, TablePlan

SCHEMA = pa.schema([("who", pa.string()), ("batch", pa.int64())])


def query(committed: int, query_id: str = "a", planned: int | None = None) -> Checkpointed:
    """Return the checkpoint's side of a plan."""
    return Checkpointed("CKPT", query_id, committed, committed if planned is None else planned)


def delta_table(path: Path, app_id: str | None = None) -> DeltaTable:
    """Return a table as Headwater opens it: a new one for each use, because it reads the log once."""
    return DeltaTable(LocalTree(path), f"delta:{path}", app_id)


def rows_of(path: Path) -> list[tuple[str, int]]:
    """Return the rows of a table as delta-rs reads them."""
    table = RustTable(str(path)).to_pyarrow_table() if (path / "_delta_log").exists() else SCHEMA.empty_table()
    return sorted(zip(table.column("who").to_pylist(), table.column("batch").to_pylist(), strict=True))


@dataclass
class Writer:
    """Writes a table as several streaming queries and other programs would."""

    path: Path
    expected: list[tuple[str, int]] = field(default_factory=list)

    def batch(self, app_id: str, number: int, *, mode: str = "append") -> None:
        self._write([(app_id, number)], mode, [Transaction(app_id, number)])

    def insert(self, number: int) -> None:
        """Insert a row as a program without transactions."""
        self._write([("other", number)], "append", [])

    def _write(self, rows: Sequence[tuple[str, int]], mode: Any, transactions: list[Transaction]) -> None:
        data = pa.table({"who": [who for who, _ in rows], "batch": [number for _, number in rows]}, schema=SCHEMA)
        properties = CommitProperties(app_transactions=transactions or None)
        write_deltalake(str(self.path), data, mode=mode, commit_properties=properties)
        self.expected = sorted(([] if mode == "overwrite" else self.expected) + list(rows))

    def delete(self, where: str) -> None:
        RustTable(str(self.path)).delete(where)

    def optimize(self) -> None:
        RustTable(str(self.path)).optimize.compact()

    @property
    def head(self) -> int:
        return RustTable(str(self.path)).version()


def rewind(path: Path, app_id: str, to: int, committed: int, *, keep_foreign: bool = False) -> TablePlan:
    """Rewind a table without a checkpoint, and return the plan."""
    plan = delta_table(path).plan_rewind(query(committed, app_id), to, change_id="test", keep_foreign=keep_foreign)
    if plan.action is not None:
        delta_table(path).apply(plan.action)
    return plan


def commits(path: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit."""
    files = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
