"""Plain PySpark programs: every source and sink whose records can be compared, run batch by batch.

Feed N has two records with the id N. A source reads a given number of feeds per batch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import Broker, run_here
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import temporary_settings as settings
from headwater.timemachine.rewind import plan_rewind
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, Inbox
from versions_support import fails_after_commit

SCHEMA = "id INT, word STRING"
Rows = Counter[tuple[Any, ...]]


def record(feed: int, number: int) -> dict[str, Any]:
    return {"id": feed, "word": f"word {number}"}


def rows_of_feeds(first: int, end: int) -> Rows:
    """Return the records of feeds, with the end excluded."""
    return Counter((feed, f"word {number}") for feed in range(first, end) for number in (0, 1))


class Source(Protocol):
    """An input that grows. ``frame`` reads ``feeds`` feeds per batch; ``runs`` drain it up to a feed."""

    def grow(self, feeds: int) -> None: ...
    def frame(self, feeds: int) -> DataFrame: ...
    def runs(self, files: LocalTree, feeds: int) -> int: ...


class FileSource:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.inbox = spark, Inbox(folder / "in", SCHEMA)

    def grow(self, feeds: int) -> None:
        for feed in range(self.inbox.count, feeds):
            self.inbox.put([record(feed, 0), record(feed, 1)])

    def frame(self, feeds: int) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", feeds)
        return reader.json(str(self.inbox.folder))

    def runs(self, files: LocalTree, feeds: int) -> int:
        return 1


class TableSource(FileSource):
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.name = f"plain_{uuid4().hex}"
        spark.sql(f"CREATE TABLE {self.name} ({SCHEMA}) USING json LOCATION '{self.inbox.folder}'")

    def frame(self, feeds: int) -> DataFrame:
        return self.spark.readStream.option("maxFilesPerTrigger", feeds).table(self.name)


class KafkaSource:
    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark, self.broker, self.topic, self.fed = spark, broker, new_topic(broker), 0

    def grow(self, feeds: int) -> None:
        fed, self.fed = range(self.fed, feeds), max(self.fed, feeds)
        lines = [json.dumps(record(feed, number)) for feed in fed for number in (0, 1)]
        if lines:
            self.broker.produce(self.topic, *lines)

    def frame(self, feeds: int) -> DataFrame:
        return self._rows(maxOffsetsPerTrigger=str(2 * feeds))

    def real_time_frame(self) -> DataFrame:
        """Return the rows without a limit per batch, which the real-time trigger refuses."""
        return self._rows()

    def _rows(self, **limits: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.broker.bootstrap)
        found = reader.options(subscribe=self.topic, startingOffsets="earliest", **limits).load()
        values = found.select(F.col("value").cast("string"))
        return values.select(F.from_json("value", SCHEMA).alias("row")).select("row.*")

    def runs(self, files: LocalTree, feeds: int) -> int:
        return 1


class RateSource:
    """``rate-micro-batch``: with the trigger ``availableNow``, each run has one more batch than was planned."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def grow(self, feeds: int) -> None:
        pass

    def frame(self, feeds: int) -> DataFrame:
        options = {"rowsPerBatch": "2", "startTimestamp": "1714557600000", "numPartitions": "1"}
        rows = self.spark.readStream.format("rate-micro-batch").options(**options).load()
        word = F.concat(F.lit("word "), (F.col("value") % 2).cast("string"))
        return rows.select(F.floor(F.col("value") / 2).cast("int").alias("id"), word.alias("word"))

    def runs(self, files: LocalTree, feeds: int) -> int:
        planned = History(files).logs.offsets.ids if (files.root / "offsets").exists() else ()
        return feeds - (planned[-1] + 1 if planned else 0)


class Sink(Protocol):
    """An output. ``repeats`` says whether it has the rows of a batch that ran twice two times."""

    repeats: bool

    def start(self, rows: DataFrame, checkpoint: Path) -> Any: ...
    def rows(self) -> Rows: ...
    def folder(self) -> Path | None: ...


class FileSink:
    repeats = False

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.out = spark, folder / "out"

    def start(self, rows: DataFrame, checkpoint: Path) -> Any:
        return writer_of(rows, checkpoint).format("json").start(str(self.out))

    def rows(self) -> Rows:
        present = [json.loads(line) for file in self.out.glob("part-*.json") for line in file.read_text().splitlines()]
        listed = self.spark.read.schema(SCHEMA).json(str(self.out)).count()
        assert len(present) == listed, "the folder has data files that its log lacks, or the log has lost some"
        return Counter((row["id"], row["word"]) for row in present)

    def folder(self) -> Path | None:
        return self.out


