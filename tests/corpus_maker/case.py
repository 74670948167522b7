"""The definition of a checkpoint of the corpus: a query, its input, its state store and how its run ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = Path("/tmp/headwater-corpus")

_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_ROCKSDB = {_PROVIDER: f"{_PROVIDERS}.RocksDBStateStoreProvider"}

STORES: dict[str, dict[str, str]] = {
    "hdfs": {_PROVIDER: f"{_PROVIDERS}.HDFSBackedStateStoreProvider"},
    "rocksdb": {**_ROCKSDB, _CHANGELOG: "false"},
    "changelog": {**_ROCKSDB, _CHANGELOG: "true"},
    "format2": {**_ROCKSDB, _CHANGELOG: "true", "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"},
}

EVERYWHERE = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
    # Both snapshots and the changes between them should be on disk, in a run of eight batches.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
    "spark.sql.streaming.fileSink.log.compactInterval": "3",
}

Row = Mapping[str, Any]
Inputs = Mapping[str, Any]  # stream name -> DataFrame


@dataclass(frozen=True)
class Stream:
    """One input: the rows of each feed, written as JSON lines of this schema."""

    schema: str
    feeds: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Case:
    """One checkpoint to create. `query` takes the inputs by name and returns the streaming DataFrame."""

    name: str
    description: str
    query: Callable[[Inputs], Any]
    streams: Mapping[str, Stream]
    mode: str
    store: str
    conf: Mapping[str, str] = field(default_factory=dict)
    #: files, kafka, rate or rate-micro-batch
    source: str = "files"
    source_options: Mapping[str, str] = field(default_factory=dict)
    #: "rows": foreachBatch that records what was emitted; "files": Spark's file sink; "kafka": a topic
    sink: str = "rows"
    sink_options: Mapping[str, str] = field(default_factory=dict)
    #: sources and the sink are given names, which Spark then writes into its logs
    named: bool = False
    #: "before" or "after" the state was written: the last feed's batch is planned and never committed
    crash: str | None = None
    #: the query is stopped after this many feeds and started again, with other settings or another query
    restart_after: int | None = None
    conf_after_restart: Mapping[str, str] = field(default_factory=dict)
    query_after_restart: Callable[[Inputs], Any] | None = None
    #: the duration of a batch of the real-time trigger
    real_time: str | None = None
    #: answers contain each row a second time, with microseconds, where milliseconds would hide an error
    precise: bool = False
    since: tuple[int, int] = (3, 4)

    @property
    def place(self) -> Path:
        return PLACE / self.name

    @property
    def settings(self) -> dict[str, str]:
        return {**EVERYWHERE, **STORES[self.store], **self.conf}

    @property
    def feed_count(self) -> int:
        return max(len(stream.feeds) for stream in self.streams.values())

    @property
    def trigger(self) -> dict[str, bool | str]:
        """Spark's trigger; empty for micro-batches as soon as there is data.

        The rate sources never run dry and get one batch a run. Rows for two streams cannot be put in place at the
        same instant, so that a running query could see the first of them alone.
        """
        if self.real_time:
            return {"realTime": self.real_time}
        if self.source.startswith("rate"):
            return {"once": True}
        return {"availableNow": True} if len(self.streams) > 1 else {}

    @property
    def runs_each_feed(self) -> bool:
        """Whether the query ends by itself, so that each feed is a separate run; otherwise one run takes all feeds."""
        return bool(self.trigger) and not self.real_time
