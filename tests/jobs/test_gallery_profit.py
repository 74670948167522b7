"""The profit jobs: the trades as their document lists them, and the profit of a trade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from golden import exact, golden
from headwater.checkpoint.history import History
from headwater.jobs.gallery._records import with_profit
from headwater.jobs.loading import load_job
from headwater.spark.dropped import DroppedRecords
from headwater.testing.scenario import Scenario
from spark.replay_support import run_recorded

Open = Callable[..., Scenario]

# A list that was copied from an array: every line but the last ends with a comma.
DOCUMENT = """\
{ 'id': 'apple', 'amount': 10, 'type': 'buy', 'time': '20-04-2020-10-10' },
{ 'id': 'ibm', 'amount': 15, 'type': 'buy', 'time': '20-04-2020-10-16' },
{ 'id': 'dell', 'amount': 8, 'type': 'sell', 'time': '20-04-2020-10-17' },
{ 'id': 'apple', 'amount': 5, 'type': 'sell', 'time': '20-04-2020-10-22' },
{ 'id': 'shell', 'amount': 18, 'type': 'buy', 'time': '20-04-2020-10-12' },
{ 'id': 'asus', 'amount': 5, 'type': 'buy', 'time': '20-04-2020-10-25' },
{ 'id': 'goggle', 'amount': 30, 'type': 'buy', 'time': '20-04-2020-10-27' }
""".splitlines()
SCHEMA = "id string, type string, amount int, eventtime timestamp, profit int"


def trade(amount: int, kind: str | None, time: str = "20-04-2020-10-10") -> tuple[str, int, str | None, str]:
    return ("apple", amount, kind, time)


def test_document_has_the_golden_trades() -> None:
    """The list is that of the golden files, except for the commas."""
    (step,) = golden("profit_per_id")["steps"]
    assert [line.removesuffix(",") for line in DOCUMENT] == step["send"]


@pytest.mark.parametrize("name", ["profit_per_id", "profit_sliding", "profit_tumbling"])
def test_trades_pasted_from_the_document_all_count(scenario: Open, name: str) -> None:
    """Lines that end with a comma have the result of the same lines without it, and none is malformed."""
    job = load_job(golden(name)["job"])
    plain = scenario(job).feed(*(line.removesuffix(",") for line in DOCUMENT)).emitted
    pasted = scenario(job).feed(*DOCUMENT).fails_to_decode(0)
    assert exact(pasted.emitted) == exact(plain)
    if name == "profit_per_id":
        pasted.emits(*golden(name)["steps"][0]["emits"])


def test_malformed_trades_when_they_are_read_again(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A trade with a trailing comma is valid when it is read again; one with two commas or an invalid time is not."""
    bad = ["{'id': 'a', 'amount': 1, 'type': 'buy', 'time': 'soon'},", DOCUMENT[0] + ","]
    recorded = run_recorded(headwater_spark, load_job("profit-per-id"), tmp_path, [[*DOCUMENT, *bad]])
    dropped = DroppedRecords(headwater_spark, recorded.job, History(recorded.files)).in_batch(0)
    assert [(one.reason, one.value) for one in dropped] == [("malformed", line) for line in bad]
    assert dropped[0].detail == "time is not a valid timestamp"
    assert recorded.progress[0].malformed == 2


@pytest.mark.parametrize("time_type", ["STRING", "TIMESTAMP"])
def test_profit_of_a_trade(headwater_spark: SparkSession, time_type: str) -> None:
    """A sell counts as -amount, any other type as amount; the time, as text or timestamp, becomes ``eventtime``."""
    trades = headwater_spark.createDataFrame(
        [trade(10, "buy"), trade(5, "sell"), trade(7, "gift"), trade(3, None)],
        "id STRING, amount INT, type STRING, time STRING",
    )
    if time_type == "TIMESTAMP":
        trades = trades.selectExpr("id", "amount", "type", "to_timestamp(time, 'dd-MM-yyyy-HH-mm') AS time")
    found = with_profit(trades)
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found.schema) == SCHEMA
    expected: list[Any] = [("buy", 10, 10), ("sell", 5, -5), ("gift", 7, 7), (None, 3, 3)]
    assert [(row.id, row.type, row.amount, row.eventtime.isoformat(), row.profit) for row in found.collect()] == [
        ("apple", kind, amount, "2020-04-20T10:10:00", profit) for kind, amount, profit in expected
    ]


def test_trades_that_cannot_be_computed_do_not_stop_a_stream(headwater_spark: SparkSession) -> None:
    """Text that is not a time, and an amount without a counterpart of the other sign, become null."""
    trades = headwater_spark.createDataFrame(
        [trade(1, "buy", "soon"), trade(-(2**31), "sell")], "id STRING, amount INT, type STRING, time STRING"
    )
    assert [(row.eventtime is None, row.profit) for row in with_profit(trades).collect()] == [(True, 1), (False, None)]
