"""Iceberg tables as sinks and sources, on a PySpark that Iceberg has a release for. ``make matrix`` runs these tests."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Checkpoint, Delta, Files, Iceberg, Job
from headwater.core.errors import JobRefused, SetupProblem
from headwater.jars.versions import has_release
from headwater.spark.preflight import check_services
from headwater.spark.prepared import prepare_job
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
