"""A cascade through a Delta table on real Spark: two jobs and both of their tables are one change with one undo."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Delta
from headwater.jars.versions import has_release
from headwater.spark.internals.state_stores import unload_state_stores
from spark.test_delta import TOTALS, Shop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_release("delta"), reason="Delta has no release for this PySpark"),
]
AMOUNTS = (1, 2, 3)


def sold(spark: SparkSession, folder: Path, scale: int) -> Shop:
    """Return a shop whose jobs have both run after each file of sales, with amounts times ``scale``."""
    folder.mkdir()
    shop = Shop(spark, folder)
    shop.totals = replace(shop.totals, reads=Delta(str(folder / "bronze"), options={"maxFilesPerTrigger": "1"}))
    bronze = replace(shop.bronze, transform=lambda sales: sales.withColumn("amount", F.col("amount") * scale))
    for minute, amount in enumerate(AMOUNTS):
        shop.sell(("a", amount, f"10:0{minute}"), ("b", 10 * amount, f"10:0{minute}"))
        shop.run(bronze, shop.totals)
    return shop


def tables(shop: Shop) -> tuple[list[Any], list[Any]]:
    return shop.rows("bronze", "shop", "amount"), shop.rows("totals", *TOTALS)


@pytest.mark.parametrize("to", [0, 1])
def test_two_jobs_and_their_tables(headwater_spark: SparkSession, tmp_path: Path, to: int) -> None:
    """The tables return together, one undo brings both back, and the corrected code leads to those of a clean run."""
    shop = sold(headwater_spark, tmp_path / "shop", 100)
    before = tables(shop)

    rewind = ("rewind", shop.checkpoint(shop.bronze), "--to", to, "--cascade")
    planned = run_here(*rewind, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    (reader,) = plan["cascade"]
    assert (plan["to"], reader["job"], plan["read_twice"]) == (to, "totals", [])
    done = run_here(*rewind, "--yes")
    assert done.returncode == 0, done.stderr
    kept = [amount * 100 for amount in AMOUNTS[: to + 1]]
    assert tables(shop) == (
        sorted([*(("a", amount) for amount in kept), *(("b", 10 * amount) for amount in kept)]),
        [("10:00", "a", sum(kept)), ("10:00", "b", 10 * sum(kept))],
    )
    undone = run_here("undo", shop.checkpoint(shop.bronze), "--yes")
    assert undone.returncode == 0, undone.stderr
    assert tables(shop) == before

    done = run_here("rewind", shop.checkpoint(shop.bronze), "--redo", 0, "--cascade", "--yes")
    assert done.returncode == 0, done.stderr
    unload_state_stores(headwater_spark)
    shop.run(shop.bronze, shop.totals)
    assert tables(shop) == (
        sorted([*(("a", amount) for amount in AMOUNTS), *(("b", 10 * amount) for amount in AMOUNTS)]),
        [("10:00", "a", sum(AMOUNTS)), ("10:00", "b", 10 * sum(AMOUNTS))],
    )


def test_both_jobs_continue_after_an_undo(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The reader passes the commits that took its rows away and brought them back, and reads none of them again."""
    shop = sold(headwater_spark, tmp_path / "shop", 1)
    for verb in (
        ("rewind", shop.checkpoint(shop.bronze), "--to", 0, "--cascade"),
        ("undo", shop.checkpoint(shop.bronze)),
    ):
        done = run_here(*verb, "--yes")
        assert done.returncode == 0, done.stderr
    unload_state_stores(headwater_spark)
    shop.sell(("a", 4, "10:04"), ("b", 40, "10:04"))
    shop.run(shop.bronze, shop.totals)
    amounts = (*AMOUNTS, 4)
    assert tables(shop) == (
        sorted([*(("a", amount) for amount in amounts), *(("b", 10 * amount) for amount in amounts)]),
        [("10:00", "a", sum(amounts)), ("10:00", "b", 10 * sum(amounts))],
    )
