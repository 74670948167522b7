"""Rewinds of every source and sink on real Spark: no row is lost, and none is duplicated without need."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import Broker, run_here
from headwater import Files, Job, Kafka, Postgres, Rate, Table
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import JobFailed, JobRefused
from headwater.kafka.offsets import earliest_offsets
from headwater.spark import runner
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.timemachine.executor import Executor
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from postgres_support import PostgresServer
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, Inbox, Stream, settings
from versions_support import SPARK, fails_after_commit

SCHEMA = "id INT, word STRING"
FEEDS = 8


def words(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["words"].select("id", F.upper("word").alias("word"))


def shout(rows: DataFrame) -> DataFrame:
    """Return the words in upper case."""
    return rows.select("id", F.upper("word").alias("word"))


def count_words(rows: DataFrame) -> DataFrame:
    """Return how often each word occurred."""
    return rows.groupBy("word").agg(F.count("*").alias("n"))


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    held = Inbox(tmp_path / "in", SCHEMA)
    _feed(held, FEEDS)
    return held


def _feed(inbox: Inbox, upto: int) -> None:
    for number in range(inbox.count, upto):
        inbox.put([{"id": number, "word": f"word {number % 3}"}, {"id": number + 100, "word": "again"}])


def expected(upto: int) -> list[tuple[int, str]]:
    return sorted([(n, f"WORD {n % 3}") for n in range(upto)] + [(n + 100, "AGAIN") for n in range(upto)])


@pytest.fixture
def run(headwater_spark: SparkSession, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs a job until its source is drained, with eager compaction; it returns the checkpoint."""
    checkpoint = tmp_path / "checkpoint"

    def drain(job: Job) -> Path:
        started = Run(job, "test", str(checkpoint))
        with settings(headwater_spark, {**EAGER, **NO_EMPTY_BATCHES}):
            try:
                run_job(headwater_spark, started, stop=threading.Event())
            except JobFailed as error:
                if error.code != "kafka-progress" or not fails_after_commit(error.__cause__):
                    raise
                run_job(headwater_spark, started, stop=threading.Event())
        unload_state_stores(headwater_spark)
        return checkpoint

    return drain


def files_in(inbox: Inbox, files_per_batch: int = 1) -> Files:
    options = {"maxFilesPerTrigger": str(files_per_batch)}
    return Files(str(inbox.folder), format="json", schema=SCHEMA, options=options)


def _check_file_sink(spark: SparkSession, out: Path, rows: list[tuple[int, str]]) -> None:
    """Check that Spark reads the expected rows through the log, and that the folder has no others."""
    assert sorted(map(tuple, spark.read.schema(SCHEMA).json(str(out)).collect())) == rows
    present = [json.loads(line) for file in out.glob("part-*.json") for line in file.read_text().splitlines()]
    assert sorted((row["id"], row["word"]) for row in present) == rows


@pytest.mark.parametrize(
    "cleaned", [pytest.param(False, marks=pytest.mark.slow), True], ids=["complete logs", "cleaned logs"]
)
def test_files_to_files(headwater_spark: SparkSession, run, inbox: Inbox, tmp_path: Path, cleaned: bool) -> None:
    """The logs of source and sink are rewound together, rebuilt if old entries were cleaned up; data files are set aside."""
    out = tmp_path / "out"
    job = Job("words", shout, reads=files_in(inbox), writes=Files(str(out), format="json"), trigger="available-now")
    checkpoint = run(job)
    files, sink = LocalTree(checkpoint), open_files(str(out))
    assert read_job_record(files).sink_folder == str(out)
    assert (checkpoint / "sources/0/5.compact").exists()
    assert (out / "_spark_metadata/5.compact").exists()
    if cleaned:
        for folder in (checkpoint / "sources/0", out / "_spark_metadata"):
            _remove_below(folder, 5)

    plan = plan_rewind(files, to=3, sink=sink)
    assert bool(plan.rewritten) is cleaned
    plan.apply()
    _check_file_sink(headwater_spark, out, expected(4))
    run(job)
    _check_file_sink(headwater_spark, out, expected(FEEDS))

    plan_rewind(files, to=3, replan=True, sink=sink).apply()
    larger = replace(job, reads=files_in(inbox, files_per_batch=3))
    run(larger)
    assert History(files).last_committed == 5
    _feed(inbox, FEEDS + 2)
    run(larger)
    _check_file_sink(headwater_spark, out, expected(FEEDS + 2))


