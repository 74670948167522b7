"""Jobs with state and the real-time trigger: what is refused, and what runs on PySpark 4.3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from broker_support import HEADWATER, Broker
from corpus_support import CorpusCheckpoint
from headwater import Console, Job, Kafka
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import JobRefused, SetupProblem
from headwater.jobs.rules import check_job
from headwater.spark.internals import real_time
from headwater.spark.ownership import Run
from headwater.spark.prepared import check_only, prepare_job
from headwater.spark.real_time import SLOT_CHECK, local_slots, real_time_settings, session_for
from headwater.spark.session import CHECKPOINT_FORMAT, temporary_settings
from headwater.statefiles.reader import state_rows
from headwater.timemachine.rewind import plan_rewind
from spark import topic_support as topics
from versions_support import SPARK
from waiting_support import PATIENCE_SECONDS, wait_until

SCHEMA = "user STRING, at TIMESTAMP, amount INT"
PARTITIONS = "spark.sql.shuffle.partitions"
needs_state = pytest.mark.skipif(SPARK < (4, 3), reason="PySpark 4.3 introduced state with the real-time trigger")


def per_user(rows: DataFrame) -> DataFrame:
    """Rows of each user."""
    return rows.groupBy("user").count()


def per_window(rows: DataFrame) -> DataFrame:
    """Rows per hour."""
    return rows.withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour")).count()


def in_total(rows: DataFrame) -> DataFrame:
    """The number of rows."""
    return rows.agg(F.count("*"))


def without_duplicates(rows: DataFrame) -> DataFrame:
    """One row for each user and time."""
    return rows.withWatermark("at", "1 hour").dropDuplicates(["user", "at"])


def within_watermark(rows: DataFrame) -> DataFrame:
    """One row for each user within an hour."""
    return rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["user"])


def sessions(rows: DataFrame) -> DataFrame:
    """Sessions of each user."""
    return rows.withWatermark("at", "1 hour").groupBy("user", F.session_window("at", "10 minutes")).count()


def pairs(rows: DataFrame) -> DataFrame:
    """Pairs of rows of a user."""
    return rows.alias("a").join(rows.alias("b"), F.expr("a.user = b.user")).select("a.user")


def limited(rows: DataFrame) -> DataFrame:
    """The first rows."""
    return rows.limit(3)


def upper_case(rows: DataFrame) -> DataFrame:
    """Names in capital letters, by a Python function."""
    return rows.select(F.udf(lambda text: text.upper(), "string")("user").alias("user"))


def counts_and_rows(rows: DataFrame) -> DataFrame:
    """The users who have been counted, together with the users of all rows."""
    return per_user(rows).select("user").union(rows.select("user"))


class Counting(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n INT")

    def handleInputRows(self, key, rows: Iterator[pd.DataFrame], timers) -> Iterator[pd.DataFrame]:  # noqa: N802
        yield pd.DataFrame({"user": [key[0]]})


def custom_state(rows: DataFrame) -> DataFrame:
    """Keeps custom state."""
    return rows.groupBy("user").transformWithStateInPandas(
        Counting(), outputStructType="user STRING", outputMode="Update", timeMode="None"
    )


def assigned(partitions: int, transform: Callable[[DataFrame], DataFrame] = per_user) -> Job:
    """Return a job whose number of partitions is known without a broker."""
    options = {"assign": json.dumps({"t": list(range(partitions))})}
    source = Kafka("", schema=SCHEMA, options=options)
    return Job("tried", transform, reads=source, writes=Console(), mode="update", trigger="real-time 5 seconds")


JOB = assigned(1)


@pytest.mark.skipif(SPARK < (4, 2), reason="PySpark 4.2 introduced the real-time trigger")
@pytest.mark.skipif(SPARK >= (4, 3), reason="PySpark 4.3 introduced state with the real-time trigger")
def test_state_on_an_older_spark(headwater_spark: SparkSession) -> None:
    """A job with state is refused with the version that it needs."""
    with pytest.raises(SetupProblem, match=r"needs PySpark 4\.3") as refused:
        check_only(headwater_spark, JOB)
    assert refused.value.evidence["stateful operators"] == "Aggregate"
    assert "--trigger" in (refused.value.remedy or "")


@pytest.fixture
def newest(headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session that counts as one of a Spark with stateful real-time queries."""
    monkeypatch.setattr(real_time, "probe", lambda spark: True)
    return headwater_spark


