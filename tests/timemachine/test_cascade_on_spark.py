"""A cascade on real Spark: a wrong input is corrected, and the stream that has read its consequences is right again."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.timemachine.cascade import plan_cascade
from headwater.timemachine.joint_change import plan_cascade_undo
from headwater.timemachine.rewind import plan_query_rewind
from headwater.timemachine.undo import plan_query_undo
from timemachine.spark_runs import NO_EMPTY_BATCHES, STORES, Inbox, Stream
from timemachine.stream_pairs import EVENT, QUERIES, events

FEEDS, WRONG = 5, 3


class Pipeline:
    """Events without duplicates in files, and totals of these files."""

    def __init__(self, spark: SparkSession, home: Path, store: str) -> None:
        self.inbox, self.sink = Inbox(home / "in", EVENT), home / "clean"
        between = Inbox(home / "draft of clean", EVENT)
        between.folder = self.sink
        jobs, conf = home / "jobs", STORES[store]
        self.clean = Stream(
            spark, jobs / "clean", QUERIES["dedup"][0], {"events": self.inbox}, mode="append", conf=conf
        )
        self.totals = Stream(spark, jobs / "totals", QUERIES["aggregation"][0], {"events": between}, conf=conf)
        for stream, source, sink in (
            (self.clean, self.inbox.folder, f"files:{self.sink}"),
            (self.totals, self.sink, "foreach-batch:"),
        ):
            record = JobRecord(stream.checkpoint.name, f"files:{source}?format=json", sink)
            LocalTree(stream.checkpoint).write(JOB_FILE, record.to_bytes())

    def run(self) -> None:
        conf = NO_EMPTY_BATCHES
        self.clean.run_into(lambda writer: writer.format("json").start(str(self.sink)), conf=conf)
        self.totals.run(files_per_batch=3, **conf)

    @property
    def state(self) -> list[str]:
        """The totals, without where the state store keeps them."""
        rows = [json.loads(row) for row in self.totals.state(max(self.totals.states()))]
        return sorted(json.dumps([row["key"], row["value"]], sort_keys=True) for row in rows)


def correct_and_run_again(spark: SparkSession, folder: Path, store: str) -> None:
    """Check that a corrected pipeline has the totals of one that never had the wrong input."""
    step = timedelta(minutes=1)  # nothing leaves the state
    good = [events(number, 0, step) for number in range(FEEDS)]
    pipeline, control = Pipeline(spark, folder / "pipeline", store), Pipeline(spark, folder / "control", store)
    for number, rows in enumerate(good):
        control.inbox.put(rows)
        pipeline.inbox.put([{**row, "amount": 1000} for row in rows] if number >= WRONG else rows)
    for one in (pipeline, control):
        one.run()
    wrong = pipeline.state
    assert wrong != control.state
    plan = plan_cascade(plan_query_rewind(pipeline.clean.files, to=WRONG - 1))
    assert [one.to is not None for one in plan.plans] == [True, True]
    plan.apply()
    undo = plan_cascade_undo(pipeline.clean.files, lambda files: plan_query_undo(files, in_cascade=True))
    assert undo is not None
    undo.apply()
    assert pipeline.state == wrong
    plan_cascade(plan_query_rewind(pipeline.clean.files, to=WRONG - 1)).apply()
    for number in range(WRONG, FEEDS):
        file = pipeline.inbox.folder / f"{number:04d}.json"
        stamp = file.stat().st_mtime_ns
        file.write_text("".join(f"{json.dumps(row)}\n" for row in good[number]))
        os.utime(file, ns=(stamp, stamp))
    pipeline.run()
    assert pipeline.state == control.state


def test_a_corrected_pipeline(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """After a cascade and a correction of the input, nothing of the wrong output is left in the reader."""
    correct_and_run_again(headwater_spark, tmp_path, "changelog")


@pytest.mark.slow
@pytest.mark.parametrize("store", ["hdfs", "rocksdb", "format2"])
def test_corrected_pipelines_on_other_stores(headwater_spark: SparkSession, tmp_path: Path, store: str) -> None:
    """The same on the other state stores."""
    correct_and_run_again(headwater_spark, tmp_path, store)
