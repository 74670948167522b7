"""Streams into and out of Iceberg tables: rewound with corrected code, they hold what an uninterrupted run holds.

`make matrix` runs these tests on a PySpark that Iceberg has a release for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Checkpoint, Files, Iceberg, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused
from headwater.jars.versions import has_release
from headwater.lakehouse.tables import open_table
from headwater.spark.dropped import DroppedRecords
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.replay import replay, replayable
from headwater.timemachine.executor import Executor, guard_notice
from headwater.timemachine.fork import plan_query_fork
from headwater.timemachine.rewind import plan_query_rewind
from headwater.timemachine.tables import fsck
from headwater.timemachine.undo import plan_query_undo
from postgres_support import PostgresServer
from spark.draining import drain_source
from timemachine.spark_runs import Inbox

SCHEMA = "id INT, word STRING, price DOUBLE"
SALE = "shop STRING, amount BIGINT, at TIMESTAMP"
WORDS = ("ant", "bee", "cow")
Change = Callable[[DataFrame], DataFrame]
pytestmark = pytest.mark.skipif(not has_release("iceberg"), reason="Iceberg has no release for this PySpark")


def wrong(rows: DataFrame) -> DataFrame:
    return rows.withColumn("price", F.col("price") * 100)


def right(rows: DataFrame) -> DataFrame:
    return rows


def configure(spark: SparkSession, home: Path, **settings: str) -> str:
    """Add a catalog with its data in a folder to the session, and return its name. It is a Hadoop one by default."""
    name = f"lake_{abs(hash(home))}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    known = {"type": "hadoop", "warehouse": str(home / "warehouse"), "cache-enabled": "false"}
    for setting, value in {**known, **settings}.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{setting}", value)
    return name


@dataclass
class Lake:
    """A query over a folder of files, and the Iceberg table that it writes to."""

    spark: SparkSession
    home: Path
    mode: str = "append"
    partitioned: bool = False
    version: int | None = None
    catalog: dict[str, str] = field(default_factory=dict)
    table: str = field(init=False)
    inbox: Inbox = field(init=False)
    checkpoint: Path = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint = self.home / "checkpoint"
        self.inbox = Inbox(self.home / "in", SCHEMA)
        catalog = configure(self.spark, self.home, **self.catalog)
        self.table = f"{catalog}.shop.sales"
        if self.version is not None:
            self.spark.sql(f"CREATE DATABASE {catalog}.shop")
            properties = f"TBLPROPERTIES ('format-version' = '{self.version}')"
            self.spark.sql(f"CREATE TABLE {self.table} ({SCHEMA}) USING iceberg {properties}")

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)

    @property
    def uri(self) -> str:
        settings = {"type": "hadoop", "warehouse": str(self.home / "warehouse"), **self.catalog}
        return f"iceberg:{self.table}?" + "&".join(f"catalog.{name}={quote(value)}" for name, value in settings.items())

    def run(self, upto: int, change: Change = right) -> None:
        """Feed the files before ``upto`` that are missing, and run a batch for each file that was not read yet."""
        for number in range(self.inbox.count, upto):
            rows = range(3)
            self.inbox.put(
                [{"id": 10 * number + row, "word": WORDS[(number + row) % 3], "price": float(row)} for row in rows]
            )
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.inbox.folder))
        rows = change(source.coalesce(1))
        if self.mode == "complete":
            rows = rows.groupBy("word").agg(F.count("*").alias("seen"), F.sum("price").alias("price"))
        writer = rows.writeStream.outputMode(self.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).option("fanout-enabled", "true")
        if self.partitioned:
            writer = writer.partitionBy("word")
        writer.format("iceberg").toTable(self.table).awaitTermination()

    @property
    def rows(self) -> list[str]:
        found = self.spark.table(self.table)
        return sorted(line[0] for line in found.select(F.to_json(F.struct(*sorted(found.columns)))).collect())

    def rewind(self, to: int | None) -> None:
        plan = plan_query_rewind(self.files, to=to, sink=self.uri)
        assert plan.table is not None and plan.table.action is not None
        plan.apply()
        unload_state_stores(self.spark)

    def undo(self) -> None:
        plan_query_undo(self.files, drop_newer=True).apply()
        unload_state_stores(self.spark)

    @property
    def findings(self) -> list[str]:
        return [one.code for one in fsck(self.files, self.uri) if one.path.startswith("iceberg:")]


KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "complete": {"mode": "complete"},
    "partitioned": {"partitioned": True},
    "format version 1": {"version": 1},
    "format version 3": {"version": 3},
}


@pytest.mark.parametrize("to", [1, None])
@pytest.mark.parametrize("kind", KINDS)
def test_rewind_over_the_matrix(headwater_spark: SparkSession, tmp_path: Path, kind: str, to: int | None) -> None:
    """For each kind of table and each target, the re-run writes every row exactly once, and undo restores the rows."""
    lake = Lake(headwater_spark, tmp_path / "lake", **KINDS[kind])
    control = Lake(headwater_spark, tmp_path / "control", **KINDS[kind])
    lake.run(3, wrong)
    before = lake.rows
    if to is not None:
        control.run(to + 1, wrong)
    control.run(4, right)
    lake.rewind(to)
    assert lake.findings == ["table-equal"]
    lake.run(4, right)
    assert lake.rows == control.rows
    lake.undo()
    assert lake.rows == before
    assert lake.findings == ["table-equal"]
    lake.run(5, wrong)
    assert lake.findings == ["table-equal"]


@pytest.mark.parametrize("to", [1, None])
def test_a_catalog_in_a_database(
    headwater_spark: SparkSession, tmp_path: Path, postgres: PostgresServer, to: int | None
) -> None:
    """PyIceberg commits to a catalog that Spark has in PostgreSQL, and Spark continues from there."""
    user, _, place = postgres.url.removeprefix("postgresql://").partition("@")
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{place}",
        "jdbc.user": user,
        "jdbc.schema-version": "V1",
        "clients": "1",
    }
    lake = Lake(headwater_spark, tmp_path / "lake", catalog=catalog)
    headwater_spark.sql(f"CREATE DATABASE {lake.table.rpartition('.')[0]}")
    control = Lake(headwater_spark, tmp_path / "control")
    lake.run(3, wrong)
    before = lake.rows
    if to is not None:
        control.run(to + 1, wrong)
    control.run(4, right)
    lake.rewind(to)
    lake.run(4, right)
    assert lake.rows == control.rows
    lake.undo()
    assert lake.rows == before
    assert lake.findings == ["table-equal"]


def test_spark_refuses_to_start_between_checkpoint_and_table(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """While checkpoint and table differ, the query does not start; resume brings both to the batch."""
    lake = Lake(headwater_spark, tmp_path / "lake")
    lake.run(2)
    plan = plan_query_rewind(lake.files, to=0, sink=lake.uri)
    assert plan.writes_table is not None
    executor = Executor({"checkpoint": lake.files}, table=plan.writes_table)

    class Killed(BaseException):
        """The end of the process."""

    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(plan.writes_table, "apply", killed)
        executor.apply(plan.change)
    assert (lake.checkpoint / "metadata").read_bytes() == guard_notice(plan.change)
    with pytest.raises(Py4JJavaError, match="headwater_rewind_was_interrupted"):
        lake.run(2)
    executor.resume()
    assert len(lake.rows) == 3
    lake.run(2)
    assert len(lake.rows) == 6


def test_a_fork_writes_to_a_copy(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A fork continues in a copy that shares the data files, and the original is not modified."""
    lake = Lake(headwater_spark, tmp_path / "lake", partitioned=True)
    lake.run(3)
    before = lake.rows
    new = lake.uri.replace(".shop.sales?", ".shop.tried?")
    plan_query_fork(lake.files, str(tmp_path / "fork"), at="1", sink=new, copy_of=lake.uri).apply()
    copy = replace(lake, home=tmp_path / "unused")
    copy.table, copy.checkpoint, copy.inbox = lake.table.replace("sales", "tried"), tmp_path / "fork", lake.inbox
    assert len(copy.rows) == 6
    copy.run(3, wrong)
    assert len(copy.rows) == 9
    assert copy.rows != before
    found = [finding.code for finding in fsck(copy.files, new) if finding.path.startswith("iceberg:")]
    assert found == ["table-equal"]
    plan_query_rewind(copy.files, to=1, sink=new).apply()
    assert len(copy.rows) == 6
    assert lake.rows == before


