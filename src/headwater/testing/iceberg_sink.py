"""The Iceberg table that a scenario's job writes to, whatever table the job itself names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from headwater.jobs.endpoints import Iceberg
from headwater.lakehouse.tables import RewindableTable, open_table
from headwater.spark.delta import without_stream_metadata
from headwater.spark.iceberg import replace_iceberg_rows, write_iceberg_batch
from headwater.spark.writing import Rows, captured_rows
from headwater.testing.sink_table import rows_added


class IcebergSinkTable:
    """A table in a Hadoop catalog in the scenario's folder. What a batch emitted is read from the table."""

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
        return after if self._mode == "complete" else rows_added(before, after)

    def _version(self) -> str:
        table = self.rewindable
        return "" if table is None else table.fingerprint()