def _remove_below(folder: Path, number: int) -> None:
    for path in folder.iterdir():
        if int(path.name.removeprefix(".").partition(".")[0]) < number:
            path.unlink()


def test_undo_of_a_file_sink(headwater_spark: SparkSession, run, inbox: Inbox, tmp_path: Path) -> None:
    """After undo the sink has the rows of the first run, and the stream continues from there."""
    out = tmp_path / "out"
    job = Job("words", shout, reads=files_in(inbox), writes=Files(str(out), format="json"), trigger="available-now")
    files, sink = LocalTree(run(job)), open_files(str(out))
    plan_rewind(files, to=3, sink=sink).apply()
    run(replace(job, reads=files_in(inbox, files_per_batch=2)))
    plan_undo(files, sink=sink, drop_newer=True).apply()
    _check_file_sink(headwater_spark, out, expected(FEEDS))
    _feed(inbox, FEEDS + 2)
    run(job)
    _check_file_sink(headwater_spark, out, expected(FEEDS + 2))


def test_a_rewind_without_its_sink_would_lose_rows(
    headwater_spark: SparkSession, run, inbox: Inbox, tmp_path: Path
) -> None:
    """A file sink skips batches that its log contains: the tests above can fail, and the plan warns."""
    out = tmp_path / "out"
    job = Job("words", shout, reads=files_in(inbox), writes=Files(str(out), format="json"), trigger="available-now")
    files = LocalTree(run(job))
    plan = plan_rewind(files, to=3, replan=True, sink_uri="unknown:")
    assert "a file sink or a table that has recorded batches 4 to 7 silently skips them" in plan.warnings[0]
    plan.apply()
    _feed(inbox, FEEDS + 2)
    run(replace(job, reads=files_in(inbox, files_per_batch=3)))
    assert sorted(map(tuple, headwater_spark.read.schema(SCHEMA).json(str(out)).collect())) != expected(FEEDS + 2)


def first_of_each(rows: DataFrame) -> DataFrame:
    """Return each record once."""
    return rows.dropDuplicates(["id", "word"])


