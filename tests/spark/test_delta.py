"""Delta tables as sinks and sources, on real Spark."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Checkpoint, Console, Delta, Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import ChangeRefused, HeadwaterError, JobFailed, JobRefused, ServiceUnreachable, UsageProblem
from headwater.jars.versions import has_release
from headwater.lakehouse.delta_log import DeltaLog
from headwater.spark.dropped import DroppedRecords
from headwater.spark.dropped.store import query_id_of
from headwater.spark.internals.plans import has_distinct_rows
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run, check_run
from headwater.spark.preflight import check_services
from headwater.spark.prepared import check_only, prepare_job
from headwater.spark.replay import replay, replayable
from headwater.testing import Crash
from spark.draining import drain_source

pytestmark = pytest.mark.skipif(not has_release("delta"), reason="Delta has no release for this PySpark")

SALE = "shop STRING, amount BIGINT, at TIMESTAMP"


def as_they_are(sales: DataFrame) -> DataFrame:
    return sales


def totals(sales: DataFrame) -> DataFrame:
    """Amount per shop and window."""
    in_time = sales.withWatermark("at", "10 minutes")
    return in_time.groupBy(F.window("at", "5 minutes"), "shop").agg(F.sum("amount").alias("total"))


class Shop:
    """A folder of sales, the table that they are copied to, and the totals of that table."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self._files = 0
        (folder / "in").mkdir()
        self.bronze = Job(
            "bronze",
            as_they_are,
            reads=Files(str(folder / "in"), schema=SALE, options={"maxFilesPerTrigger": "1"}),
            writes=Delta(str(folder / "bronze"), partition_by="shop"),
            trigger="available-now",
        )
        self.totals = Job(
            "totals",
            totals,
            reads=Delta(str(folder / "bronze")),
            writes=Delta(str(folder / "totals"), merge_on="window,shop"),
            mode="update",
            trigger="available-now",
        )

    def sell(self, *sales: tuple[str, int, str]) -> None:
        """Let a file with sales land: the shop, the amount and the time of day."""
        file = self.folder / "in" / f"{self._files:03d}.json"
        rows = [{"shop": shop, "amount": amount, "at": f"2024-05-01T{at}:00Z"} for shop, amount, at in sales]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(file, (1e9 + self._files, 1e9 + self._files))
        self._files += 1

    def run(self, *jobs: Job) -> None:
        for job in jobs:
            drain_source(self.spark, job, self.checkpoint(job))

    def checkpoint(self, job: Job) -> Path:
        return self.folder / "checkpoints" / job.name

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        table = self.spark.read.format("delta").load(str(self.folder / name)).selectExpr(*columns)
        return sorted(tuple(row) for row in table.collect())

    def log(self, name: str) -> DeltaLog:
        return DeltaLog(LocalTree(self.folder / name))

    def forget_last_commit(self, job: Job) -> None:
        """Leave the checkpoint as a kill between the table's commit and Spark's own does."""
        commits = sorted((self.checkpoint(job) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.fixture
def shop(headwater_spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(headwater_spark, tmp_path)


TOTALS = ("date_format(window.start, 'HH:mm')", "shop", "total")


def test_append_merge_and_source(shop: Shop) -> None:
    """One job appends to a table, another reads it and merges its totals into a second one, each batch exactly once."""
    shop.sell(("a", 1, "10:01"), ("b", 2, "10:02"))
    shop.run(shop.bronze, shop.totals)
    shop.sell(("a", 10, "10:03"), ("a", 5, "10:07"))
    shop.run(shop.bronze, shop.totals)
    assert shop.rows("bronze", "shop", "amount") == [("a", 1), ("a", 5), ("a", 10), ("b", 2)]
    assert shop.rows("totals", *TOTALS) == [("10:00", "a", 11), ("10:00", "b", 2), ("10:05", "a", 5)]
    for job in (shop.bronze, shop.totals):
        query_id = query_id_of(LocalTree(shop.checkpoint(job)))
        log = shop.log(job.name)
        batches = [found for version in log.versions if (found := log.commit(version).batch_of(query_id)) is not None]
        assert batches == list(range(len(batches)))
        assert log.snapshot(log.head).transactions == {query_id: batches[-1]}
    assert shop.log("bronze").snapshot(0).metadata["partitionColumns"] == ["shop"]
    # The table does not pass the watermark of the query on to those that read it.
    assert "spark." not in shop.log("totals").snapshot(0).metadata["schemaString"]
    recorded = read_job_record(LocalTree(shop.checkpoint(shop.totals)))
    assert recorded.sink == f"delta:{shop.folder / 'totals'}?merge_on=window,shop"
    last = Checkpoint(shop.checkpoint(shop.totals)).batches[-1].sources[0]
    assert (last.kind, last.end["reservoirVersion"]) == ("delta", 2)
    # Killed after the merge and before Spark's commit: the batch runs again and changes nothing.
    head = shop.log("totals").head
    shop.forget_last_commit(shop.totals)
    shop.run(shop.totals)
    assert shop.log("totals").head == head


def test_merge_keys_are_checked(shop: Shop) -> None:
    """A merge or partition column that the result lacks is refused before the start, and a field of a struct is found."""
    job = replace(shop.totals, reads=Files(str(shop.folder / "in"), schema=SALE))
    for sink, name in ((Delta("t", merge_on="window,store"), "merge_on"), (Delta("t", "day", "shop"), "partition_by")):
        with pytest.raises(JobRefused, match=name) as refused:
            prepare_job(shop.spark, replace(job, writes=sink))
        assert refused.value.code == "unknown-column"
    prepare_job(shop.spark, replace(job, writes=Delta("t", merge_on="window.start,shop")))


def test_source_without_a_table(shop: Shop) -> None:
    """A missing table is named before Spark starts. A job that knows the columns can be checked without it."""
    with pytest.raises(ServiceUnreachable, match="there is no Delta table at") as refused:
        check_services(shop.totals)
    assert refused.value.code == "no-table"
    check_only(shop.spark, replace(shop.totals, reads=Delta(str(shop.folder / "bronze"), schema=SALE)))


def test_session_without_delta(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was started without Delta is refused with the settings to add."""
    other = shop.spark.newSession()
    monkeypatch.setattr("headwater.spark.table_formats.has_class", lambda *_: False)
    with pytest.raises(JobRefused, match="started without Delta") as refused:
        prepare_job(other, shop.totals)
    assert refused.value.evidence["missing"] == "Delta's jars"
    assert 'config("spark.jars.packages", "io.delta:delta-spark_' in str(refused.value.remedy)


def test_another_table_on_the_same_checkpoint(shop: Shop) -> None:
    """A query cannot continue in a table that lacks the rows of its earlier batches."""
    shop.sell(("a", 1, "10:01"))
    shop.run(shop.bronze)
    moved = replace(shop.bronze, writes=Delta(str(shop.folder / "other")))
    with pytest.raises(JobRefused, match="another table") as refused:
        check_run(Run(moved, None, str(shop.checkpoint(shop.bronze))))
    assert refused.value.code == "other-sink"


def test_keys_of_an_aggregation_are_known_to_be_unique(headwater_spark: SparkSession) -> None:
    """Rows are searched for repeated keys unless the job groups by these keys, or by some of them."""
    rate = headwater_spark.readStream.format("rate").load().selectExpr("value % 3 AS shop", "value", "timestamp AS at")
    grouped = totals(rate.withColumnRenamed("value", "amount"))
    renamed = grouped.where("total > 1").selectExpr("window AS hours", "shop", "total")
    computed = rate.groupBy(F.upper(F.col("shop").cast("string")).alias("shop")).count()
    for frame, columns, expected in (
        (grouped, ("window", "shop"), True),
        (grouped, ("window", "shop", "total"), True),
        (grouped, ("shop",), False),
        (grouped, ("window.start", "shop"), False),
        (renamed, ("hours", "shop"), True),
        (renamed, ("window", "shop"), False),
        (grouped.selectExpr("window", "lower(shop) AS shop"), ("window", "shop"), False),
        (grouped.selectExpr("window", "shop", "explode(array(1, 2)) AS n"), ("window", "shop"), False),
        (computed, ("shop",), True),
        (rate.groupBy().count(), ("count",), True),
        (rate.dropDuplicates(["shop"]), ("shop",), False),
        (rate, ("value",), False),
    ):
        assert has_distinct_rows(frame, columns) is expected, (frame.columns, columns)


@pytest.mark.slow
def test_repeated_keys(shop: Shop) -> None:
    """A batch with two rows of one key fails with the key, and changes nothing."""
    shop.sell(("a", 1, "10:01"), ("a", 2, "10:07"), ("b", 3, "10:01"))
    source = Files(str(shop.folder / "in"), schema=SALE)
    job = replace(shop.totals, reads=source, writes=Delta(str(shop.folder / "bad"), merge_on="shop"))
    with pytest.raises(JobFailed, match="totals failed") as failed:
        shop.run(job)
    assert "batch 0 has 2 rows with the same key" in failed.value.evidence["cause"]
    assert failed.value.evidence["key"] == '{"shop":"a"}'
    assert "merge_on" in str(failed.value.remedy)
    assert shop.rows("bad", "*") == []


@pytest.mark.slow
def test_null_keys_are_merged(shop: Shop) -> None:
    """A null in a key equals a null in the table."""
    source = replace(shop.bronze.reads, options={})  # type: ignore[arg-type]
    job = replace(shop.totals, reads=source)
    shop.sell((None, 1, "10:01"))  # type: ignore[arg-type]
    shop.run(job)
    shop.sell((None, 5, "10:02"))  # type: ignore[arg-type]
    shop.run(job)
    assert shop.rows("totals", *TOTALS) == [("10:00", None, 6)]


@pytest.mark.slow
def test_complete_mode_replaces_the_table(shop: Shop) -> None:
    """In complete mode, the table has the result over all batches."""
    job = replace(shop.totals, name="all", mode="complete", writes=Delta(str(shop.folder / "all")))
    for amount in (1, 10):
        shop.sell(("a", amount, "10:01"))
        shop.run(shop.bronze, job)
    assert shop.rows("all", *TOTALS) == [("10:00", "a", 11)]


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["", "shop,amount"])
def test_per_batch_jobs(shop: Shop, keys: str) -> None:
    """A per-batch job appends or merges, and a batch that runs again changes nothing."""
    job = replace(
        shop.bronze, name="each", per_batch=True, mode="update", writes=Delta(str(shop.folder / "each"), (), keys)
    )
    for amount in (1, 2):
        shop.sell(("a", amount, "10:01"))
    shop.run(job)
    assert shop.rows("each", "shop", "amount") == [("a", 1), ("a", 2)]
    head = shop.log("each").head
    shop.forget_last_commit(job)
    shop.run(job)
    assert shop.log("each").head == head


@pytest.mark.slow
def test_appended_batch_runs_again(shop: Shop) -> None:
    """Killed between the commits of table and checkpoint, a stateful job in append mode loses and repeats nothing."""
    job = replace(shop.totals, name="closed", mode="append", writes=Delta(str(shop.folder / "closed")))
    shop.sell(("a", 1, "10:01"))
    shop.sell(("a", 2, "10:40"))
    shop.run(shop.bronze, job)
    shop.forget_last_commit(job)
    shop.run(job)
    shop.sell(("a", 4, "11:40"))
    shop.run(shop.bronze, job)
    assert shop.rows("closed", *TOTALS) == [("10:00", "a", 1), ("10:40", "a", 2)]


@pytest.mark.slow
def test_batch_that_format_two_cannot_finish(shop: Shop) -> None:
    """In checkpoint format 2, a batch that the table has and the checkpoint has not is refused until it is rewound."""
    conf = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    job = replace(shop.totals, name="closed", mode="append", writes=Delta(str(shop.folder / "closed")), conf=conf)
    for amount, at in ((1, "10:01"), (2, "10:40"), (4, "11:40")):
        shop.sell(("a", amount, at))
        shop.run(shop.bronze, job)
    expected = shop.rows("closed", *TOTALS)
    shop.forget_last_commit(job)
    with pytest.raises(JobRefused, match="cannot finish batch") as refused:
        shop.run(job)
    number = int(str(refused.value.remedy).partition("--redo ")[2].split()[0])
    Checkpoint(shop.checkpoint(job)).plan_rewind(to=number - 1).apply()
    shop.run(job)
    assert shop.rows("closed", *TOTALS) == expected == [("10:00", "a", 1), ("10:40", "a", 2)]


@pytest.mark.slow
def test_new_columns(shop: Shop) -> None:
    """With mergeSchema, a merge adds the columns that a later version of the job has."""
    sink = replace(shop.totals.writes, options={"mergeSchema": "true"})  # type: ignore[type-var]
    shop.sell(("a", 1, "10:01"))
    shop.run(shop.bronze, replace(shop.totals, writes=sink))
    doubled = replace(shop.totals, transform=lambda sales: totals(sales).withColumn("twice", F.col("total") * 2))
    shop.sell(("b", 3, "10:02"))
    shop.run(shop.bronze, replace(doubled, writes=sink))
    assert shop.rows("totals", "shop", "total", "coalesce(twice, 0)") == [("a", 1, 0), ("b", 3, 6)]


@pytest.fixture
def with_late(shop: Shop) -> Shop:
    """A table whose fourth version has a sale behind the watermark, read one version at a time."""
    shop.totals = replace(shop.totals, reads=Delta(str(shop.folder / "bronze"), options={"maxFilesPerTrigger": "1"}))
    shop.sell(("a", 1, "10:01"))
    shop.sell(("a", 2, "11:00"))
    shop.sell(("a", 3, "11:01"))
    shop.sell(("a", 4, "10:02"), ("a", 8, "11:01"))
    shop.sell(("a", 16, "11:02"))
    shop.run(shop.bronze, shop.totals)
    return shop


@pytest.mark.slow
def test_late_records_of_a_table(with_late: Shop) -> None:
    """A late row of a table is found by its data file and its number there, in exactly the batch that dropped it."""
    shop, files = with_late, LocalTree(with_late.checkpoint(with_late.totals))
    finder = DroppedRecords(shop.spark, shop.totals, History(files))
    found = {number: finder.in_batch(number) for number in range(5)}
    assert [number for number, records in found.items() if records] == [3]
    ((late,),) = [records for records in found.values() if records]
    assert (late.reason, late.kind, late.position["line"]) == ("late", "delta", 1)
    assert late.position["path"].startswith(f"file:{shop.folder}/bronze/shop=a/part-")
    assert json.loads(str(late.value))["amount"] == 4


@pytest.mark.slow
def test_dead_letters_in_a_table(with_late: Shop) -> None:
    """Dropped records are saved to a Delta table once, however often they are found."""
    shop = with_late
    job = replace(shop.totals, dead_letters=f"delta:{shop.folder / 'dropped'}")
    for name in ("first", "second"):
        drain_source(shop.spark, replace(job, writes=Console()), shop.folder / name)
    assert shop.rows("dropped", "job", "reason", "get_json_object(value, '$.amount')") == [("totals", "late", "4")]
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, dead_letters=f"delta:{shop.folder / 'bronze'}"))


@pytest.mark.slow
def test_replay_of_a_table(with_late: Shop) -> None:
    """Recorded batches read exactly the same files again, although the table has grown and was optimized."""
    shop = with_late
    files = LocalTree(shop.checkpoint(shop.totals))
    shop.sell(("a", 32, "11:03"))
    shop.run(shop.bronze)
    shop.spark.sql(f"OPTIMIZE delta.`{shop.folder / 'bronze'}`").collect()
    again = replay(shop.spark, replayable(shop.totals), files, 1, 4)
    assert [[row["total"] for row in one.rows] for one in again] == [[2], [5], [13], [29]]


@pytest.mark.slow
def test_rewind_checks_the_source_table(with_late: Shop) -> None:
    """A rewind is refused if the files that batches read were vacuumed, and names them."""
    shop = with_late
    location = f"delta.`{shop.folder / 'bronze'}`"
    (reread,) = Checkpoint(shop.checkpoint(shop.totals)).plan_rewind(to=0).rereads
    assert (reread.kind, reread.still_there, reread.files) == ("delta", True, 4)
    shop.spark.sql(f"OPTIMIZE {location}").collect()
    setting = "spark.databricks.delta.retentionDurationCheck.enabled"
    shop.spark.conf.set(setting, "false")
    shop.spark.sql(f"VACUUM {location} RETAIN 0 HOURS").collect()
    shop.spark.conf.unset(setting)
    with pytest.raises(ChangeRefused, match="no longer has all the input") as refused:
        Checkpoint(shop.checkpoint(shop.totals)).plan_rewind(to=0).apply()
    assert "as after VACUUM" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("to", [1, 2])
def test_rewind_of_two_jobs(with_late: Shop, to: int) -> None:
    """Both jobs are rewound and run again with other code; their tables are those of an uninterrupted run."""
    shop = with_late
    for job in (shop.bronze, shop.totals):
        Checkpoint(shop.checkpoint(job)).plan_rewind(to=to).apply()
    unload_state_stores(shop.spark)
    (last,) = Checkpoint(shop.checkpoint(shop.totals)).batches[-1].sources
    assert last.end["reservoirVersion"] == 6
    corrected = replace(shop.bronze, transform=lambda sales: sales.withColumn("amount", F.col("amount") + 100))
    shop.run(corrected, shop.totals)
    kept = {1: [1, 2], 2: [1, 2, 3]}[to]
    again = [amount + 100 for amount in (1, 2, 3, 4, 8, 16)[len(kept) :]]
    assert shop.rows("bronze", "amount") == sorted((amount,) for amount in [*kept, *again])
    at_eleven = sum([*kept, *again]) - 1 - 104
    assert shop.rows("totals", *TOTALS) == [("10:00", "a", 1), ("11:00", "a", at_eleven)]


def feed(amount: int, at: str, shop: str = "a") -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "at": f"2024-05-01T{at}:00Z"}


def total(start: str, end: str, amount: int, shop: str = "a") -> dict[str, Any]:
    window = {"start": f"2024-05-01T{start}:00.000Z", "end": f"2024-05-01T{end}:00.000Z"}
    return {"window": window, "shop": shop, "total": amount}


@pytest.mark.slow
def test_scenario_reads_the_table(scenario: Any) -> None:
    """What a batch emits is read from a table of the scenario's own, also after a crash and after a rewind."""
    source = Delta("never-read", schema=SALE)
    s = scenario(
        Job("totals", totals, reads=source, writes=Delta("never-written", merge_on="window,shop"), mode="update")
    )
    s.feed(feed(1, "10:01"), feed(2, "10:06")).emits(total("10:00", "10:05", 1), total("10:05", "10:10", 2))
    s.feed(feed(4, "10:02")).emits(total("10:00", "10:05", 5)).has_table(
        total("10:00", "10:05", 5), total("10:05", "10:10", 2)
    )
    s.feed(feed(8, "10:03"), Crash.AFTER_OUTPUT).emits(total("10:00", "10:05", 13))
    s.restart().emits_nothing().has_table(total("10:00", "10:05", 13), total("10:05", "10:10", 2))
    again = s.rewind(to=0).emits(total("10:00", "10:05", 5), total("10:00", "10:05", 13))
    again.has_table(total("10:00", "10:05", 13), total("10:05", "10:10", 2))
    assert not Path("never-written").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "complete"])
def test_scenario_in_other_modes(scenario: Any, mode: str) -> None:
    """Appended rows are those of the batch; in complete mode they are the entire table."""
    job = Job("job", as_they_are, reads=Delta("t", schema=SALE), writes=Delta("never-written"))
    if mode == "complete":
        job = replace(
            job, mode="complete", transform=lambda sales: sales.groupBy("shop").agg(F.sum("amount").alias("n"))
        )
    s = scenario(job)
    if mode == "append":
        first = {**feed(1, "10:01"), "at": "2024-05-01T10:01:00.000Z"}
        s.feed(feed(1, "10:01"), feed(1, "10:01")).emits(first, first)
        s.feed(feed(1, "10:01")).emits(first)
        assert len(s.table) == 3
    else:
        s.feed(feed(1, "10:01")).emits({"shop": "a", "n": 1})
        s.feed(feed(2, "10:01", "b")).emits({"shop": "a", "n": 1}, {"shop": "b", "n": 2})


def test_scenario_without_delta(scenario: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario of a job that writes a Delta table names the pytest setting that the session lacks."""
    monkeypatch.setattr("headwater.spark.table_formats.has_class", lambda *_: False)
    with pytest.raises(HeadwaterError) as refused:
        scenario(Job("job", as_they_are, reads=Delta("t", schema=SALE), writes=Delta("u")))
    assert "headwater_jars" in str(refused.value.remedy)
