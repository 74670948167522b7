"""A cascade through a topic of a real broker: one job writes it, another reads it, and both are rewound together."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_support import Broker, run_here
from headwater import Files, Job, Kafka
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from spark.draining import drain_source

SCHEMA = "id INT"
FEEDS, KEPT = 4, 2


def as_they_are(rows: DataFrame) -> DataFrame:
    return rows


class Pipeline:
    """Files that are copied to a topic, and the topic copied to files."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.topic = f"cascade-{uuid.uuid4().hex[:8]}"
        assert run_here("topics", "create", self.topic, "--partitions", 2, *broker.arguments).returncode == 0
        (folder / "in").mkdir()
        topic = Kafka(self.topic, SCHEMA, servers=broker.bootstrap)
        inbox = Files(str(folder / "in"), schema=SCHEMA, format="json", options={"maxFilesPerTrigger": "1"})
        copies = Files(str(folder / "out"), format="json")
        self.writer = Job("writer", as_they_are, reads=inbox, writes=topic, trigger="available-now")
        self.reader = Job("reader", as_they_are, reads=topic, writes=copies, trigger="available-now")

    def checkpoint(self, job: Job) -> Path:
        return self.folder / "checkpoints" / job.name

    def feed(self, number: int) -> None:
        file = self.folder / "in" / f"{number:03d}.json"
        file.write_text("".join(f"{json.dumps({'id': 10 * number + row})}\n" for row in range(3)))
        os.utime(file, (1e9 + number, 1e9 + number))

    def run(self) -> None:
        for job in (self.writer, self.reader):
            drain_source(self.spark, job, self.checkpoint(job))

    def heads(self) -> list[int | None]:
        return [History(LocalTree(self.checkpoint(job))).last_committed for job in (self.writer, self.reader)]

    def copied(self) -> Counter[int]:
        """Return how often the reader has written each row, by the log of its sink, as every reader of it sees it."""
        rows = self.spark.read.schema(SCHEMA).json(str(self.folder / "out")).collect()
        return Counter(row["id"] for row in rows)


def ids(*feeds: int) -> set[int]:
    return {10 * feed + row for feed in feeds for row in range(3)}


@pytest.mark.slow
def test_rewind_through_a_topic(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Nothing of the undone output remains in the reader, one undo reverts both, and the re-run loses no row.

    The topic keeps the undone records, so the reader reads them again besides those that are written again.
    """
    pipeline = Pipeline(headwater_spark, broker, tmp_path)
    for number in range(FEEDS):
        pipeline.feed(number)
        pipeline.run()
    everything = Counter(ids(*range(FEEDS)))
    assert pipeline.copied() == everything
    before = pipeline.heads()

    rewind = ("rewind", pipeline.checkpoint(pipeline.writer), "--to", KEPT - 1, "--cascade")
    plan = json.loads(run_here(*rewind, "--dry-run", "--json").stdout)
    (reader,) = plan["cascade"]
    assert (plan["to"], reader["job"], reader["plan"]["to"]) == (KEPT - 1, "reader", KEPT - 1)
    undone = 3 * (FEEDS - KEPT)
    assert plan["read_twice"] == [
        f"reader will read again {undone} records of {pipeline.topic} that writer wrote in the undone batches again"
    ]
    refused = run_here(*rewind, "--yes")
    assert "error[read-twice]" in refused.stderr and "--allow-duplicates" in refused.stderr
    assert pipeline.heads() == before

    assert run_here(*rewind, "--yes", "--allow-duplicates").returncode == 0
    assert pipeline.heads() == [KEPT - 1, KEPT - 1]
    assert pipeline.copied() == Counter(ids(*range(KEPT)))
    undo = run_here("undo", pipeline.checkpoint(pipeline.writer), "--yes")
    assert undo.returncode == 0, undo.stderr
    assert (pipeline.heads(), pipeline.copied()) == (before, everything)

    assert run_here(*rewind, "--yes", "--allow-duplicates").returncode == 0
    pipeline.run()
    found = pipeline.copied()
    assert set(found) == set(everything)
    assert {row: found[row] for row in ids(*range(KEPT))} == dict.fromkeys(ids(*range(KEPT)), 1)
    assert {row: found[row] for row in ids(*range(KEPT, FEEDS))} == dict.fromkeys(ids(*range(KEPT, FEEDS)), 2)
