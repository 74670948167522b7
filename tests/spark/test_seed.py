"""A checkpoint that is seeded from history continues as if its query had read every record itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from broker_support import HEADWATER, Broker, headwater
from headwater import Checkpoint, Console, Delta, Files, Job, Kafka
from headwater import seed as seed_from
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, JobRefused, UsageProblem
from headwater.spark.importing import plan_job_import
from headwater.spark.seed_plan import plan_seed
from headwater.spark.seed_request import SeedRequest
from headwater.spark.seeding import Seeded, seed, session_for
from headwater.spark.session import temporary_settings
from headwater.views.state_files import read_tables
from spark.topic_support import make, send
from waiting_support import wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the modules of tests
SCHEMA = "user STRING, n INT, at TIMESTAMP"
HISTORY, ALL = 40, 60


def event(number: int) -> str:
    """Two users a minute apart; every fifth record repeats the one before it."""
    repeated = number - 1 if number % 5 == 4 else number
    at = f"2024-03-01T{10 + repeated // 60:02d}:{repeated % 60:02d}:00Z"
    return json.dumps({"user": f"user-{repeated % 7}", "n": repeated, "at": at})


EVENTS = [event(number) for number in range(ALL)]


def sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("user").agg(F.count("*").alias("events"), F.sum("n").alias("total"))


def windows(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "5 minutes").groupBy(F.window("at", "10 minutes"), "user").count()


def sessions(rows: DataFrame) -> DataFrame:
    """Sessions that are open where the history ends: a user has a record every seven minutes."""
    return rows.withWatermark("at", "5 minutes").groupBy(F.session_window("at", "8 minutes"), "user").count()


def distinct(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "30 minutes").dropDuplicates(["user", "at"])


class Totals(StatefulProcessor):
    """A total per user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        (total,) = self.total.get() or (0,)
        total += sum(row.n for row in rows)
        self.total.update((total,))
        yield Row(user=key[0], total=total)


def custom(rows: DataFrame) -> DataFrame:
    return rows.groupBy("user").transformWithState(Totals(), "user STRING, total BIGINT", "Update", "None")


@dataclass(frozen=True)
class Case:
    """A job on a topic with all records, the first of which are also in the history."""

    job: Job
    history: str
    position: str
    folder: Path

    def seed(self, spark: SparkSession, name: str = "seeded", **options: Any) -> Seeded:
        request = self.request(name, **options)
        return seed(spark, request, plan_seed(request))

    def request(self, name: str = "seeded", **options: Any) -> SeedRequest:
        history, at = options.pop("history", self.history), options.pop("at", self.position)
        return SeedRequest(
            options.pop("job", self.job), None, str(self.folder / name), {"": history}, {"": at}, **options
        )

    def drain(self, spark: SparkSession, name: str, **changes: Any) -> None:
        running = replace(self.job, **changes).start(spark, checkpoint=str(self.folder / name), trigger="available-now")
        running.wait()

    def state(self, name: str) -> list[Any]:
        return sorted_rows(Checkpoint(self.folder / name))

    def watermark(self, name: str) -> int | None:
        return Checkpoint(self.folder / name).batches[-1].watermark_ms


def sorted_rows(checkpoint: Checkpoint) -> list[Any]:
    rows = checkpoint.state().to_pylist()
    return sorted(([row["key"], row["value"]] for row in rows), key=str)


def output(folder: Path) -> list[str]:
    return sorted(
        line for file in folder.rglob("*.json") if file.name[0] != "." for line in file.read_text().splitlines()
    )


def write_history(folder: Path, lines: Sequence[str]) -> str:
    folder.mkdir()
    half = len(lines) // 2
    for number, part in enumerate((lines[:half], lines[half:])):
        (folder / f"part-{number}.json").write_text("\n".join(part) + "\n")
    return f"files:{folder}"


