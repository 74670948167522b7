"""Pairs of streams for every stateful operator: one that is rewound, forked or repartitioned, and a control."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from corpus_maker import queries
from timemachine.spark_runs import NO_EMPTY_BATCHES, STORES, Inbox, Query, Stream

# The matrices of operators and stores, which `make soak` runs, have more feeds than the tests of every run.
FEEDS, FEW, MORE, TO = 6, 4, 2, 2
EVENT = "user STRING, amount BIGINT, at TIMESTAMP"
START = datetime(2024, 5, 1, tzinfo=UTC)


def aggregation(inputs: dict[str, DataFrame]) -> DataFrame:
    events = inputs["events"].withWatermark("at", "10 minutes")
    return events.groupBy(F.window("at", "5 minutes"), "user").agg(F.sum("amount").alias("total"))


def dedup(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["events"].withWatermark("at", "10 minutes").dropDuplicates(["user", "at"])


def session(inputs: dict[str, DataFrame]) -> DataFrame:
    events = inputs["events"].withWatermark("at", "10 minutes")
    return events.groupBy(F.session_window("at", "4 minutes"), "user").agg(F.count("*").alias("n"))


def two_operators(inputs: dict[str, DataFrame]) -> DataFrame:
    once = dedup(inputs)
    return once.groupBy(F.window("at", "5 minutes"), "user").agg(F.sum("amount").alias("total"))


def join(inputs: dict[str, DataFrame]) -> DataFrame:
    left = inputs["events"].withWatermark("at", "10 minutes")
    right = (
        inputs["others"].withWatermark("at", "10 minutes").select(F.col("user").alias("who"), F.col("at").alias("then"))
    )
    return left.join(right, F.expr("user = who AND then BETWEEN at AND at + INTERVAL 5 MINUTES"), "leftOuter")


def dedup_within_watermark(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["events"].withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["user"])


def pandas_state(inputs: dict[str, DataFrame]) -> DataFrame:
    return queries.pandas_state(inputs)


def custom_in_pandas(inputs: dict[str, DataFrame]) -> DataFrame:
    return queries.custom_in_pandas({"events": inputs["events"].withColumn("kind", F.col("user"))})


def timers(inputs: dict[str, DataFrame]) -> DataFrame:
    from headwater.jobs.gallery.weekly_totals import weekly_totals  # PySpark 3.5 does not have what it imports

    days = inputs["events"].select("user", F.col("amount").cast("int").alias("shopping"), F.to_date("at").alias("date"))
    return weekly_totals(days, period="2 days")


QUERIES: dict[str, tuple[Query, str]] = {
    "aggregation": (aggregation, "update"),
    "dedup": (dedup, "append"),
    "session": (session, "append"),
    "two operators": (two_operators, "append"),
    "join": (join, "append"),
    "timers": (timers, "update"),
    "dedup within watermark": (dedup_within_watermark, "append"),
    "pandas state": (pandas_state, "update"),
    "custom in pandas": (custom_in_pandas, "update"),
}


def events(feed: int, seed: int, step: timedelta) -> list[dict[str, Any]]:
    """Return the events of a feed, some of them late, one of them a duplicate."""
    random = Random(1000 * seed + feed)
    made = []
    for _ in range(6):
        at = START + feed * step + random.random() * step - (step * 3 if random.randrange(6) == 0 else timedelta())
        made.append({"user": random.choice("abcd"), "amount": random.randrange(100), "at": at.isoformat()})
    return [*made, made[0]]


class StreamPair:
    """Two streams of one query over equal input: one to change, and a control that runs undisturbed."""

    def __init__(self, spark: SparkSession, folder: Path, operator: str, store: str, feeds: int = FEEDS) -> None:
        self.feeds = feeds
        query, mode = QUERIES[operator]
        names = ["events", "others"] if operator == "join" else ["events"]
        self.step = timedelta(days=1) if operator == "timers" else timedelta(minutes=8)
        self.inboxes = {name: Inbox(folder / name, EVENT) for name in names}
        self.control_inboxes = {name: Inbox(folder / f"control {name}", EVENT) for name in names}
        self.changed = Stream(spark, folder / "changed", query, self.inboxes, mode=mode, conf=STORES[store])
        self.control = Stream(spark, folder / "control", query, self.control_inboxes, mode=mode, conf=STORES[store])

    def feed(self, inboxes: dict[str, Inbox], upto: int) -> None:
        for seed, inbox in enumerate(inboxes.values()):
            for number in range(inbox.count, upto):
                inbox.put(events(number, seed, self.step))

    def run_control(self) -> dict[int, list[str]]:
        """Run the control with the batches that the changed stream ends with; return its rows by batch."""
        self.feed(self.control_inboxes, TO + 1)
        rows = self.control.run(**NO_EMPTY_BATCHES)
        for upto in (self.feeds, self.feeds + MORE):
            self.feed(self.control_inboxes, upto)
            rows |= self.control.run(files_per_batch=2)
        return rows
