"""Jobs and runs that are refused before a query starts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

from headwater import Console, Delta, Files, Iceberg, Job, Kafka, Memory, Postgres, Table
from headwater.checkpoint.layout import JOB_FILE, PENDING_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import CheckpointBusy, CheckpointUnreadable, HeadwaterError, JobRefused, SetupProblem
from headwater.jobs.endpoints import Source
from headwater.jobs.loading import load_job
from headwater.jobs.rules import check_job
from headwater.spark import repartition
from headwater.spark.ownership import Run, check_ownership, check_run, holding_lease, job_record
from headwater.spark.prepared import check_only, prepare_job
from headwater.spark.runner import run_job

SCHEMA = "user STRING, at TIMESTAMP, amount INT"


def keep_all(rows: DataFrame) -> DataFrame:
    """The rows, unchanged."""
    return rows


def per_user(rows: DataFrame) -> DataFrame:
    """Rows of each user, without a watermark."""
    return rows.groupBy("user").count()


def per_window(rows: DataFrame) -> DataFrame:
    """Rows per hour."""
    return rows.withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour")).count()


def sessions(rows: DataFrame) -> DataFrame:
    """Sessions of each user."""
    return rows.withWatermark("at", "1 hour").groupBy("user", F.session_window("at", "10 minutes")).count()


def misspelled(rows: DataFrame) -> DataFrame:
    """Names a column that does not exist."""
    return rows.select("usr")


def broken(rows: DataFrame) -> DataFrame:
    """Raises a Python error."""
    return rows.select(rows.columns[99])


def nothing(rows: DataFrame) -> None:
    """Forgets to return."""


def static(rows: DataFrame) -> DataFrame:
    """Returns a DataFrame that is not built from the stream."""
    return rows.sparkSession.range(1)


def sorted_rows(rows: DataFrame) -> DataFrame:
    """Sorts a stream."""
    return rows.orderBy("user")


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


def processing_timers(rows: DataFrame) -> DataFrame:
    """Keeps custom state with processing-time timers."""
    return rows.groupBy("user").transformWithStateInPandas(
        Counting(), outputStructType="user STRING", outputMode="Update", timeMode="ProcessingTime"
    )


JOB = Job("tried", keep_all, reads=Files("in", schema=SCHEMA), writes=Console())

REFUSED = [
    (replace(JOB, mode="complete"), "mode", "no aggregation", "--mode append"),
    (replace(JOB, transform=per_user), "mode", "no watermark", "withWatermark"),
    (replace(JOB, transform=sessions, mode="update"), "mode", "session_window", "--mode append"),
    (replace(JOB, mode="complete", per_batch=True), "mode", "each micro-batch by itself", "--mode append or update"),
    (replace(JOB, writes=Files("out"), mode="update"), "mode", "into files", "--mode append"),
    (replace(JOB, writes=Table("out"), transform=per_user, mode="complete"), "mode", "into table", "--mode append"),
    (replace(JOB, mode="sometimes"), "mode", "not an output mode", "--mode append"),
    (replace(JOB, transform=misspelled), "unknown-column", "`usr`", "schema"),
    (replace(JOB, writes=Kafka("t", key="usr")), "unknown-column", "usr", "name one of"),
    (replace(JOB, writes=Postgres("postgresql://x/y", "t", "usr")), "unknown-column", "usr", "key="),
    (replace(JOB, transform=broken), "job-function", "IndexError", "--debug"),
    (replace(JOB, transform=nothing), "job-function", "NoneType", None),
    (replace(JOB, transform=static), "not-a-stream", "static", "per_batch"),
    (replace(JOB, transform=sorted_rows), "spark-refuses", "append mode", None),
    (replace(JOB, reads=Files("in", schema="a INTT")), "spark-refuses", "schema", None),
    (
        replace(JOB, transform=processing_timers, mode="update", trigger="available-now"),
        "trigger",
        "never end",
        "--trigger",
    ),
]


@pytest.mark.parametrize(
    ("job", "code", "text", "remedy"), REFUSED, ids=[f"{job.transform.__name__}-{code}" for job, code, _, _ in REFUSED]
)
def test_refused(headwater_spark: SparkSession, job: Job, code: str, text: str, remedy: str | None) -> None:
    """The refusal names the problem and a remedy in a few lines without a stack trace."""
    with pytest.raises(JobRefused) as refused:
        checked(headwater_spark, job)
    message = str(refused.value)
    print(message)
    assert refused.value.code == code
    assert text in message
    assert remedy is None or remedy in (refused.value.remedy or "")
    assert len(message.splitlines()) <= 5
    for noise in ("Traceback", "at org.apache", "JVM stacktrace", "SQLSTATE", "py4j"):
        assert noise not in message


def checked(spark: SparkSession, job: Job) -> None:
    """Check a job as ``headwater check`` does."""
    check_job(job)
    check_only(spark, job)


@pytest.mark.parametrize(
    ("transform", "mode"),
    [
        (per_user, "complete"),
        (per_user, "update"),
        (per_window, "append"),
        (sessions, "append"),
        (custom_state, "update"),
        (processing_timers, "update"),
    ],
)
def test_accepted(headwater_spark: SparkSession, transform, mode) -> None:
    """Valid jobs pass the same checks."""
    checked(headwater_spark, replace(JOB, transform=transform, mode=mode))


def test_custom_state_needs_rocksdb(headwater_spark: SparkSession) -> None:
    """Custom state on the HDFS-backed store is refused with the setting to omit."""
    name = "spark.sql.streaming.stateStore.providerClass"
    kept = headwater_spark.conf.get(name)
    headwater_spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(JobRefused) as refused:
            check_only(headwater_spark, replace(JOB, transform=custom_state, mode="update"))
    finally:
        headwater_spark.conf.set(name, kept)
    assert refused.value.code == "state-store"
    assert "HDFSBackedStateStoreProvider" in str(refused.value)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "in").mkdir()
    job = replace(JOB, reads=Files(str(tmp_path / "in"), schema=SCHEMA), writes=Memory("held"), trigger="available-now")
    return Run(job, "jobs.py:TRIED", str(tmp_path / "checkpoint"))


def refused_before_and_under_the_lease(spark: SparkSession, run: Run) -> HeadwaterError:
    """Return the refusal, which is the same before Spark starts and when the run acquires the lease."""
    with pytest.raises(HeadwaterError) as before:
        check_run(run)
    with pytest.raises(HeadwaterError) as after:
        run_job(spark, run, stop=threading.Event())
    assert str(before.value) == str(after.value)
    return before.value


def leave_record(run: Run, *, offsets: bool = True) -> None:
    """Write what an earlier run would have left in the checkpoint."""
    files = LocalTree(Path(run.checkpoint))
    files.write(JOB_FILE, job_record(run).to_bytes())
    if offsets:
        files.write("offsets/0", b"v1")


def test_checkpoint_of_another_job(headwater_spark: SparkSession, run: Run) -> None:
    """A checkpoint belongs to one job, even before its first batch."""
    leave_record(replace(run, job=replace(run.job, name="other")), offsets=False)
    refused = refused_before_and_under_the_lease(headwater_spark, run)
    assert (refused.code, refused.exit_status) == ("other-job", 10)
    assert "other" in refused.problem


def test_checkpoint_of_an_attached_query(tmp_path: Path) -> None:
    """A job may continue the query of another program, under another name, if it reads the same sources."""
    files = LocalTree(tmp_path)
    files.write("offsets/0", b"v1")
    sources = {"a": Files("in/a", schema=SCHEMA), "b": Files("in/b", schema=SCHEMA)}
    job = Job("mine", lambda a, b: a.union(b), reads=sources, writes=Console(), mode="append")
    run = Run(job, "test", str(tmp_path))
    recorded = {"job": "theirs", "attached": True, "sources": {"0": "files:/in/b", "1": "files:/in/a"}}
    files.write(JOB_FILE, json.dumps(recorded).encode())
    check_run(run)
    files.write(JOB_FILE, json.dumps({**recorded, "sources": {}, "source": "files:/in/a"}).encode())
    with pytest.raises(JobRefused, match="offsets of other sources"):
        check_run(run)


TOPICS = Kafka("", schema=SCHEMA, servers="h:9092", options={"subscribe": "b,a"})
TABLE = Iceberg("lake.shop.users")


@pytest.mark.parametrize(
    ("recorded", "now", "is_refused"),
    [
        (["kafka://h:9092/a,b"], [TOPICS], False),
        (["kafka://h:9092/a,c"], [TOPICS], True),
        (["kafka://z:9092/a", "kafka://h:9092/b"], [Kafka("b", schema=SCHEMA), Kafka("a", schema=SCHEMA)], False),
        (["kafka://z:9092/a", "kafka://h:9092/b"], [Kafka("b", schema=SCHEMA), Kafka("c", schema=SCHEMA)], True),
        (["kafka://h:9092/a", None], [Kafka("a", schema=SCHEMA), TABLE], False),
        (["table:shop.users"], [Delta("users")], False),
        (["table:shop.users"], [Files("users", schema=SCHEMA)], False),
        (["table:shop.users"], [Files("a", schema=SCHEMA), Files("b", schema=SCHEMA)], True),
        (["files:/in?format=json"], [Kafka("a", schema=SCHEMA)], True),
    ],
)
def test_sources_of_an_attached_query(
    tmp_path: Path, recorded: list[str | None], now: list[Source], is_refused: bool
) -> None:
    """An attached query records its sources as Spark names them; those that cannot be compared are not refused."""
    files = LocalTree(tmp_path)
    files.write("offsets/0", b"v1")
    sources = {"source": recorded[0]} if len(recorded) == 1 else {"sources": numbered(recorded)}
    files.write(JOB_FILE, json.dumps({"job": "theirs", "attached": True, **sources}).encode())
    if len(now) == 1:
        job = Job("mine", keep_all, reads=now[0], writes=Console(), mode="append")
    else:
        job = Job("mine", lambda a, b: a.union(b), reads={"a": now[0], "b": now[1]}, writes=Console(), mode="append")
    with pytest.raises(JobRefused) if is_refused else nullcontext() as refused:
        check_ownership(files, Run(job, "test", str(tmp_path)))
    assert refused is None or refused.value.code == "other-source"


def numbered(uris: list[str | None]) -> dict[str, str]:
    return {str(place): uri for place, uri in enumerate(uris) if uri}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Files("in", schema=SCHEMA), Kafka("a", schema=SCHEMA)),
        (Kafka("a", schema=SCHEMA), Kafka("b", schema=SCHEMA)),
    ],
)
def test_checkpoint_of_another_source(headwater_spark: SparkSession, run: Run, before, now) -> None:
    """A checkpoint cannot be resumed with another source."""
    run = replace(run, job=replace(run.job, writes=Console()))
    leave_record(replace(run, job=replace(run.job, reads=before)))
    assert (
        refused_before_and_under_the_lease(headwater_spark, replace(run, job=replace(run.job, reads=now))).code
        == "other-source"
    )


def test_a_file_sink_does_not_move(headwater_spark: SparkSession, run: Run, tmp_path: Path) -> None:
    """A file sink cannot move to another folder within a checkpoint."""
    leave_record(replace(run, job=replace(run.job, writes=Files(str(tmp_path / "a")))))
    moved = replace(run, job=replace(run.job, writes=Files(str(tmp_path / "b"))))
    assert refused_before_and_under_the_lease(headwater_spark, moved).code == "other-sink"


def test_a_memory_table_is_lost_after_a_restart(headwater_spark: SparkSession, run: Run) -> None:
    """A run in append mode cannot resume into a memory table."""
    leave_record(run)
    refused = refused_before_and_under_the_lease(headwater_spark, run)
    assert "--mode complete" in (refused.remedy or "")


def test_an_interrupted_change(headwater_spark: SparkSession, run: Run) -> None:
    """A job does not start on a checkpoint whose change was interrupted."""
    LocalTree(Path(run.checkpoint)).write(PENDING_FILE, b"{}")
    refused = refused_before_and_under_the_lease(headwater_spark, run)
    assert isinstance(refused, CheckpointUnreadable)
    assert "fsck" in (refused.remedy or "")


def test_a_checkpoint_in_use(headwater_spark: SparkSession, run: Run) -> None:
    """While one job holds the lease, another is refused with the process to stop."""
    with holding_lease(headwater_spark, LocalTree(Path(run.checkpoint)), "first"):
        refused = refused_before_and_under_the_lease(headwater_spark, run)
    assert isinstance(refused, CheckpointBusy)
    assert refused.exit_status == 14
    assert "first is running" in refused.problem
    check_run(run)
    assert prepare_job(headwater_spark, run.job).job is run.job


def test_what_an_older_pyspark_lacks(
    headwater_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Custom state on rows, the real-time trigger and repartitioning are refused with the version that has them."""
    monkeypatch.delattr(PandasGroupedOpsMixin, "transformWithState", raising=False)
    with pytest.raises(SetupProblem, match=r"transformWithState in running-totals needs PySpark 4\.1"):
        check_only(headwater_spark, load_job("running-totals"))
    monkeypatch.setattr(DataStreamWriter, "trigger", lambda self, *, processingTime=None: self)  # noqa: N803
    with pytest.raises(SetupProblem, match=r"the real-time trigger needs PySpark 4\.2"):
        check_only(
            headwater_spark, Job("copy", keep_all, Files("in", SCHEMA), Console(), trigger="real-time 5 seconds")
        )
    monkeypatch.setattr(repartition.offline_repartition, "probe", lambda spark: False)
    with pytest.raises(SetupProblem, match="cannot repartition state"):
        repartition.repartition(headwater_spark, LocalTree(tmp_path), 4)
