"""Plain PySpark streams over folders of files, run until the input is drained."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import temporary_settings as settings
from headwater.statefiles.reader import state_rows
from waiting_support import wait_until

Rows = list[str]
Query = Callable[[dict[str, DataFrame]], DataFrame]

STATE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
CHANGELOG = f"{STATE}.rocksdb.changelogCheckpointing.enabled"
STORES = {
    "hdfs": {f"{STATE}.providerClass": HDFS},
    "rocksdb": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "false"},
    "changelog": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "true"},
    "format2": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "true", f"{STATE}.checkpointFormatVersion": "2"},
}
# Snapshots every other batch, and logs that are compacted and cleaned up at once: the difficult cases for a rewind.
EAGER = {
    f"{STATE}.minDeltasForSnapshot": "2",
    f"{STATE}.maintenanceInterval": "100ms",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    "spark.sql.streaming.fileSink.log.compactInterval": "3",
    "spark.sql.streaming.fileSink.log.cleanupDelay": "0",
    "spark.sql.shuffle.partitions": "2",
}


# Without empty batches in between, another run can repeat the same batch boundaries.
NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
A_SNAPSHOT_EACH = {f"{STATE}.minDeltasForSnapshot": "0", f"{STATE}.maintenanceInterval": "10ms"}
NO_NEW_SNAPSHOTS = {f"{STATE}.minDeltasForSnapshot": "1000", f"{STATE}.maintenanceInterval": "1h"}


class Inbox:
    """A folder of JSON files, each a second newer than the one before: Spark reads the oldest first."""

    def __init__(self, folder: Path, schema: str) -> None:
        self.folder, self.schema, self.count = folder, schema, 0
        folder.mkdir(parents=True)

    def put(self, rows: list[dict[str, Any]]) -> None:
        draft = self.folder.with_name(f"{self.folder.name}.draft")
        draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(draft, (1_000_000_000 + self.count, 1_000_000_000 + self.count))
        draft.rename(self.folder / f"{self.count:04d}.json")
        self.count += 1


class Stream:
    """A query with its checkpoint. Every run starts the query and drains the inboxes."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        query: Query,
        inboxes: dict[str, Inbox],
        *,
        mode: str = "update",
        conf: dict[str, str] | None = None,
    ) -> None:
        self.spark, self.query, self.inboxes, self.mode = spark, query, inboxes, mode
        self.checkpoint = folder
        self.conf = {**EAGER, **(conf or {})}

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)

    def run(
        self, files_per_batch: int = 1, *, snapshot_before: Mapping[int, int] | None = None, **conf: str
    ) -> dict[int, Rows]:
        """Run the query; return the rows that it emitted by batch.

        A background thread uploads snapshots. The batches in ``snapshot_before`` wait until there is one of the given
        version or a later one.
        """
        found: dict[int, Rows] = {}

        def note(batch: DataFrame, batch_id: int) -> None:
            if snapshot_before and (version := snapshot_before.get(batch_id)) is not None:
                wait_until(lambda: self.snapshots_after(version - 1), f"a snapshot of version {version}")
            lines = batch.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
            found[batch_id] = sorted(line[0] for line in lines)

        self.run_into(lambda writer: writer.foreachBatch(note).start(), files_per_batch, conf)
        return found

    def run_into(
        self, start: Callable[[Any], Any], files_per_batch: int = 1, conf: dict[str, str] | None = None
    ) -> None:
        with settings(self.spark, {**self.conf, **(conf or {})}):
            sources = {
                name: self.spark.readStream.schema(inbox.schema)
                .option("maxFilesPerTrigger", files_per_batch)
                .json(str(inbox.folder))
                for name, inbox in self.inboxes.items()
            }
            writer = self.query(sources).writeStream.outputMode(self.mode).trigger(availableNow=True)
            start(writer.option("checkpointLocation", str(self.checkpoint))).awaitTermination()
        unload_state_stores(self.spark)

    def states(self, first: int = 0) -> dict[int, list[str]]:
        """Return the rows of all stores by batch, as read by Headwater."""
        committed = History(self.files).logs.commits.ids
        return {batch: self.state(batch) for batch in committed if batch >= first}

    def state(self, batch: int) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in state_rows(self.files, batch))

    def snapshots_after(self, version: int) -> list[str]:
        names = [name for held in History(self.files).logs.state.names.values() for name in held]
        return [
            name
            for name in names
            if name.endswith((".zip", ".snapshot")) and int(name.partition(".")[0].partition("_")[0]) > version
        ]
