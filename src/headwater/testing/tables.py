"""The tables of a scenario, in its folder: the one that the job writes to, and those that it reads as static tables.

A sink table takes the place of whatever table the job names. Each batch is written as in a run, and what it emitted is
read from the table. The rows that a test gives to a static table are files, whatever the job reads the table from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from headwater.checkpoint.local_tree import LocalTree
from headwater.jobs.endpoints import Decoding, Delta, Files, Iceberg, Static
from headwater.jobs.job import Job
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.tables import RewindableTable, open_table
from headwater.spark.delta import (
    append_batch,
    create_table,
    is_table,
    merge_batch,
    replace_rows,
    without_stream_metadata,
)
from headwater.spark.iceberg import replace_iceberg_rows, write_iceberg_batch
from headwater.spark.writing import Rows, captured_rows
from headwater.testing.records import Fed, as_lines


class DeltaSinkTable:
    """The Delta table that a scenario's job writes to."""

    def __init__(self, sink: Delta, mode: str, folder: Path) -> None:
        self.table = replace(sink, path=str(folder / "delta"))
        self._mode = mode

    @property
    def rewindable(self) -> RewindableTable | None:
        return open_table(f"delta:{self.table.path}") if is_table(self.table) else None

    def rows(self, spark: SparkSession) -> Rows:
        """Return the rows of the table."""
        return captured_rows(spark.read.format("delta").load(self.table.path)) if is_table(self.table) else []

    def write(self, result: DataFrame, batch_id: int) -> Rows:
        """Write a batch. Return the rows that are in the table because of it; none if it was written before."""
        spark = result.sparkSession
        # The result runs once: its rows are needed for the table, and to find them there.
        rows = spark.createDataFrame(result.collect(), result.schema)
        frame = without_stream_metadata(rows)
        before, version = self.rows(spark), self._version()
        if self.table.merge_names:
            create_table(spark, self.table, frame.schema)
            version = self._version()
            merge_batch(self.table, frame, batch_id)
        elif self._mode == "complete":
            replace_rows(self.table, frame, batch_id)
        else:
            append_batch(self.table, frame, batch_id)
        if self._version() == version:
            return []
        after = self.rows(spark)
        if self.table.merge_names:
            keys = {self._key(row) for row in captured_rows(frame)}
            return [row for row in after if self._key(row) in keys]
        return after if self._mode == "complete" else _rows_added(before, after)

    def _version(self) -> int:
        log = DeltaLog(LocalTree(Path(self.table.path)))
        return log.head if log.exists else -1

    def _key(self, row: dict[str, Any]) -> str:
        return json.dumps([_value(row, name) for name in self.table.merge_names], sort_keys=True)


class IcebergSinkTable:
    """The Iceberg table that a scenario's job writes to, in a Hadoop catalog."""

    def __init__(self, sink: Iceberg, mode: str, folder: Path) -> None:
        self._warehouse, self._mode = folder / "iceberg", mode
        # Spark keeps a catalog as long as its session, so each scenario has its own. A cache would not see a rewind.
        settings = {"type": "hadoop", "warehouse": str(self._warehouse), "cache-enabled": "false"}
        self.table = replace(sink, table=f"scenario_{uuid4().hex}.scenario.sink", catalog=settings)

    @property
    def rewindable(self) -> RewindableTable | None:
        uri = f"iceberg:{self.table.table}?catalog.type=hadoop&catalog.warehouse={self._warehouse}"
        table = open_table(uri)
        return table if table is not None and table.exists else None

    def rows(self, spark: SparkSession) -> Rows:
        """Return the rows of the table."""
        exists = spark.catalog.tableExists(self.table.table)
        return captured_rows(spark.table(self.table.table)) if exists else []

    def write(self, result: DataFrame, batch_id: int) -> Rows:
        """Write a batch. Return the rows that are in the table because of it; none if it was written before."""
        spark = result.sparkSession
        # The result runs once: its rows are needed for the table, and to find them there.
        frame = without_stream_metadata(spark.createDataFrame(result.collect(), result.schema))
        before, version = self.rows(spark), self._version()
        if self._mode == "complete":
            replace_iceberg_rows(self.table, frame, batch_id)
        else:
            write_iceberg_batch(self.table, frame, batch_id)
        if self._version() == version:
            return []
        after = self.rows(spark)
        return after if self._mode == "complete" else _rows_added(before, after)

    def _version(self) -> str:
        table = self.rewindable
        return "" if table is None else table.fingerprint()


class TableFolder:
    """The rows that a test gives to a static table, as a folder of files."""

    def __init__(self, folder: Path, job: Job, name: str, schema: str | None) -> None:
        if name not in job.statics:
            known = ", ".join(job.statics) or "none"
            raise ValueError(f"{job.name} has no static table {name!r}; its static tables: {known}")
        original = job.statics[name]
        table = original.table
        self._folder = folder / f"table-{name}"
        self._folder.mkdir(parents=True)
        self._files = 0
        chosen = schema or (table.schema if isinstance(table, Files | Delta) else None)
        if chosen is None:
            raise ValueError(
                f"{job.name} reads {name} without a schema, so the scenario needs one: "
                f'scenario(JOB, tables=..., schema={{"{name}": "..."}})'
            )
        # Raw lines mean what they mean in the job's own files if these have the same format.
        decode = table.decode if isinstance(table, Files) and (table.format or "json") == "json" else {}
        self._decoding = Decoding(chosen, "json", decode)
        self.static: Static = replace(original, table=Files(str(self._folder), chosen, "json", decode=decode))

    def replace(self, rows: Sequence[Fed]) -> list[str]:
        """Replace all rows of the table, and return them as the lines of its new file."""
        lines = as_lines(rows, self._decoding, ())
        before = list(self._folder.iterdir())
        self._files += 1
        file = self._folder / f"{self._files:06d}.json"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for old in before:
            old.unlink()
        return lines


def _value(row: Any, name: str) -> Any:
    """Return a column, or a field of a struct by its path."""
    if name in row:
        return row[name]
    for part in name.split("."):
        row = None if row is None else row[part]
    return row


def _rows_added(before: Rows, after: Rows) -> Rows:
    """Return the rows that a table has now and did not have before, as often as it has more of them."""
    known = Counter(json.dumps(row, sort_keys=True) for row in before)
    added = []
    for row in after:
        text = json.dumps(row, sort_keys=True)
        if known[text]:
            known[text] -= 1
        else:
            added.append(row)
    return added
