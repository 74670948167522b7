"""The error of a job that fails while it runs: the cause and the line of the user's code, without a stack trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import free_port
from cli.test_run_socket import line_server
from headwater import Files, Job, Memory, Socket
from headwater.core.errors import JobFailed, ServiceUnreachable
from headwater.spark.failures import failure, is_interruption, root_cause


def divide(rows: DataFrame) -> DataFrame:
    """Divides by zero."""
    return rows.select((1 / F.col("a")).alias("x"))


def in_a_worker(rows: DataFrame) -> DataFrame:
    """Fails in Python code that runs in a worker."""

    @F.udf("int")
    def look_up(value):
        return {"known": 1}[str(value)]

    return rows.select(look_up("a").alias("x"))


def on_the_driver(rows: DataFrame) -> DataFrame:
    """Fails in a per-batch function, once there are rows."""
    if rows.count():
        raise RuntimeError("no such luck")
    return rows


@pytest.mark.parametrize(
    ("transform", "per_batch", "cause", "place"),
    [
        (divide, False, "Division by zero", None),
        (in_a_worker, False, "KeyError: '0'", "look_up"),
        (on_the_driver, True, "RuntimeError: no such luck", "on_the_driver"),
    ],
)
def test_cause_and_place(drain, tmp_path: Path, transform, per_batch: bool, cause: str, place: str | None) -> None:
    """The error names the innermost cause and the line of the user's file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"a":0}\n')
    job = Job("breaks", transform, reads=Files(str(tmp_path / "in"), schema="a INT"), writes=Memory("broken"))
    with pytest.raises(JobFailed) as failed:
        drain(replace(job, per_batch=per_batch, trigger="available-now"))
    text = str(failed.value)
    print(text)
    assert cause in failed.value.evidence["cause"]
    assert place is None or (place in failed.value.evidence["in"] and "test_failures.py" in failed.value.evidence["in"])
    assert len(text.splitlines()) <= 4
    for noise in ("Traceback", "at org.apache", "py4j", "SQLSTATE"):
        assert noise not in text


def refused_elsewhere(rows: DataFrame) -> DataFrame:
    """Fails because a service that the job itself calls refuses the connection."""

    @F.udf("string")
    def look_up(value):
        raise ConnectionRefusedError("Connection refused")

    return rows.select(look_up("value").alias("x"))


def test_only_the_server_of_the_socket_is_unreachable(drain, tmp_path: Path) -> None:
    """A refused connection is reported as that of the socket only if it is; another service's is the job's failure."""
    job = Job("lines", refused_elsewhere, reads=Socket("127.0.0.1", free_port()), writes=Memory("lines"))
    with pytest.raises(ServiceUnreachable, match="nothing is listening at") as unreachable:
        drain(job)
    assert unreachable.value.code == "socket-unreachable"
    with line_server("one line") as port, pytest.raises(JobFailed) as failed:
        drain(replace(job, reads=Socket("127.0.0.1", port)), tmp_path / "second")
    assert failed.value.evidence["cause"] == "ConnectionRefusedError: Connection refused"


def test_the_kafka_connector_of_spark_4_1() -> None:
    """The batch was committed: the remedy is another start. The same error of another source is not explained so."""
    cause = 'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the return value is null'
    found = failure("counts", Exception(f"{cause}\nCurrent Committed Offsets: {{KafkaV2[Subscribe[t]]: 8}}"))
    assert found.code == "kafka-progress"
    assert "start the job again" in (found.remedy or "")
    assert failure("counts", Exception(cause)).code == "job-failed"


def test_causes_of_classes_that_pyspark_does_not_know(headwater_spark: SparkSession) -> None:
    """The innermost exception counts, which may be the interruption of a batch that was to stop at once."""
    java = headwater_spark.sparkContext._jvm.java

    def failed(cause: object) -> StreamingQueryException:
        return StreamingQueryException("null\n=== Streaming Query ===", "", cause)

    interrupted = failed(java.lang.reflect.InvocationTargetException(java.lang.InterruptedException()))
    assert (root_cause(interrupted), is_interruption(interrupted)) == ("InterruptedException", True)
    full = failed(java.lang.RuntimeException("outer", java.io.IOException("No space left on device")))
    assert (root_cause(full), is_interruption(full)) == ("No space left on device", False)