@pytest.mark.parametrize(
    ("transform", "named"),
    [
        (custom_state, "custom state"),
        (sessions, "session_window"),
        (within_watermark, "dropDuplicatesWithinWatermark"),
        (pairs, "a join of two streams"),
        (limited, "limit"),
        (upper_case, "a user-defined function in Python"),
        (counts_and_rows, "union after an operator with state"),
    ],
)
def test_refused_operators(newest: SparkSession, transform: Callable[[DataFrame], DataFrame], named: str) -> None:
    """What Spark would refuse in the first batch is refused by name before anything starts."""
    job = replace(JOB, transform=transform)
    check_job(job)
    with pytest.raises(JobRefused, match=f"real-time trigger does not support {named}") as refused:
        check_only(newest, job)
    assert refused.value.code == "trigger"
    assert refused.value.remedy == '--trigger "1 second"'


@pytest.mark.parametrize("transform", [per_user, per_window, in_total, without_duplicates])
def test_accepted_operators(newest: SparkSession, transform: Callable[[DataFrame], DataFrame]) -> None:
    """Aggregations and dropDuplicates are accepted."""
    check_only(newest, replace(JOB, transform=transform))


def test_checkpoint_format(newest: SparkSession, corpus: Callable[[str], CorpusCheckpoint], tmp_path: Path) -> None:
    """A new checkpoint gets format 2, one of format 2 keeps it, and one of format 1 is refused with the remedy."""
    with temporary_settings(newest, {PARTITIONS: "1"}):
        prepared = prepare_job(newest, replace(JOB, transform=in_total))
        for files in (LocalTree(tmp_path), corpus("aggregation-format2").files):
            assert real_time_settings(prepared, files, "ck") == {CHECKPOINT_FORMAT: "2"}
        with pytest.raises(JobRefused, match="on a checkpoint of format 1") as refused:
            real_time_settings(prepared, corpus("aggregation-changelog").files, "ck")
    assert refused.value.code == "checkpoint-format"
    assert (refused.value.remedy or "").startswith("headwater migrate ck --checkpoint-format 2")


@pytest.mark.parametrize(("transform", "needed"), [(per_user, 7), (in_total, 4), (lambda rows: rows, 3)])
def test_too_few_slots(
    newest: SparkSession, tmp_path: Path, transform: Callable[[DataFrame], DataFrame], needed: int
) -> None:
    """A local master with fewer slots than tasks is refused with their number: a task for each topic and state partition."""
    with temporary_settings(newest, {PARTITIONS: "4"}):
        prepared = prepare_job(newest, assigned(3, transform))
        with pytest.raises(
            JobRefused, match=rf"needs {needed} task slots at the same time, and local\[2\] has 2"
        ) as no:
            real_time_settings(prepared, LocalTree(tmp_path), "ck")
    assert f"local[{needed}]" in (no.value.remedy or "")


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[3, 2]", 3), ("local[*]", os.cpu_count()), ("spark://a:7077", None)],
)
def test_slots_of_a_master(master: str, slots: int | None) -> None:
    """Only local masters have a known number of slots."""
    assert local_slots(master) == slots


def test_master_for_real_time(tmp_path: Path) -> None:
    """Without a master of the user's, the session has slots for all tasks of real-time jobs, and some for other work."""
    run = Run(assigned(3), None, str(tmp_path))
    other = Run(replace(JOB, trigger=None), None, str(tmp_path))
    conf = {PARTITIONS: "4"}
    master, chosen = session_for([run, other], "local[*]", conf)
    assert local_slots(master) == 3 + 3 * 4 + (os.cpu_count() or 1)
    assert chosen == {SLOT_CHECK: "false", **conf}
    assert session_for([run], "local[7]", conf) == ("local[7]", conf)
    assert session_for([other], "local[*]", conf) == ("local[*]", conf)


