"""The Kafka jobs of the gallery on a real broker, step by step, with kcat as consumer.

Most of them run on the session of the tests; one is started with ``headwater run``.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from broker_support import HEADWATER, Broker, run_here
from golden import Step, by_source, golden, put_table, with_tables
from headwater import Job
from headwater.jobs.loading import load_job
from headwater.jobs.uris import sink_from_uri, source_from_uri
from headwater.spark.ownership import Run
from headwater.spark.runner import start_job
from spark import topic_support as topics
from spark.draining import drain_source
from waiting_support import PATIENCE_SECONDS

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
NEEDS_KCAT = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
# The page's tests run browser_stats_stateful, and the demo runs it on a broker.
KAFKA_JOBS = ["profit_tumbling"]
MORE_KAFKA_JOBS = [
    "browser_stats_stateful",
    "browser_stats_stateless",
    "visits_windows_counter",
    "profit_per_id",
    "profit_sliding",
]


class Running:
    """A job started with ``headwater run``, whose progress lines show the current batch."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []

    def wait_for_batch(self, batch_id: int) -> None:
        errors: IO[str] = self.process.stderr  # type: ignore[assignment]
        for line in errors:
            self.seen.append(line)
            if line.startswith(f"batch {batch_id} "):
                return
        raise AssertionError(f"the job ended before batch {batch_id}:\n{''.join(self.seen)}")