def test_a_batch_that_spark_cannot_finish(
    headwater_spark: SparkSession, run, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format 2 cannot recover from a kill between the sink's log and the commit; the remedy in run's error works."""
    out, format_two = tmp_path / "out", "spark.sql.streaming.stateStore.checkpointFormatVersion"
    reads, writes = files_in(inbox), Files(str(out), format="json")
    job = Job("words", first_of_each, reads=reads, writes=writes, mode="append", trigger="available-now")
    with settings(headwater_spark, {format_two: "2"}):
        checkpoint = run(job)
        files, last = LocalTree(checkpoint), FEEDS - 1
        for name in (f"commits/{last}", f"commits/.{last}.crc"):
            files.remove(name)
        with pytest.raises(JobRefused) as refused:
            run(job)
        assert refused.value.code == "batch-stuck"
        assert f"--redo {last}" in (refused.value.remedy or "")
        assert run_here("fsck", checkpoint).returncode == 1
        with monkeypatch.context() as patched, pytest.raises(JobFailed, match="words failed"):
            patched.setattr(runner, "_refuse_stuck_batch", lambda *_: None)
            run(job)
        unload_state_stores(headwater_spark)

        assert run_here("rewind", checkpoint, "--redo", str(last), "--yes").returncode == 0
        run(job)
        _feed(inbox, FEEDS + 2)
        run(job)
    assert sorted(map(tuple, headwater_spark.read.schema(SCHEMA).json(str(out)).collect())) == sorted(
        [(n, f"word {n % 3}") for n in range(FEEDS + 2)] + [(n + 100, "again") for n in range(FEEDS + 2)]
    )
    assert run_here("fsck", checkpoint).returncode == 0


def test_table_to_table(headwater_spark: SparkSession, run, inbox: Inbox, tmp_path: Path) -> None:
    """The folder of a table is taken from the job record; source and target tables are rewound like files."""
    spark = headwater_spark
    spark.sql(f"CREATE TABLE rewind_source ({SCHEMA}) USING json LOCATION '{inbox.folder}'")
    table = Table("rewind_source", options={"maxFilesPerTrigger": "1"})
    job = Job("tables", shout, reads=table, writes=Table("rewind_target"), trigger="available-now")
    checkpoint = run(job)
    files = LocalTree(checkpoint)
    folder = read_job_record(files).sink_folder
    assert folder is not None
    assert (Path(folder) / "_spark_metadata").exists()
    plan_rewind(files, to=3, sink=open_files(folder)).apply()
    assert sorted(map(tuple, spark.read.parquet(folder).collect())) == expected(4)
    run(job)
    assert sorted(map(tuple, spark.read.parquet(folder).collect())) == expected(FEEDS)
    plan_rewind(files, to=2, replan=True, sink=open_files(folder)).apply()
    run(replace(job, reads=replace(table, options={"maxFilesPerTrigger": "4"})))
    run(job)
    assert sorted(map(tuple, spark.read.parquet(folder).collect())) == expected(FEEDS)


def test_rate(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A rate source emits the rows of the recorded batch again, and continues without a gap."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def run_until(batches: int) -> None:
        stop = threading.Event()
        job = Job("rate", lambda rows: rows, reads=Rate(5), writes=Files(str(out), format="json"), trigger="1 second")

        def watch(batch: Any) -> None:
            if batch.batch_id >= batches:
                stop.set()

        run_job(headwater_spark, Run(job, "test", str(checkpoint)), stop=stop, on_batch=watch)

    run_until(3)
    files, sink = LocalTree(checkpoint), open_files(str(out))
    first = _rows_of_batch(out, 2)
    assert first
    plan_rewind(files, to=1, sink=sink).apply()
    run_until(4)
    assert _rows_of_batch(out, 2) == first
    values = [row.value for row in headwater_spark.read.json(str(out)).collect()]
    assert sorted(values) == list(range(len(values)))


def _rows_of_batch(out: Path, batch: int) -> list[str]:
    lines = (out / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    paths = [json.loads(line)["path"].removeprefix("file://") for line in lines]
    return sorted(line for path in paths for line in Path(path).read_text().splitlines())


def test_memory_in_complete_mode(headwater_spark: SparkSession, tmp_path: Path, inbox: Inbox) -> None:
    """After a rewind and a re-run, a memory table in complete mode has the same rows as before."""
    stream = Stream(
        headwater_spark,
        tmp_path / "checkpoint",
        lambda inputs: count_words(inputs["words"]),
        {"words": inbox},
        mode="complete",
    )
    start = lambda writer: writer.format("memory").queryName("rewound").start()  # noqa: E731
    seen = []
    for files_per_batch in (1, 1, 3):
        stream.run_into(start, files_per_batch)
        seen.append(sorted(map(tuple, headwater_spark.table("rewound").collect())))
        plan_rewind(stream.files, to=2, replan=True).apply()
    assert seen == [[("again", 8), ("word 0", 3), ("word 1", 3), ("word 2", 2)]] * 3


def test_kafka_to_kafka(headwater_spark: SparkSession, broker: Broker, run, tmp_path: Path) -> None:
    """Recorded offsets are read and sent again; with other limits the totals equal those of an undisturbed run."""
    for topic in ("rewind_in", "rewind_out"):
        assert run_here("topics", "create", topic, "--bootstrap", broker.bootstrap).returncode == 0
    broker.produce("rewind_in", *(json.dumps({"id": n, "word": f"word {n % 3}"}) for n in range(12)))
    source = Kafka(
        "rewind_in",
        servers=broker.bootstrap,
        schema=SCHEMA,
        options={"maxOffsetsPerTrigger": "2", "startingOffsets": "earliest"},
    )
    job = Job(
        "counts",
        count_words,
        reads=source,
        writes=Kafka("rewind_out", servers=broker.bootstrap),
        mode="update",
        trigger="available-now",
    )
    files = LocalTree(run(job))
    first = broker.consume("rewind_out", 12)
    plan = plan_rewind(files, to=3, ask_kafka=earliest_offsets)
    (reread,) = plan.rereads
    assert (reread.kind, reread.rows, reread.still_there) == ("kafka", 4, True)
    assert "duplicates" in plan.warnings[0]
    plan.apply()
    run(job)
    again = broker.consume("rewind_out", 16)
    assert Counter(again) - Counter(first) == Counter(first[8:])

    plan_rewind(files, to=1, replan=True).apply()
    larger = replace(job, reads=replace(source, options={**source.options, "maxOffsetsPerTrigger": "5"}))
    run(larger)
    broker.produce("rewind_in", json.dumps({"id": 99, "word": "word 0"}))
    run(larger)
    last = {row["word"]: row["n"] for row in map(json.loads, broker.consume("rewind_out", 23))}
    assert last == {"word 0": 5, "word 1": 4, "word 2": 4}


def test_postgres(headwater_spark: SparkSession, postgres: PostgresServer, run, inbox: Inbox) -> None:
    """The batches of the re-run are applied again, over the rows of the first run."""
    job = Job(
        "counts", count_words, reads=files_in(inbox), writes=Postgres(postgres.url, "rewound", "word"), mode="update",
        trigger="available-now",
    )  # fmt: skip
    files = LocalTree(run(job))
    counts = [("again", 8), ("word 0", 3), ("word 1", 3), ("word 2", 2)]
    read = "SELECT word, n FROM rewound ORDER BY word"
    assert postgres.rows(read) == counts
    plan = plan_rewind(files, to=6)
    assert "upserted again" in plan.sink
    for to in (6, 3):
        plan_rewind(files, to=to).apply()
        postgres.do("UPDATE rewound SET n = 0")
        run(job)
        assert ("again", 8) in postgres.rows(read)
    plan_rewind(files, to=1, replan=True).apply()
    run(replace(job, reads=files_in(inbox, files_per_batch=4)))
    _feed(inbox, FEEDS + 1)
    run(job)
    assert postgres.rows(read) == [("again", 9), ("word 0", 3), ("word 1", 3), ("word 2", 3)]


def _interrupted_executor(files: LocalTree) -> Executor:
    class InterruptedTree(LocalTree):
        def move(self, source: str, target: str) -> None:
            raise KeyboardInterrupt

    return Executor({"checkpoint": InterruptedTree(files.root)})


@pytest.fixture
def both_file_managers(headwater_spark: SparkSession) -> Iterator[list[dict[str, str]]]:
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if SPARK >= (4, 1) else "")
    name = "spark.sql.streaming.checkpointFileManagerClass"
    yield [
        {name: f"{package}.FileContextBasedCheckpointFileManager"},
        {name: f"{package}.FileSystemBasedCheckpointFileManager"},
    ]


def test_spark_refuses_a_guarded_checkpoint(
    headwater_spark: SparkSession, inbox: Inbox, tmp_path: Path, both_file_managers: list[dict[str, str]]
) -> None:
    """Spark does not start during an interrupted change, with either file manager; after resume it does."""
    stream = Stream(headwater_spark, tmp_path / "checkpoint", words, {"words": inbox}, mode="append")
    first = stream.run()
    with pytest.raises(KeyboardInterrupt):
        _interrupted_executor(stream.files).apply(plan_rewind(stream.files, to=3).change)
    before = sorted(path for path in stream.checkpoint.rglob("*"))
    for manager in both_file_managers:
        with pytest.raises(Py4JJavaError, match="headwater_rewind_was_interrupted__run_headwater_fsck"):
            stream.run(**manager)
    assert sorted(path for path in stream.checkpoint.rglob("*")) == before, "Spark has changed files"
    Executor({"checkpoint": stream.files}).resume()
    assert stream.run() == {batch: rows for batch, rows in first.items() if batch > 3}
