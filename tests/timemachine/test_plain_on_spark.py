"""Rewinds of plain PySpark programs, without Headwater's session: every source and sink, on every PySpark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker_support import Broker
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import temporary_settings as settings
from headwater.statefiles.reader import state_rows
from headwater.timemachine.rewind import plan_rewind
from timemachine.plain_programs import SINKS, SOURCES, KafkaSink, KafkaSource, Program, rows_of_feeds
from timemachine.spark_runs import EAGER, STORES
from versions_support import SPARK

FEEDS, MORE, TO = 8, 2, 3
REAL_TIME = {
    **EAGER,
    **STORES["format2"],
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500",
    "spark.sql.shuffle.partitions": "1",  # the tasks of all stages run at the same time
}

NewProgram = Callable[[str, str, str], Program]


@pytest.fixture
def new_program(
    headwater_spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[str, str, str], Program]:
    """Return a function that creates a program with a name from a source to a sink. A broker starts if one needs it."""

    def create(name: str, source: str, sink: str) -> Program:
        folder, broker = tmp_path / name, partial(request.getfixturevalue, "broker")
        made = SOURCES[source](headwater_spark, folder, broker), SINKS[sink](headwater_spark, folder, broker)
        return Program(headwater_spark, folder / "checkpoint", *made)

    return create


def rewind_and_compare(new_program: NewProgram, source: str, sink: str) -> None:
    """Rewind to the recorded batches, then to larger ones; in the end the sink has what an undisturbed run gives it.

    Sinks without a log of batches have the rows of each batch that ran again once more.
    """
    rewound, control = new_program("rewound", source, sink), new_program("control", source, sink)
    rewound.run(FEEDS)
    first = rewound.sink.rows()
    ran_again = rows_of_feeds(TO + 1, FEEDS) if rewound.sink.repeats else rows_of_feeds(0, 0)

    rewound.rewind(TO, replan=False)
    rewound.run(FEEDS)
    assert rewound.sink.rows() == first + ran_again

    rewound.rewind(TO, replan=True)
    rewound.run(FEEDS + MORE, feeds_per_batch=3)
    control.run(FEEDS + MORE)
    assert rewound.sink.rows() == control.sink.rows() + ran_again + ran_again
    if sink != "memory":
        assert control.sink.rows() == rows_of_feeds(0, FEEDS + MORE)


def test_a_rewound_program_ends_like_an_undisturbed_one(new_program: NewProgram) -> None:
    """A program with a file sink writes the same rows, with the recorded batches and with larger ones."""
    rewind_and_compare(new_program, "files", "files")


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCES)
def test_all_sources_and_sinks(new_program: NewProgram, source: str, sink: str) -> None:
    """The same for every source and sink."""
    rewind_and_compare(new_program, source, sink)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "sink"), [("rate", "files")])
def test_sources_of_the_clock(headwater_spark: SparkSession, tmp_path: Path, source: str, sink: str) -> None:
    """The source ``rate`` emits the rows of the recorded batch again, and continues without a gap."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    files = LocalTree(checkpoint)

    def run_until(batch: int) -> None:
        rows = headwater_spark.readStream.format(source).option("rowsPerSecond", 5).load()
        writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 second")
        query = writer.format("json").start(str(out))
        while not (checkpoint / "commits" / str(batch)).exists():
            assert query.isActive, query.exception()
            time.sleep(0.1)
        query.stop()

    def rows_of(batch: int) -> list[str]:
        lines = (out / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
        paths = [json.loads(line)["path"].removeprefix("file://") for line in lines]
        return sorted(line for path in paths for line in Path(path).read_text().splitlines())

    run_until(3)
    first = rows_of(2)
    assert first
    plan_rewind(files, to=1, sink=open_files(str(out))).apply()
    assert History(files).last_committed == 1
    run_until(4)
    assert rows_of(2) == first
    values = [row.value for row in headwater_spark.read.json(str(out)).collect()]
    assert sorted(values) == list(range(len(values)))


@pytest.mark.slow
@pytest.mark.skipif(SPARK < (4, 3), reason="PySpark 4.3 introduced state with the real-time trigger")
def test_real_time_with_state(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A rewound real-time query counts each record exactly once, whether its batch was recorded or is planned again."""
    source, sink = KafkaSource(headwater_spark, broker), KafkaSink(broker)

    def run_until(checkpoint: Path, feeds: int) -> dict[str, int]:
        """Run until all records of the feeds are counted; return the counts in the state."""
        source.grow(feeds)
        counts = source.real_time_frame().groupBy("word").count()
        values = counts.select(F.to_json(F.struct("*")).alias("value"))
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": sink.topic}
        writer = values.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
        with settings(headwater_spark, REAL_TIME):
            query = writer.trigger(realTime="1 second").format("kafka").options(**options).start()
        give_up = time.monotonic() + 90
        while sum((found := counted(checkpoint)).values()) < 2 * feeds:
            assert query.isActive, query.exception()
            assert time.monotonic() < give_up, found
            time.sleep(0.2)
        query.stop()
        unload_state_stores(headwater_spark)
        return counted(checkpoint)

    def counted(checkpoint: Path) -> dict[str, int]:
        files = LocalTree(checkpoint)
        last = History(files).last_committed if (checkpoint / "commits").exists() else None
        if last is None:
            return {}
        return {row["key"]["word"]: row["value"]["count"] for row in state_rows(files, last)}

    checkpoint = tmp_path / "checkpoint"
    for feeds in (1, 3, 4, 6):
        run_until(checkpoint, feeds)
    files = LocalTree(checkpoint)
    middle = History(files).last_committed // 2
    for replan in (False, True):
        plan_rewind(files, to=middle, replan=replan).apply()
        assert sum(counted(checkpoint).values()) < 12
        assert run_until(checkpoint, 6) == {"word 0": 6, "word 1": 6}
    assert run_until(checkpoint, 8) == run_until(tmp_path / "control", 8) == {"word 0": 8, "word 1": 8}