@pytest.fixture
def case(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest):
    def make_case(transform: Any, mode: str, sink: Any = None) -> Case:
        topic = f"seed-{abs(hash(request.node.name)) % 10**8}"
        make(broker, topic, 2)
        send(broker, topic, EVENTS, partitions=2)
        half = HISTORY // 2
        source = Kafka(topic, schema=SCHEMA, servers=broker.bootstrap)
        job = Job(
            "seeded", transform, reads=source, writes=sink or Files(str(tmp_path / "out"), format="json"), mode=mode
        )
        history = write_history(tmp_path / "history", EVENTS[:HISTORY])
        return Case(job, history, json.dumps({topic: {"0": half, "1": half}}), tmp_path)

    return make_case


def test_windows_continue_from_history(headwater_spark: SparkSession, case, tmp_path: Path) -> None:
    """State, watermark and output are those of a run over all records; closed windows of the history are kept aside."""
    one = case(windows, "append")
    scratch_job = replace(one.job, writes=Files(str(tmp_path / "scratch-out"), format="json"))
    done = one.seed(headwater_spark)
    assert done.rows == HISTORY
    before = one.watermark("seeded")
    aside = headwater_spark.read.parquet(str(tmp_path / "seeded.output")).count()
    assert aside > 0
    assert output(tmp_path / "out") == []
    one.drain(headwater_spark, "seeded")
    scratch_job.start(headwater_spark, checkpoint=str(tmp_path / "scratch"), trigger="available-now").wait()
    assert one.state("seeded") == one.state("scratch")
    assert one.watermark("seeded") == one.watermark("scratch")
    assert (before or 0) < (one.watermark("seeded") or 0)
    every = output(tmp_path / "scratch-out")
    later = output(tmp_path / "out")
    assert len(every) == len(later) + aside
    assert set(later) <= set(every)
    with pytest.raises(ChangeRefused, match="batch 0 of this checkpoint cannot run again"):
        Checkpoint(tmp_path / "seeded").plan_rewind(to=None)
    with pytest.raises(ChangeRefused, match="this one exists"):
        plan_seed(one.request())
    assert [one.code for one in Checkpoint(tmp_path / "seeded").fsck() if one.severity != "info"] == []
    assert json.loads(LocalTree(tmp_path / "seeded").read("_headwater/seeded_from.json"))["rows"] == HISTORY
    with pytest.raises(JobRefused, match="another meaning"):
        replace(one.job, transform=lambda rows: windows(rows.filter("n > 3"))).start(
            headwater_spark, checkpoint=str(tmp_path / "seeded")
        )


def test_positions_by_time(case) -> None:
    """A time is the first record with that timestamp or a later one; after the last one, it is the end."""
    one = case(sums, "update", Console())
    ends = {"earliest": 0, "1970-01-01T00:00:00Z": 0, "latest": ALL // 2, "2099-01-01T00:00:00Z": ALL // 2}
    for at, expected in ends.items():
        (source,) = plan_seed(one.request(at=at)).sources
        assert list(json.loads(source.offset or "").values()) == [{"0": expected, "1": expected}], at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "mode"), [(sums, "update"), (distinct, "append"), (sessions, "append"), (custom, "update")]
)
def test_other_operators_continue_from_history(headwater_spark: SparkSession, case, transform: Any, mode: str) -> None:
    """Sums, seen events, sessions and custom state are those of a run over all records."""
    one = case(transform, mode, Console())
    one.seed(headwater_spark, output="drop")
    one.drain(headwater_spark, "seeded")
    one.drain(headwater_spark, "scratch")
    assert one.state("seeded") == one.state("scratch") != []
    assert one.watermark("seeded") == one.watermark("scratch")


@pytest.mark.slow
def test_output_of_history_reaches_the_sink(headwater_spark: SparkSession, case, tmp_path: Path) -> None:
    """With --output write, the sink has every row once."""
    one = case(windows, "append")
    one.seed(headwater_spark, output="write")
    assert output(tmp_path / "out") != []
    one.drain(headwater_spark, "seeded")
    job = replace(one.job, writes=Files(str(tmp_path / "scratch-out"), format="json"))
    job.start(headwater_spark, checkpoint=str(tmp_path / "scratch"), trigger="available-now").wait()
    assert output(tmp_path / "out") == output(tmp_path / "scratch-out")


