"""Streams into Delta tables on real Spark: rewound with corrected code, they hold what an uninterrupted run holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.local_tree import LocalTree
from headwater.lakehouse.delta_log import DeltaLog
from headwater.spark.delta_engine import written_by_spark
from headwater.spark.session import temporary_settings as settings
from headwater.timemachine.executor import Executor, guard_notice
from headwater.timemachine.fork import plan_query_fork
from headwater.timemachine.rewind import plan_query_rewind
from headwater.timemachine.tables import fsck
from headwater.timemachine.undo import plan_query_undo
from timemachine.spark_runs import Inbox

SCHEMA = "id INT, word STRING, price DOUBLE"
WORDS = ("ant", "bee", "cow")
APP, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
Change = Callable[[DataFrame], DataFrame]


def wrong(rows: DataFrame) -> DataFrame:
    return rows.withColumn("price", F.col("price") * 100)


def right(rows: DataFrame) -> DataFrame:
    return rows


@dataclass
class Lake:
    """A query over a folder of files, and the Delta table that it writes to."""

    spark: SparkSession
    home: Path
    mode: str = "append"
    merges: bool = False
    partitioned: bool = False
    options: dict[str, str] = field(default_factory=dict)
    table: Path = field(init=False)
    inbox: Inbox = field(init=False)
    checkpoint: Path = field(init=False)

    def __post_init__(self) -> None:
        self.table = self.home / "table"
        self.checkpoint = self.home / "checkpoint"
        self.inbox = Inbox(self.home / "in", SCHEMA)

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)

    @property
    def uri(self) -> str:
        return f"delta:{self.table}"

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text.replace("TABLE!", f"delta.`{self.table}`")).collect()

    def run(self, upto: int, change: Change = right) -> None:
        """Feed the files before ``upto`` that are missing, and run a batch for each file that was not read yet."""
        for number in range(self.inbox.count, upto):
            rows = range(3)
            self.inbox.put(
                [{"id": 10 * number + row, "word": WORDS[(number + row) % 3], "price": float(row)} for row in rows]
            )
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.inbox.folder))
        writer = change(source.coalesce(1)).writeStream.outputMode(self.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(**self.options)
        if self.partitioned:
            writer = writer.partitionBy("word")
        query = (
            writer.foreachBatch(self._merge).start() if self.merges else writer.format("delta").start(str(self.table))
        )
        query.awaitTermination()

    def _merge(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        batch.dropDuplicates(["word"]).createOrReplaceTempView("incoming")
        names = {APP: str(spark.sparkContext.getLocalProperty("sql.streaming.queryId")), VERSION: str(number)}
        with settings(spark, names):
            spark.sql(
                f"MERGE INTO delta.`{self.table}` kept USING incoming ON kept.word = incoming.word "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

    @property
    def rows(self) -> list[str]:
        found = self.spark.read.format("delta").load(str(self.table))
        lines = found.select(F.to_json(F.struct(*sorted(found.columns)), {"ignoreNullFields": "false"})).collect()
        return sorted(line[0] for line in lines)

    def rewind(self, to: int | None, **options: Any) -> None:
        plan = plan_query_rewind(self.files, to=to, sink=self.uri, **options)
        assert plan.table is not None and plan.table.action is not None
        plan.apply()

    def undo(self, **options: Any) -> None:
        plan_query_undo(self.files, **options).apply()


def test_rewind_an_appended_table(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Corrected code replaces the rows of undone batches exactly once; undo brings the old rows back."""
    lake, control = Lake(headwater_spark, tmp_path / "lake"), Lake(headwater_spark, tmp_path / "control")
    lake.run(3, wrong)
    before = lake.rows
    control.run(1, wrong)
    control.run(3, right)
    expected = control.rows

    plan = plan_query_rewind(lake.files, to=0, sink=lake.uri)
    assert plan.table is not None
    assert (plan.table.now, plan.table.returns_to, plan.table.batches) == (2, 0, (1, 2))
    assert (plan.table.leaving.files, plan.table.leaving.rows) == (2, 6)
    plan.apply()
    assert len(lake.rows) == 3
    lake.run(3, right)
    assert lake.rows == expected
    assert [finding.code for finding in fsck(lake.files, lake.uri) if finding.path == lake.uri] == ["table-equal"]

    new = f"delta:{tmp_path / 'copy'}"
    plan_query_fork(lake.files, str(tmp_path / "fork"), at="1", sink=new, copy_of=lake.uri).apply()
    copy = Lake(headwater_spark, tmp_path / "unused")
    copy.checkpoint, copy.table, copy.inbox = tmp_path / "fork", tmp_path / "copy", lake.inbox
    assert len(copy.rows) == 6
    copy.run(3, right)
    assert copy.rows == expected
    copy.rewind(1)
    assert len(copy.rows) == 6
    assert lake.rows == expected

    lake.undo(drop_newer=True)
    assert lake.rows == before


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
    assert not (lake.checkpoint / "commits/1").exists()
    with pytest.raises(Py4JJavaError, match="headwater_rewind_was_interrupted"):
        lake.run(2)
    executor.resume()
    assert len(lake.rows) == 3
    lake.run(2)
    assert len(lake.rows) == 6


KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "complete": {"mode": "complete"},
    "merge": {"mode": "update", "merges": True},
    "merge with deletion vectors": {
        "mode": "update",
        "merges": True,
        "properties": "'delta.enableDeletionVectors'='true'",
    },
    "partitioned": {"partitioned": True},
    "log checkpoints": {"properties": "'delta.checkpointInterval'='2'"},
    "v2 checkpoints": {"properties": "'delta.checkpointInterval'='2', 'delta.checkpointPolicy'='v2'"},
    "features": {
        "mode": "update",
        "merges": True,
        "properties": "'delta.columnMapping.mode'='name', 'delta.enableRowTracking'='true', "
        "'delta.enableInCommitTimestamps'='true', 'delta.enableChangeDataFeed'='true', "
        "'delta.enableDeletionVectors'='true', 'delta.enableTypeWidening'='true'",
    },
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("to", [1, None])
@pytest.mark.parametrize("kind", KINDS)
def test_rewind_over_the_matrix(headwater_spark: SparkSession, tmp_path: Path, kind: str, to: int | None) -> None:
    """For each kind of table and each target, the re-run writes every row exactly once, and undo restores the rows."""
    options = dict(KINDS[kind])
    properties = options.pop("properties", "")
    lakes = []
    for name in ("lake", "control"):
        lake = Lake(headwater_spark, tmp_path / name, **options)
        if properties or lake.merges:
            extra = f" TBLPROPERTIES ({properties})" if properties else ""
            lake.sql(f"CREATE TABLE TABLE! ({SCHEMA}) USING delta{extra}")
        lakes.append(lake)
    lake, control = lakes

    def code(change: Change) -> Change:
        if lake.mode != "complete":
            return change
        return lambda rows: change(rows).groupBy("word").agg(F.count("*").alias("seen"), F.sum("price").alias("price"))

    lake.run(3, code(wrong))
    lake.sql("OPTIMIZE TABLE!")
    before = lake.rows
    if to is not None:
        control.run(to + 1, code(wrong))
    control.run(4, code(right))
    lake.rewind(to)
    lake.run(4, code(right))
    assert lake.rows == control.rows
    lake.undo(drop_newer=True)
    assert lake.rows == before


@pytest.mark.slow
def test_two_queries_and_an_insert_in_one_table(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A rewind of one query keeps the rows of another query and of an INSERT."""
    first, second = Lake(headwater_spark, tmp_path / "first"), Lake(headwater_spark, tmp_path / "second")
    second.table = first.table
    for upto in (1, 2, 3):
        first.run(upto, wrong)
        second.run(upto)
    first.sql("INSERT INTO TABLE! VALUES (900, 'inserted', 9.0)")
    first.rewind(0, keep_foreign=True)
    first.run(4)
    control, other = Lake(headwater_spark, tmp_path / "control"), Lake(headwater_spark, tmp_path / "other")
    other.table = control.table
    control.run(1, wrong)
    other.run(3)
    control.sql("INSERT INTO TABLE! VALUES (900, 'inserted', 9.0)")
    control.run(4)
    assert first.rows == control.rows
    second.rewind(1, keep_foreign=True)
    second.run(3)
    assert first.rows == control.rows


@pytest.mark.slow
def test_a_column_that_batches_added_leaves_with_them(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A rewind before mergeSchema restores the schema; undo brings the column back."""
    lake = Lake(headwater_spark, tmp_path / "lake", options={"mergeSchema": "true"})
    lake.run(2)
    lake.run(3, lambda rows: rows.withColumn("doubled", F.col("price") * 2))
    before = lake.rows
    lake.rewind(1)
    assert "doubled" not in headwater_spark.read.format("delta").load(str(lake.table)).columns
    lake.undo()
    assert lake.rows == before


@pytest.mark.slow
def test_vacuum_is_noticed(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A rewind that needs files that VACUUM has deleted is refused."""
    lake = Lake(headwater_spark, tmp_path / "lake", mode="complete")
    lake.run(3, lambda rows: rows.groupBy("word").count())
    with settings(headwater_spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        lake.sql("VACUUM TABLE! RETAIN 0 HOURS")
    with pytest.raises(Exception, match="deleted, by VACUUM"):
        lake.rewind(1)


@pytest.mark.slow
def test_spark_as_engine(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A table with a feature that only Delta can write is refused, and rewound with Spark as the engine."""
    lake, control = Lake(headwater_spark, tmp_path / "lake"), Lake(headwater_spark, tmp_path / "control")
    for one in (lake, control):
        one.sql(f"CREATE TABLE TABLE! ({SCHEMA}, row_id BIGINT GENERATED BY DEFAULT AS IDENTITY) USING delta")
    lake.run(2, wrong)
    before = lake.rows
    with pytest.raises(Exception, match="cannot write without Spark"):
        lake.rewind(0)
    lake.rewind(0, with_engine=written_by_spark)
    assert len(lake.rows) == 3
    lake.run(2)
    control.run(1, wrong)
    control.run(2)

    def values(rows: list[str]) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["price"]) for row in map(json.loads, rows))

    assert values(lake.rows) == values(control.rows)
    lake.undo(drop_newer=True, with_engine=written_by_spark)
    assert values(lake.rows) == values(before)
    log = DeltaLog(LocalTree(lake.table))
    assert log.commit(log.head).operation == "Manual Update"
