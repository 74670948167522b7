"""Custom state through our Python workers: the same answers as through PySpark's."""

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

PROGRAM = Path(__file__).with_name("custom_state_program.py")
OURS = default_conf("local[2]")["spark.python.daemon.module"]


def what_it_says(folder: Path, module: str) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, str(PROGRAM), str(folder), module]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=280).stdout)


def test_every_kind_of_state_and_key_gives_what_pyspark_gives(tmp_path: Path) -> None:
    """Values, lists, maps and timers; reads after changes, values of 200 kB, keys that are NaN, rows left unread."""
    with ThreadPoolExecutor() as both:
        running = {module: both.submit(what_it_says, tmp_path / module, module) for module in ("pyspark.daemon", OURS)}
    said = {module: future.result() for module, future in running.items()}
    assert said[OURS] == said["pyspark.daemon"]
    assert all(len(rows) > 50 for rows in said[OURS].values())
    assert "nan" in str(said[OURS]["ratio"])


def test_a_change_that_fails_fails_the_batch(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Its answer is read late, and yet before anything is committed."""

    class TwoForOne(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            self.total.update((1, 2))
            yield Row(value=key[0])

    rows = headwater_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    answers = rows.groupBy("value").transformWithState(TwoForOne(), "value BIGINT", "Update", "None")
    writer = answers.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="update of custom state"):
        query.awaitTermination()
    assert not list((tmp_path / "commits").glob("[0-9]*"))


def test_workers_of_another_python_are_left_alone() -> None:
    """They may not have this package; nor may the machines of a cluster."""
    assert "spark.python.daemon.module" not in default_conf("local[2]", own_python=False)
    assert "spark.python.daemon.module" not in default_conf("local[2]", own_jvm=False)
    assert "spark.python.daemon.module" not in default_conf("spark://127.0.0.1:7077")