@pytest.mark.slow
def test_records_in_both_are_distinguished_by_event_time(headwater_spark: SparkSession, case, tmp_path: Path) -> None:
    """History before a time, and records of the topic from that time on, although each has more than that."""
    one = case(sums, "update", Console())
    more = write_history(tmp_path / "more", EVENTS[: HISTORY + 10])
    at = json.loads(EVENTS[HISTORY - 5])["at"]
    one.seed(headwater_spark, history=more, at=at, by="event-time", event_time="at", output="drop")
    one.drain(headwater_spark, "seeded")
    one.drain(headwater_spark, "scratch")
    assert one.state("seeded") == one.state("scratch")


@pytest.mark.slow
def test_history_knows_its_offsets(headwater_spark: SparkSession, case, tmp_path: Path) -> None:
    """Records of the history at or after the position are left out by its columns."""
    one = case(sums, "update", Console())
    lines = [
        json.dumps({**json.loads(line), "partition": number % 2, "offset": number // 2})
        for number, line in enumerate(EVENTS)
    ]
    history = write_history(tmp_path / "archive", lines)
    one.seed(headwater_spark, history=history, offset_columns=("partition", "offset"), output="drop")
    one.drain(headwater_spark, "seeded")
    one.drain(headwater_spark, "scratch")
    assert one.state("seeded") == one.state("scratch")


@pytest.mark.slow
def test_parquet_history_and_every_store(headwater_spark: SparkSession, case, tmp_path: Path) -> None:
    """History in Parquet with wider types than the source, on two kinds of store; and history in a DataFrame."""
    one = case(sums, "update", Console())
    folder = tmp_path / "parquet"
    lines = headwater_spark.read.schema(SCHEMA).json(one.history.removeprefix("files:"))
    lines.withColumn("n", F.col("n").cast("bigint")).write.parquet(str(folder))
    store = "spark.sql.streaming.stateStore."
    hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    one.drain(headwater_spark, "scratch")
    for name, conf in (
        ("hdfs", {f"{store}providerClass": hdfs}),
        ("format2", {f"{store}checkpointFormatVersion": "2"}),
    ):
        job = replace(one.job, conf=conf)
        one.seed(headwater_spark, name, job=job, history=f"files:{folder}?format=parquet", output="drop")
        one.drain(headwater_spark, name, conf=conf)
        assert one.state(name) == one.state("scratch")
    plan = seed_from(one.job, lines, at=one.position, checkpoint=one.folder / "frame", output="drop")
    plan.apply(headwater_spark)
    one.drain(headwater_spark, "frame")
    assert one.state("frame") == one.state("scratch")


def test_a_session_for_histories_of_two_sources(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The session has the jars of every source and every history, whichever of them is looked at."""

    def united(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.union(right)

    topics = {name: Kafka(name, schema=SCHEMA, servers="127.0.0.1:1") for name in ("left", "right")}
    job = Job("united", united, reads=topics, writes=Console(), mode="append")
    histories = {"left": f"files:{tmp_path}", "right": "none"}
    request = SeedRequest(job, None, str(tmp_path / "seeded"), histories, dict.fromkeys(topics, "earliest"))
    with session_for(request) as session:
        assert session is headwater_spark


@pytest.mark.slow
def test_two_sources_have_histories_of_their_own(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A join is seeded with a history for each side; a side may have none."""

    def joined(left: DataFrame, right: DataFrame) -> DataFrame:
        sent = left.withWatermark("at", "1 hour").select("user", F.col("n").alias("n1"), F.col("at").alias("at1"))
        seen = right.withWatermark("at", "1 hour").select(F.col("user").alias("user2"), "n", "at")
        return sent.join(seen, F.expr("user = user2 AND at BETWEEN at1 AND at1 + INTERVAL 10 MINUTES"))

    topics = {}
    for name in ("left", "right"):
        topic = f"seed-join-{name}"
        make(broker, topic)
        send(broker, topic, EVENTS[:30])
        topics[name] = Kafka(topic, schema=SCHEMA, servers=broker.bootstrap)
    histories = {name: write_history(tmp_path / name, EVENTS[:20]) for name in topics}
    job = Job("joined", joined, reads=topics, writes=Console(), mode="append")
    at = {name: json.dumps({topic.topic: {"0": 20}}) for name, topic in topics.items()}
    request = SeedRequest(job, None, str(tmp_path / "seeded"), histories, at, output="drop")
    seed(headwater_spark, request, plan_seed(request))
    with pytest.raises(UsageProblem, match="--from is missing for right"):
        plan_seed(replace(request, history={"left": histories["left"]}, checkpoint=str(tmp_path / "other")))
    for name in ("seeded", "scratch"):
        job.start(headwater_spark, checkpoint=str(tmp_path / name), trigger="available-now").wait()
    states = [
        sorted(Checkpoint(tmp_path / name).state(store=f"{side}-keyWithIndexToValue").to_pylist(), key=str)
        for name in ("seeded", "scratch")
        for side in ("left", "right")
    ]
    without_place = [[(str(row["key"]), str(row["value"])) for row in rows] for rows in states]
    assert [{key.partition("'index'")[0] for key, _ in rows} for rows in without_place[:2]] == [
        {key.partition("'index'")[0] for key, _ in rows} for rows in without_place[2:]
    ]
    empty = replace(request, history={**histories, "right": "none"}, checkpoint=str(tmp_path / "half"))
    assert seed(headwater_spark, empty, plan_seed(empty)).rows == 20


@pytest.mark.slow
def test_an_interrupted_seed_continues(
    headwater_spark: SparkSession, case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed that stops after its run, or while it writes the checkpoint, is completed by the same command only."""
    one = case(windows, "append")
    request = one.request(output="write")
    shared: list[str] = []

    def stop_after_three(tree: LocalTree, path: str, into: LocalTree) -> None:
        if len(shared) == 3:
            raise KeyboardInterrupt
        shared.append(path)
        share(tree, path, into)

    share = LocalTree.share
    monkeypatch.setattr(LocalTree, "share", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        seed(headwater_spark, request, plan_seed(request))
    monkeypatch.undo()
    with pytest.raises(CheckpointUnreadable, match="a seed of this checkpoint is running, or was interrupted"):
        one.drain(headwater_spark, "seeded")
    other = replace(request, output="drop", job=replace(one.job, writes=Console()))
    with pytest.raises(ChangeRefused, match="it had other options"):
        seed(headwater_spark, other, plan_seed(other))
    seed(headwater_spark, request, plan_seed(request))
    one.drain(headwater_spark, "seeded")
    job = replace(one.job, writes=Files(str(tmp_path / "scratch-out"), format="json"))
    job.start(headwater_spark, checkpoint=str(tmp_path / "scratch"), trigger="available-now").wait()
    assert output(tmp_path / "out") == output(tmp_path / "scratch-out")
    assert one.state("seeded") == one.state("scratch")
    assert not (tmp_path / "seeded.seeding").exists()


@pytest.mark.slow
@pytest.mark.parametrize("transform", [sums, custom])
def test_exported_state_becomes_a_new_checkpoint(
    headwater_spark: SparkSession, broker: Broker, case, tmp_path: Path, transform: Any
) -> None:
    """With another number of partitions, the exported watermark and position, a stream continues as the original."""
    one = case(transform, "update", Console())
    one.drain(headwater_spark, "original")
    original = Checkpoint(tmp_path / "original")
    original.export(tmp_path / "state")
    tables = read_tables(str(tmp_path / "state"))
    with temporary_settings(headwater_spark, {"spark.sql.shuffle.partitions": "3"}):
        planned = plan_job_import(one.job, None, str(tmp_path / "moved"), tables, {})
        planned.apply(headwater_spark)
    assert one.state("moved") == one.state("original") != []
    assert one.watermark("moved") == one.watermark("original")
    topic = one.job.reads.topic
    send(broker, topic, EVENTS[ALL - 20 :], partitions=2)
    for name in ("original", "moved"):
        one.drain(headwater_spark, name)
    assert one.state("moved") == one.state("original")
    stores = {path.name for path in (tmp_path / "moved/state/0").iterdir() if path.name.isdigit()}
    assert stores == {"0", "1", "2"}


@pytest.mark.slow
def test_a_delta_table_continues_after_history(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The rows of earlier versions come from the history, later ones from the table."""
    table, history = tmp_path / "table", tmp_path / "history"
    rows = headwater_spark.createDataFrame([(line,) for line in EVENTS], "value STRING")
    parsed = rows.select(F.from_json("value", SCHEMA).alias("r")).select("r.*").orderBy("n").collect()
    frame = lambda part: headwater_spark.createDataFrame(part, SCHEMA)  # noqa: E731
    frame(parsed[:20]).write.format("delta").save(str(table))
    frame(parsed[20:40]).write.format("delta").mode("append").save(str(table))
    frame(parsed[:40]).write.parquet(str(history))
    job = Job("seeded", windows, reads=Delta(str(table)), writes=Console(), mode="append")
    request = SeedRequest(
        job, None, str(tmp_path / "seeded"), {"": f"files:{history}?format=parquet"}, {"": "2"}, output="drop"
    )
    seed(headwater_spark, request, plan_seed(request))
    frame(parsed[40:]).write.format("delta").mode("append").save(str(table))
    for name in ("seeded", "scratch"):
        job.start(headwater_spark, checkpoint=str(tmp_path / name), trigger="available-now").wait()
    assert sorted_rows(Checkpoint(tmp_path / "seeded")) == sorted_rows(Checkpoint(tmp_path / "scratch")) != []


JOB_FILE = """
from pyspark.sql import functions as F
from headwater import Files, Job, Kafka

def windows(rows):
    return rows.withWatermark("at", "5 minutes").groupBy(F.window("at", "10 minutes"), "user").count()

WINDOWS = Job("windows", windows, reads=Kafka("TOPIC", schema="SCHEMA", servers="SERVERS"), writes=Files("out", format="json"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["offsets/0", "state/0/0/1.changelog", "commits/0"])
def test_a_killed_seed_continues(broker: Broker, tmp_path: Path, moment: str) -> None:
    """Killed by -9 at any moment, the same command completes it, and the sink has every row once."""
    topic = f"seed-killed-{moment.replace('/', '-')}"
    make(broker, topic)
    send(broker, topic, EVENTS)
    code = JOB_FILE.replace("TOPIC", topic).replace("SCHEMA", SCHEMA).replace("SERVERS", broker.bootstrap)
    (tmp_path / "jobs.py").write_text(code)
    write_history(tmp_path / "history", EVENTS[:HISTORY])
    command = [
        "seed",
        "jobs.py:WINDOWS",
        "--from",
        "files:history",
        "--at",
        f"0:{HISTORY}",
        "--output",
        "write",
        "--yes",
    ]
    command += ["--checkpoint", "killed"]
    process = subprocess.Popen([HEADWATER, *command], cwd=tmp_path, start_new_session=True)
    wait_until((tmp_path / "killed.seeding" / moment).exists, moment)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    early = headwater("run", "jobs.py:WINDOWS", "--checkpoint", "killed", cwd=tmp_path)
    assert "error[incomplete-seed]" in early.stderr
    done = headwater(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ran = headwater(
        "run", "jobs.py:WINDOWS", "--checkpoint", "killed", "--trigger", "available-now", cwd=tmp_path, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    scratch = headwater(
        "run", "jobs.py:WINDOWS", "--checkpoint", "scratch", "--sink", "files:scratch-out?format=json", "--trigger",
        "available-now", cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert scratch.returncode == 0, scratch.stderr
    assert output(tmp_path / "out") == output(tmp_path / "scratch-out") != []
    assert sorted_rows(Checkpoint(tmp_path / "killed")) == sorted_rows(Checkpoint(tmp_path / "scratch"))
