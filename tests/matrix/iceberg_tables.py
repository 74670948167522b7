"""Iceberg tables as sinks and sources, on a PySpark that Iceberg has a release for. ``make matrix`` runs these tests."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Checkpoint, Console, Delta, Files, Iceberg, Job, Memory
from headwater.core.errors import JobRefused, SetupProblem, UsageProblem
from headwater.jars.versions import has_release
from headwater.spark.preflight import check_services
from headwater.spark.prepared import prepare_job
from headwater.testing import Crash
from postgres_support import PostgresServer
from spark.draining import drain_source

SALE = "shop STRING, amount BIGINT"
needs_iceberg = pytest.mark.skipif(not has_release("iceberg"), reason="Iceberg has no release for this PySpark")


def as_they_are(sales: DataFrame) -> DataFrame:
    return sales


def totals(sales: DataFrame) -> DataFrame:
    return sales.groupBy("shop").agg(F.sum("amount").alias("total"))


class Shop:
    """A folder of sales, and a catalog of tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.catalog = {"type": "hadoop", "warehouse": str(folder / "warehouse")}
        self.name = f"lake_{folder.name}".replace("-", "_")  # Spark keeps a catalog as long as its session
        self._files = 0
        (folder / "in").mkdir()
        source = Files(str(folder / "in"), schema=SALE, options={"maxFilesPerTrigger": "1"})
        self.copy = Job("copy", as_they_are, reads=source, writes=self.table("sales", "shop"), trigger="available-now")

    def table(self, name: str, partition_by: str = "") -> Iceberg:
        return Iceberg(f"{self.name}.shop.{name}", partition_by, self.catalog)

    def sell(self, *sales: tuple[str, int]) -> None:
        file = self.folder / "in" / f"{self._files:03d}.json"
        file.write_text("".join(f"{json.dumps({'shop': shop, 'amount': amount})}\n" for shop, amount in sales))
        os.utime(file, (1e9 + self._files, 1e9 + self._files))
        self._files += 1

    def run(self, *jobs: Job) -> None:
        for job in jobs:
            drain_source(self.spark, job, self.folder / job.name)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.spark.table(self.table(name).table).collect())

    def forget_last_commit(self, job: Job) -> None:
        commits = sorted((self.folder / job.name / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.fixture
def shop(headwater_spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(headwater_spark, tmp_path)


@needs_iceberg
def test_append_and_source(shop: Shop) -> None:
    """One job creates a table and appends to it, another reads it; a batch that runs again changes nothing."""
    sums = replace(shop.copy, name="sums", transform=totals, reads=shop.table("sales"), writes=shop.table("sums"))
    sums = replace(sums, mode="complete")
    shop.sell(("a", 1), ("b", 2))
    shop.run(shop.copy, sums)
    shop.sell(("a", 10))
    shop.run(shop.copy, sums)
    assert shop.rows("sales") == [("a", 1), ("a", 10), ("b", 2)]
    assert shop.rows("sums") == [("a", 11), ("b", 2)]
    shop.forget_last_commit(shop.copy)
    shop.run(shop.copy)
    assert shop.rows("sales") == [("a", 1), ("a", 10), ("b", 2)]
    (read,) = Checkpoint(shop.folder / "sums").batches[-1].sources
    assert read.kind == "iceberg"
    assert read.rows == 1


@needs_iceberg
def test_per_batch_jobs(shop: Shop) -> None:
    """A per-batch job appends each batch exactly once."""
    job = replace(shop.copy, per_batch=True, writes=shop.table("each", "shop"))
    for amount in (1, 2):
        shop.sell(("a", amount))
    shop.run(job)
    shop.forget_last_commit(job)
    shop.run(job)
    assert shop.rows("each") == [("a", 1), ("a", 2)]


@needs_iceberg
def test_unknown_catalog(shop: Shop) -> None:
    """A catalog that nothing configures is refused before Spark starts, and so is one with two configurations."""
    with pytest.raises(JobRefused, match="is not configured") as refused:
        check_services(replace(shop.copy, writes=Iceberg("nowhere.shop.sales")))
    assert refused.value.code == "catalog"
    prepare_job(shop.spark, shop.copy)
    with pytest.raises(JobRefused, match="already configured"):
        prepare_job(shop.spark, replace(shop.copy, writes=replace(shop.table("t"), catalog={"type": "hive"})))


@needs_iceberg
def test_columns_and_modes(shop: Shop) -> None:
    """An unknown partition column is refused."""
    with pytest.raises(JobRefused, match="partition_by"):
        prepare_job(shop.spark, replace(shop.copy, writes=shop.table("t", "day")))


@needs_iceberg
def test_dead_letters_in_a_table(shop: Shop) -> None:
    """Malformed records are saved to an Iceberg table once, however often they are found."""
    table = shop.table("dropped")
    settings = "&".join(f"catalog.{name}={value}" for name, value in shop.catalog.items())
    job = replace(shop.copy, writes=Console(), dead_letters=f"iceberg:{table.table}?{settings}")
    shop.sell(("a", 1))
    (shop.folder / "in" / "bad.json").write_text("not a sale\n")
    for name in ("first", "second"):
        drain_source(shop.spark, job, shop.folder / name)
    (row,) = shop.spark.table(table.table).collect()
    assert (row["job"], row["reason"], row["value"], row["line"]) == ("copy", "malformed", "not a sale", 1)
    with pytest.raises(UsageProblem, match="is not a table of dead letters"):
        shop.run(shop.copy)
        sales = shop.table("sales")
        drain_source(shop.spark, replace(job, dead_letters=f"iceberg:{sales.table}?{settings}"), shop.folder / "third")
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, reads=table))


@needs_iceberg
@pytest.mark.parametrize("mode", ["append", "complete"])
def test_scenario_reads_the_table(scenario: Any, mode: str) -> None:
    """What a batch emits is read from a table of the scenario's own, also after a crash and after a rewind."""
    source, sink = Iceberg("lake.shop.never_read", schema=SALE), Iceberg("lake.shop.never_written", "shop")
    job = Job("job", as_they_are, reads=source, writes=sink)
    if mode == "append":
        s = scenario(job)
        first, second = {"shop": "a", "amount": 1}, {"shop": "b", "amount": 2}
        s.feed(first, first).emits(first, first)
        s.feed(second, Crash.AFTER_OUTPUT).emits(second)
        s.restart().emits_nothing().has_table(first, first, second)
        s.rewind(to=0).emits(second).has_table(first, first, second)
        s.rewind(to=None).emits(first, first, second)
    else:
        s = scenario(replace(job, transform=totals, mode="complete"))
        s.feed({"shop": "a", "amount": 1}).emits({"shop": "a", "total": 1})
        s.feed({"shop": "b", "amount": 2}).emits({"shop": "a", "total": 1}, {"shop": "b", "total": 2})
        s.rewind(to=0).emits({"shop": "a", "total": 1}, {"shop": "b", "total": 2})
    assert len(s.table) == (3 if mode == "append" else 2)


@needs_iceberg
def test_scenario_without_iceberg(scenario: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario of a job that writes an Iceberg table names the pytest setting that the session lacks."""
    monkeypatch.setattr("headwater.spark.table_formats.has_class", lambda *_: False)
    with pytest.raises(JobRefused) as refused:
        scenario(Job("job", as_they_are, reads=Iceberg("a.b.c", schema=SALE), writes=Iceberg("a.b.d")))
    assert 'headwater_jars = ["iceberg"]' in str(refused.value.remedy)


@needs_iceberg
def test_generated_records_in_a_table(headwater_spark: SparkSession, postgres: PostgresServer, tmp_path: Path) -> None:
    """Records that were generated without Spark into a catalog in a database are rows for Spark and for a stream."""
    user, _, place = postgres.url.removeprefix("postgresql://").partition("@")
    settings = {"type": "jdbc", "uri": f"jdbc:postgresql://{place}", "jdbc.user": user, "warehouse": f"{tmp_path}/lake"}
    name = f"generated_{uuid4().hex[:8]}"
    to = f"iceberg:{name}.shop.raw?" + "&".join(f"catalog.{key}={value}" for key, value in settings.items())
    for count in (20, 5):
        done = run_here("generate", "sales", "--to", to, "--count", count, "--seed", count, "--per-file", 10)
        assert done.returncode == 0, done.stderr
    source = Iceberg(f"{name}.shop.raw", catalog={**settings, "jdbc.schema-version": "V1", "clients": "1"})
    job = Job("read", as_they_are, reads=source, writes=Memory("read_from_iceberg"), trigger="available-now")
    drain_source(headwater_spark, job, tmp_path / "checkpoint")
    found = [json.loads(row["value"]) for row in headwater_spark.table("read_from_iceberg").collect()]
    assert len(found) == 25 and all("store" in one for one in found)


@pytest.mark.skipif(has_release("iceberg"), reason="Iceberg has a release for this PySpark")
def test_scenario_without_a_release(scenario: Any) -> None:
    """Without an Iceberg for this Spark, a scenario shows the rows of a batch, and has no table."""
    job = Job("job", as_they_are, reads=Iceberg("a.b.c", schema=SALE), writes=Iceberg("a.b.d"))
    s = scenario(job)
    s.feed({"shop": "a", "amount": 1}).emits({"shop": "a", "amount": 1})
    with pytest.raises(ValueError, match="no release"):
        s.table  # noqa: B018


@pytest.mark.skipif(has_release("iceberg"), reason="Iceberg has a release for this PySpark")
def test_spark_without_iceberg(shop: Shop) -> None:
    """A Spark that Iceberg has no release for is refused by name."""
    with pytest.raises(SetupProblem, match="Iceberg has no release for PySpark") as refused:
        check_services(shop.copy)
    assert refused.value.code == "no-iceberg"


@pytest.mark.skipif(has_release("delta"), reason="Delta has a release for this PySpark")
def test_spark_without_delta(shop: Shop) -> None:
    """A Spark that Delta has no release for is refused by name."""
    with pytest.raises(SetupProblem, match="Delta has no release for PySpark"):
        check_services(replace(shop.copy, writes=Delta("t")))