@contextmanager
def running(job: str, source: str, sink: str, folder: Path) -> Iterator[Running]:
    """Run a job as a user does. At the end it is stopped and has to exit with status 0."""
    command = [HEADWATER, "run", job, "--source", source, "--sink", sink]
    with (
        (folder / "printed").open("w") as printed,
        subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            job_process = Running(process)
            yield job_process
            process.send_signal(signal.SIGTERM)
            job_process.seen += process.communicate(timeout=240)[1].splitlines(keepends=True)
            assert process.returncode == 0, "".join(job_process.seen)
        finally:
            process.kill()


class RunningHere:
    """A job that runs on the session of the tests."""

    def __init__(self, spark: SparkSession, job: Job, checkpoint: Path) -> None:
        self.batches: Queue[int] = Queue()
        self.job = start_job(
            spark, Run(job, job.name, str(checkpoint)), on_batch=lambda batch: self.batches.put(batch.batch_id)
        )

    def wait_for_batch(self, batch_id: int) -> None:
        while not self.job.wait(0):
            with suppress(Empty):
                if self.batches.get(timeout=1) == batch_id:
                    return
        raise AssertionError(f"the job ended before batch {batch_id}")


def create_topic(broker: Broker, name: str, partitions: int) -> str:
    made = run_here("topics", "create", name, "--partitions", partitions, "--bootstrap", broker.bootstrap)
    assert made.returncode == 0, made.stderr
    return f"kafka://{broker.bootstrap}/{name}"


def send(broker: Broker, topic: str, lines: list[str]) -> None:
    """Send all lines to one partition in one request, so that one batch reads them: only ``flush`` ends the wait."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    for line in lines:
        producer.produce(topic, line, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def received(broker: Broker, topic: str) -> list[str]:
    """Return all values of the topic."""
    assert KCAT
    from_start = ["-C", "-q", "-e", "-o", "beginning"]
    done = subprocess.run(
        [KCAT, "-b", broker.bootstrap, "-t", topic, *from_start], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def as_spark_prints(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, separators=(",", ":")) for row in rows)


def moves_watermark(name: str, step: Step) -> bool:
    return name == "visits_windows_counter" or "watermark_after" in step


@NEEDS_KCAT
@pytest.mark.parametrize(
    "name", [*KAFKA_JOBS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_KAFKA_JOBS)]
)
def test_golden_through_a_broker(headwater_spark: SparkSession, broker: Broker, tmp_path: Path, name: str) -> None:
    """The lines of each step result in exactly the golden JSON on the output topic."""
    expected = golden(name)
    source_topic, sink_topic = f"in-{name}", f"out-{name}"
    source, sink = create_topic(broker, source_topic, 2), create_topic(broker, sink_topic, 1)
    job = load_job(expected["job"])
    job = replace(job, reads=source_from_uri(source, job.reads), writes=sink_from_uri(sink, job.writes))
    running_job = RunningHere(headwater_spark, job, tmp_path)
    with running_job.job:
        running_job.wait_for_batch(0)
        batch, known = 0, 0
        for step in expected["steps"]:
            send(broker, source_topic, step["send"])
            batch += 2 if moves_watermark(name, step) else 1
            running_job.wait_for_batch(batch)
            values = received(broker, sink_topic)
            assert sorted(values[known:]) == as_spark_prints(step["emits"])
            known = len(values)


def test_golden_join_through_a_broker(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The records of two topics are joined as in the golden file, although each step starts the job again."""
    job = load_job("ad-attribution")
    sources = {name: replace(source, servers=broker.bootstrap) for name, source in job.sources.items()}
    for name in (*sources, job.writes.topic):
        topics.make(broker, name)
    sink = replace(job.writes, servers=broker.bootstrap)
    job = replace(job.with_inputs(sources), writes=sink, trigger="available-now")
    known = 0
    for step in golden("ad_attribution")["steps"]:
        for source, lines in by_source(step["send"]).items():
            topics.send(broker, source, lines)
        drain_source(headwater_spark, job, tmp_path / "checkpoint")
        values = topics.values(broker, sink.topic)
        # Spark's to_json omits fields that are null.
        expected = [{name: value for name, value in row.items() if value is not None} for row in step["emits"]]
        assert sorted(value for _, value in values[known:]) == as_spark_prints(expected)
        assert all(json.loads(value or "")["impression"] == key for key, value in values[known:])
        known = len(values)


@pytest.mark.slow
def test_golden_table_through_a_broker(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Items of a topic are joined with a table that changes between batches, as in the golden file."""
    expected = golden("enriched_sales")
    job = with_tables(load_job("enriched-sales"), tmp_path, expected["tables"])
    items = replace(job.sources["items"], servers=broker.bootstrap)
    sink = replace(job.writes, servers=broker.bootstrap)
    job = replace(job.with_inputs({"items": items}), writes=sink, trigger="available-now")
    for topic in (items.topic, sink.topic):
        topics.make(broker, topic)
    known = 0
    for step in expected["steps"]:
        for name, rows in step.get("tables", {}).items():
            put_table(tmp_path / name, rows)
        topics.send(broker, items.topic, by_source(step["send"])["items"])
        drain_source(headwater_spark, job, tmp_path / "checkpoint")
        values = topics.values(broker, sink.topic)
        assert sorted(value for _, value in values[known:]) == as_spark_prints(step["emits"])
        assert all(json.loads(value or "")["category"] == key for key, value in values[known:])
        known = len(values)


@NEEDS_KCAT
@pytest.mark.slow
def test_visits_windows_counter_on_the_console(broker: Broker, tmp_path: Path) -> None:
    """On a new topic with two partitions, the job runs exactly batches 0 to 6 and prints them as Spark does."""
    steps = golden("visits_windows_counter")["steps"]
    topic = "visits-console"
    with running("visits-windows-counter", create_topic(broker, topic, 2), "console:", tmp_path) as job:
        job.wait_for_batch(0)
        for step in steps:
            send(broker, topic, step["send"])
            job.wait_for_batch(step["batch"] + 1)
    printed = (tmp_path / "printed").read_text(encoding="utf-8")
    _, *parts = re.split(r"-{43}\nBatch: (\d+)\n-{43}\n", printed)
    tables = {int(number): table for number, table in zip(parts[::2], parts[1::2], strict=True)}
    expected = {step["batch"]: step["emits"] for step in steps}
    assert {number: rows_of(table) for number, table in tables.items()} == {
        number: sorted(as_console(row) for row in expected.get(number, [])) for number in range(7)
    }
    assert sorted(int(file.name) for file in commits(tmp_path)) == list(range(7))


def rows_of(table: str) -> list[tuple[str, ...]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["window", "count"]
    return sorted(tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines[1:])


def as_console(row: dict[str, Any]) -> tuple[str, ...]:
    start, end = (row["window"][name][:19].replace("T", " ") for name in ("start", "end"))
    return f"{{{start}, {end}}}", str(row["count"])


def commits(folder: Path) -> list[Path]:
    found = (folder / ".headwater" / "checkpoints" / "visits-windows-counter" / "commits").iterdir()
    return [file for file in found if file.name.isdigit()]
