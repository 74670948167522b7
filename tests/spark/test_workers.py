"""Custom state in Headwater's Python workers: the same results as in PySpark's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater.spark.session import default_conf
from spark import cluster_state_program, custom_state_program
from spark.custom_state_program import run_all
from spark_cluster_support import Cluster
from versions_support import SPARK

HEADWATER_DAEMON = "headwater.spark.internals.workers.daemon"
pytestmark = pytest.mark.skipif(SPARK < (4, 1), reason="PySpark 4.1 introduced transformWithState on rows")


@contextmanager
def workers_of(spark: SparkSession, module: str) -> Iterator[None]:
    """Let Spark start its Python workers with this module."""
    setting, conf = "spark.python.daemon.module", spark._jvm.org.apache.spark.SparkEnv.get().conf()
    before = conf.get(setting)
    conf.set(setting, module)
    try:
        yield
    finally:
        conf.set(setting, before)


@pytest.mark.skipif(SPARK >= (4, 3), reason="a session of PySpark 4.3 keeps its Python workers: see the slow test")
def test_same_output_as_pyspark(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Values, lists, maps, timers, time-to-live, large variables, NaN keys and the checkpoint are the same as in PySpark."""
    cloudpickle.register_pickle_by_value(custom_state_program)
    output: dict[str, dict[str, list[Any]]] = {}
    for module in (HEADWATER_DAEMON, "pyspark.daemon"):
        with workers_of(headwater_spark, module):
            output[module] = run_all(headwater_spark, tmp_path / module, {"text": 60, "ratio": 24})
    check_same(output)


def check_same(output: dict[str, dict[str, list[Any]]]) -> None:
    assert output[HEADWATER_DAEMON] == output["pyspark.daemon"]
    assert all(len(rows) > 50 for rows in output[HEADWATER_DAEMON].values())
    assert "nan" in str(output[HEADWATER_DAEMON]["ratio"])


@pytest.mark.slow
@pytest.mark.skipif(SPARK < (4, 2), reason="PySpark 4.1 fails on some types of keys, in its own workers too")
def test_same_output_as_pyspark_for_all_types_of_keys(tmp_path: Path) -> None:
    """The same holds for every type of key, with generated code, in processes of their own."""

    def output_of(module: str) -> dict[str, list[Any]]:
        folder = tmp_path / module
        folder.mkdir()
        command = [sys.executable, custom_state_program.__file__, str(folder), module]
        done: dict[str, list[Any]] = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=280).stdout
        )
        return done

    check_same({module: output_of(module) for module in (HEADWATER_DAEMON, "pyspark.daemon")})


@pytest.mark.skipif(SPARK < (4, 2), reason="PySpark 4.1 ignores values that a variable has no field for")
def test_a_change_that_fails_fails_the_batch(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The response to a change is read late, but before anything is committed."""

    class TwoForOne(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            self.total.update((1, 2))
            yield Row(value=key[0])

    rows = headwater_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    processed = rows.groupBy("value").transformWithState(TwoForOne(), "value BIGINT", "Update", "None")
    writer = processed.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="update of custom state"):
        query.awaitTermination()
    assert not list((tmp_path / "commits").glob("[0-9]*"))


@pytest.mark.slow
def test_a_cluster_uses_the_workers_in_the_jar(spark_cluster: Cluster, tmp_path: Path) -> None:
    """Executors of a standalone cluster run Headwater's workers by default, from its jar."""
    program = [sys.executable, cluster_state_program.__file__, spark_cluster.master, str(tmp_path)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert {client for _, _, client in rows} == {"headwater_workers.state_client"}
    assert sorted((key, total) for key, total, _ in rows) == sorted(
        (key, total) for key in range(20) for total in (1, 2)
    )


def test_workers_of_another_python_are_left_alone() -> None:
    """Workers of another Python may lack this package and use PySpark's daemon; those of a cluster get it with the jar."""
    setting = "spark.python.daemon.module"
    assert default_conf("local[2]")[setting] == HEADWATER_DAEMON
    assert setting not in default_conf("local[2]", own_python=False)
    assert setting not in default_conf("local[2]", own_jvm=False)
    assert default_conf("spark://127.0.0.1:7077")[setting] == "headwater_workers.daemon"
    assert setting not in default_conf("spark://127.0.0.1:7077", own_jvm=False)
    assert setting not in default_conf("yarn")
