"""Custom state in Headwater's Python workers: the same results as in PySpark's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater.spark.session import default_conf
from versions_support import SPARK

PROGRAM = Path(__file__).with_name("custom_state_program.py")
HEADWATER_DAEMON = "headwater.spark.internals.workers.daemon"
pytestmark = pytest.mark.skipif(SPARK < (4, 1), reason="PySpark 4.1 introduced transformWithState on rows")


def output_of(folder: Path, module: str, keys: list[str]) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, str(PROGRAM), str(folder), module, *keys]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=280).stdout)


@pytest.mark.services
@pytest.mark.parametrize(
    "keys", [["text=200", "ratio=40"], pytest.param([], marks=pytest.mark.slow)], ids=["two", "all"]
)
def test_same_output_as_pyspark(tmp_path: Path, keys: list[str]) -> None:
    """Values, lists, maps, timers, reads after changes, values of 200 kB, NaN keys and unread rows work as in PySpark."""
    with ThreadPoolExecutor() as both:
        futures = {
            module: both.submit(output_of, tmp_path / module, module, keys)
            for module in ("pyspark.daemon", HEADWATER_DAEMON)
        }
    output = {module: future.result() for module, future in futures.items()}
    assert output[HEADWATER_DAEMON] == output["pyspark.daemon"]
    assert all(len(rows) > 50 for rows in output[HEADWATER_DAEMON].values())
    assert "nan" in str(output[HEADWATER_DAEMON]["ratio"])


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


def test_workers_of_another_python_are_left_alone() -> None:
    """Workers of another Python, and those of a cluster, may lack this package and use PySpark's daemon."""
    assert default_conf("local[2]")["spark.python.daemon.module"] == HEADWATER_DAEMON
    assert "spark.python.daemon.module" not in default_conf("local[2]", own_python=False)
    assert "spark.python.daemon.module" not in default_conf("local[2]", own_jvm=False)
    assert "spark.python.daemon.module" not in default_conf("spark://127.0.0.1:7077")