class TableSink:
    repeats = False

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.name = spark, f"plain_{uuid4().hex}"

    def start(self, rows: DataFrame, checkpoint: Path) -> Any:
        return writer_of(rows, checkpoint).toTable(self.name)

    def rows(self) -> Rows:
        return Counter(map(tuple, self.spark.read.parquet(str(self.folder())).collect()))

    def folder(self) -> Path:
        (described,) = self.spark.sql(f"DESCRIBE FORMATTED {self.name}").where("col_name = 'Location'").collect()
        return Path(described.data_type.removeprefix("file:"))


class KafkaSink:
    repeats = True

    def __init__(self, broker: Broker) -> None:
        self.broker, self.topic = broker, new_topic(broker)

    def start(self, rows: DataFrame, checkpoint: Path) -> Any:
        values = rows.select(F.to_json(F.struct("*")).alias("value"))
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic}
        return writer_of(values, checkpoint).format("kafka").options(**options).start()

    def rows(self) -> Rows:
        done = run_here("consume", self.topic, *self.broker.arguments, "--from-beginning", "--timeout", 1)
        return Counter((row["id"], row["word"]) for row in map(json.loads, done.stdout.splitlines()))

    def folder(self) -> Path | None:
        return None


class MemorySink:
    """Counts per word in complete mode, the one mode in which a memory table survives a restart."""

    repeats = False

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.name = spark, f"plain_{uuid4().hex}"

    def start(self, rows: DataFrame, checkpoint: Path) -> Any:
        counts = rows.groupBy("word").agg(F.count("*").alias("n"), F.sum("id").alias("ids"))
        return writer_of(counts, checkpoint).outputMode("complete").format("memory").queryName(self.name).start()

    def rows(self) -> Rows:
        return Counter(map(tuple, self.spark.table(self.name).collect()))

    def folder(self) -> Path | None:
        return None


class FunctionSink:
    """``foreachBatch``: the rows that its function has received."""

    repeats = True

    def __init__(self) -> None:
        self.received: Rows = Counter()

    def start(self, rows: DataFrame, checkpoint: Path) -> Any:
        def note(batch: DataFrame, batch_id: int) -> None:
            self.received.update(map(tuple, batch.collect()))

        return writer_of(rows, checkpoint).foreachBatch(note).start()

    def rows(self) -> Rows:
        return Counter(self.received)

    def folder(self) -> Path | None:
        return None


def writer_of(rows: DataFrame, checkpoint: Path) -> Any:
    return rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def new_topic(broker: Broker) -> str:
    name = f"plain_{uuid4().hex}"
    assert run_here("topics", "create", name, *broker.arguments).returncode == 0
    return name


class Program:
    """One query from a source to a sink, with its checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path, source: Source, sink: Sink) -> None:
        self.spark, self.source, self.sink, self.checkpoint = spark, source, sink, checkpoint

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)

    def run(self, upto: int, feeds_per_batch: int = 1) -> None:
        """Run the query until it has read the feeds before ``upto``."""
        self.source.grow(upto)
        with settings(self.spark, {**EAGER, **NO_EMPTY_BATCHES}):
            for _ in range(self.source.runs(self.files, upto)):
                try:
                    self._drain(feeds_per_batch)
                except StreamingQueryException as error:
                    if not fails_after_commit(error):
                        raise
                    self._drain(feeds_per_batch)
        unload_state_stores(self.spark)

    def _drain(self, feeds_per_batch: int) -> None:
        self.sink.start(self.source.frame(feeds_per_batch), self.checkpoint).awaitTermination()

    def rewind(self, to: int, *, replan: bool) -> None:
        folder = self.sink.folder()
        plan_rewind(self.files, to=to, replan=replan, sink=open_files(str(folder)) if folder else None).apply()


SOURCES: dict[str, Callable[..., Source]] = {
    "files": lambda spark, folder, broker: FileSource(spark, folder),
    "table": lambda spark, folder, broker: TableSource(spark, folder),
    "kafka": lambda spark, folder, broker: KafkaSource(spark, broker()),
    "rate per micro-batch": lambda spark, folder, broker: RateSource(spark),
}
SINKS: dict[str, Callable[..., Sink]] = {
    "files": lambda spark, folder, broker: FileSink(spark, folder),
    "table": lambda spark, folder, broker: TableSink(spark),
    "kafka": lambda spark, folder, broker: KafkaSink(broker()),
    "memory": lambda spark, folder, broker: MemorySink(spark),
    "foreachBatch": lambda spark, folder, broker: FunctionSink(),
}