def record(user: str) -> str:
    return json.dumps({"user": user, "at": "2024-03-01T10:00:00Z", "amount": 1})


@needs_state
def test_resuming(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Every record emits a count at once; after an interruption and after a rewind each record counts exactly once."""
    topics.make(broker, "real-time-in")
    topics.make(broker, "real-time-out")
    source = Kafka("real-time-in", SCHEMA, servers=broker.bootstrap)
    sink = Kafka("real-time-out", servers=broker.bootstrap, key="user")
    job = replace(JOB, name="counts", reads=source, writes=sink, conf={PARTITIONS: "1"})
    checkpoint = tmp_path / "checkpoint"

    def run_until(counts: dict[str, int], *, now: bool = False) -> None:
        topics.send(broker, "real-time-in", [record("ann"), record("bob"), record("ann"), "malformed"])
        running = job.start(headwater_spark, checkpoint)
        wait_until(lambda: counts.items() <= latest().items() or not running.is_active, f"counts of {counts}")
        running.stop(now=now)
        assert running.failure is None

    def latest() -> dict[str, int]:
        rows = [json.loads(value or "") for _, value in topics.values(broker, "real-time-out")]
        return {row["user"]: row["count"] for row in rows}

    def in_state() -> dict[str, int]:
        files = LocalTree(checkpoint)
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        return {row["key"]["user"]: row["value"]["count"] for row in state_rows(files, last)}

    run_until({"ann": 2, "bob": 1})
    assert in_state() == {"ann": 2, "bob": 1}
    emitted = Counter(value for _, value in topics.values(broker, "real-time-out"))
    assert len(emitted) == 3  # one row for each record, not for each user
    run_until({"ann": 4, "bob": 2}, now=True)  # the batch is interrupted, and its offsets are not logged
    run_until({"ann": 6, "bob": 3})
    assert in_state() == {"ann": 6, "bob": 3}
    plan_rewind(LocalTree(checkpoint), to=0).apply()
    run_until({"ann": 8, "bob": 4})
    assert in_state() == {"ann": 8, "bob": 4}


@needs_state
@pytest.mark.slow
def test_killed_process(broker: Broker, tmp_path: Path) -> None:
    """A process that is killed during a batch resumes, and its state counts each record exactly once."""
    topics.make(broker, "real-time-killed", partitions=2)
    topics.make(broker, "real-time-counts")
    command = [
        *(HEADWATER, "run", "browser-stats-stateful", "--trigger", "real-time 5 seconds", "--checkpoint", "ck"),
        *("--source", broker.uri("real-time-killed"), "--sink", broker.uri("real-time-counts")),
    ]
    visit = {"userId": 1, "page": "a", "browser": "Firefox", "eventTime": "2024-03-01T10:00:00Z"}
    commits = tmp_path / "ck" / "commits"

    def counted() -> int:
        last = max((int(path.name) for path in commits.glob("*") if path.name.isdigit()), default=None)
        rows = [] if last is None else state_rows(LocalTree(tmp_path / "ck"), last)
        return sum(row["value"]["count"] for row in rows)

    def emitted() -> int:
        values = [json.loads(value or "") for _, value in topics.values(broker, "real-time-counts")]
        return max((value["count"] for value in values), default=0)

    for total in (100, 200, 300):
        topics.send(broker, "real-time-killed", [json.dumps(visit)] * 100, partitions=2)
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            # The output is in the topic before the batch is committed.
            wait_until(lambda total=total: emitted() == total or process.poll() is not None, f"{total} visits")
            if total == 300:
                wait_until(lambda: counted() == 300 or process.poll() is not None, "the commit")
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE_SECONDS) == 0
            else:
                process.kill()
    assert counted() == 300
