"""A job that joins two folders, on real Spark: one of them goes idle, and the stream is rewound and continued."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater import Checkpoint, Files, Job
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import OperatorWatermark, read_progress
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.views.plans import rewind_text
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, Inbox, settings
from timemachine.stream_pairs import EVENT, START, join

STEP, DELAY_MS = timedelta(minutes=30), 10 * 60_000


def joined(others: DataFrame, events: DataFrame) -> DataFrame:
    """Return each event with the others of the same user in the five minutes after it."""
    return join({"events": events, "others": others})


class JoinJob:
    """The job, with its input, its output and its checkpoint in one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.out, self.checkpoint = spark, folder / "out", folder / "checkpoint"
        self.inboxes = {name: Inbox(folder / name, EVENT) for name in ("others", "events")}
        reads = {
            name: Files(str(inbox.folder), EVENT, options={"maxFilesPerTrigger": "1"})
            for name, inbox in self.inboxes.items()
        }
        writes = Files(str(self.out), format="json")
        self.job = Job("joined", joined, reads=reads, writes=writes, trigger="available-now")

    def feed(self, name: str, number: int) -> None:
        rows = [{"user": user, "amount": number, "at": (START + number * STEP).isoformat()} for user in "ab"]
        self.inboxes[name].put(rows)

    def run(self) -> None:
        with settings(self.spark, {**EAGER, **NO_EMPTY_BATCHES}):
            run_job(self.spark, Run(self.job, "test", str(self.checkpoint)), stop=threading.Event())
        unload_state_stores(self.spark)

    @property
    def rows(self) -> list[str]:
        """The rows in the output, all of which are in the sink's log."""
        listed = self.spark.read.json(str(self.out)).count()
        found = [line for file in self.out.glob("part-*.json") for line in file.read_text().splitlines()]
        assert len(found) == listed
        return sorted(json.dumps(json.loads(line), sort_keys=True) for line in found)


@pytest.fixture
def pair(headwater_spark: SparkSession, tmp_path: Path) -> tuple[JoinJob, JoinJob]:
    return JoinJob(headwater_spark, tmp_path / "rewound"), JoinJob(headwater_spark, tmp_path / "control")


def test_idle_source_and_rewind(pair: tuple[JoinJob, JoinJob]) -> None:
    """The idle source is named from recorded event times; the rewound stream writes what it would have written."""
    rewound, control = pair
    for one in pair:
        for number in range(5):
            one.feed("events", number)
            if number < 2:
                one.feed("others", number)
    rewound.run()

    checkpoint = Checkpoint(rewound.checkpoint)
    hold = checkpoint.watermark_hold()
    assert str(hold) == (
        "watermark unchanged since batch 2, because others has been idle since batch 2 "
        "(policy min: the slowest source determines it)"
    )
    newest = read_progress(LocalTree(rewound.checkpoint))[4]
    reached = {name: int((START + number * STEP).timestamp() * 1000) for name, number in (("events", 4), ("others", 1))}
    names = {source.name: source.label for source in checkpoint.batch(4).sources}
    assert {(names[one.source or ""], one) for one in newest.watermarks} == {
        (name, OperatorWatermark(one, "at", DELAY_MS, reached[name])) for one, name in names.items()
    }
    assert {source.name: source.records for source in newest.sources} == {"events": 2, "others": 0}
    assert {source.label: source.rows for source in checkpoint.batch(4).sources} == {"events": 2, "others": 0}

    plan = checkpoint.plan_rewind(to=0, replan=True)
    read = {line.split()[2]: line for line in rewind_text(plan).lines() if "read again" in line}
    assert "4 files: available" in read["events"] and "1 file: available" in read["others"]
    assert {path.split("/")[1] for path in plan.set_aside if path.startswith("sources/")} == {"0", "1"}
    plan.apply()
    for one in pair:
        for number in range(5, 7):
            one.feed("events", number)
            one.feed("others", number)
    rewound.run()
    control.run()
    assert rewound.rows == control.rows
    assert len(rewound.rows) > 8
    assert checkpoint.watermark_hold() is None