class Shop:
    """A job that copies sales to a table, and one that reads the table."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home = spark, home
        self.catalog = {"type": "hadoop", "warehouse": str(home / "warehouse"), "cache-enabled": "false"}
        self.name = configure(spark, home)
        self.inbox = Inbox(home / "in", SALE)
        source = Files(str(self.inbox.folder), schema=SALE, options={"maxFilesPerTrigger": "1"})
        self.copy = Job("copy", lambda sales: sales, reads=source, writes=self.table("sales"), trigger="available-now")
        reads = replace(self.table("sales"), options={"streaming-max-files-per-micro-batch": "1"})
        self.totals = replace(self.copy, name="totals", transform=totals, reads=reads, writes=self.table("totals"))

    def table(self, name: str) -> Iceberg:
        return Iceberg(f"{self.name}.shop.{name}", catalog=self.catalog)

    def sell(self, *sales: tuple[int, str]) -> None:
        self.inbox.put([{"shop": "a", "amount": amount, "at": f"2024-05-01T{at}:00Z"} for amount, at in sales])

    def run(self, *jobs: Job) -> None:
        for job in jobs:
            drain_source(self.spark, job, self.home / job.name)

    def amounts(self, name: str, column: str) -> list[int]:
        return sorted(row[0] for row in self.spark.table(self.table(name).table).select(column).collect())


def totals(sales: DataFrame) -> DataFrame:
    windows = F.window("at", "10 minutes").alias("window")
    return sales.withWatermark("at", "10 minutes").groupBy(windows).agg(F.sum("amount").alias("total"))


@pytest.fixture
def shop(headwater_spark: SparkSession, tmp_path: Path) -> Shop:
    """A table whose fourth snapshot has a sale behind the watermark, read one file at a time."""
    found = Shop(headwater_spark, tmp_path)
    for sales in ([(1, "10:01")], [(2, "11:00")], [(3, "11:01")], [(4, "10:02"), (8, "11:01")], [(16, "12:02")]):
        found.sell(*sales)
    found.run(found.copy, found.totals)
    return found


def test_late_records_of_a_table(shop: Shop) -> None:
    """A late row of a table is found by its data file and its number there, in exactly the batch that dropped it."""
    finder = DroppedRecords(shop.spark, shop.totals, History(LocalTree(shop.home / "totals")))
    found = {number: finder.in_batch(number) for number in range(5)}
    assert [number for number, records in found.items() if records] == [3]
    ((late,),) = [records for records in found.values() if records]
    assert (late.reason, late.kind, late.position["line"]) == ("late", "iceberg", 1)
    assert json.loads(str(late.value))["amount"] == 4


def test_replay_of_a_table(shop: Shop) -> None:
    """Recorded batches read exactly the same files again, although the table has grown."""
    shop.sell((32, "12:03"))
    shop.run(shop.copy)
    again = replay(shop.spark, replayable(shop.totals), LocalTree(shop.home / "totals"), 1, 5)
    assert [one.batch_id for one in again] == [1, 2, 3, 4, 5]
    assert [row["total"] for one in again for row in one.rows] == shop.amounts("totals", "total")


def test_rewind_of_two_jobs(shop: Shop) -> None:
    """A rewind checks the source table. After both jobs ran again, the tables are those of an uninterrupted run."""
    reader, writer = Checkpoint(shop.home / "totals"), Checkpoint(shop.home / "copy")
    (reread,) = reader.plan_rewind(to=1).rereads
    assert (reread.kind, reread.still_there, reread.rows) == ("iceberg", True, 4)
    writer.plan_rewind(to=1).apply()
    with pytest.raises(ChangeRefused, match="no longer has all the input") as refused:
        reader.plan_rewind(to=1).apply()
    assert "rewind to batch 0 or an earlier one, with --replan" in str(refused.value)
    reader.plan_rewind(to=0, replan=True).apply()
    unload_state_stores(shop.spark)
    corrected = replace(shop.copy, transform=lambda sales: sales.withColumn("amount", F.col("amount") + 100))
    shop.run(corrected, shop.totals)
    assert shop.amounts("sales", "amount") == [1, 2, 103, 104, 108, 116]
    assert shop.amounts("totals", "total") == [1, 213]
    table = open_table(
        f"iceberg:{shop.name}.shop.totals?catalog.type=hadoop&catalog.warehouse={shop.home / 'warehouse'}"
    )
    assert table is not None and table.exists
