"""The Delta table that a scenario's job writes to, whatever table the job itself names."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.checkpoint.local_tree import LocalTree
from headwater.jobs.endpoints import Delta
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
from headwater.spark.writing import Rows, captured_rows


class SinkTable:
    """A table in the scenario's folder. Each batch is written as in a run, and what it emitted is read from the table."""

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
        return after if self._mode == "complete" else rows_added(before, after)

    def _version(self) -> int:
        log = DeltaLog(LocalTree(Path(self.table.path)))
        return log.head if log.exists else -1

    def _key(self, row: dict[str, Any]) -> str:
        return json.dumps([_value(row, name) for name in self.table.merge_names], sort_keys=True)


def _value(row: Any, name: str) -> Any:
    """Return a column, or a field of a struct by its path."""
    if name in row:
        return row[name]
    for part in name.split("."):
        row = None if row is None else row[part]
    return row


def rows_added(before: Rows, after: Rows) -> Rows:
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
