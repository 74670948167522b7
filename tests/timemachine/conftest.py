"""Fixtures of the time machine's tests."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from timemachine.stream_pairs import StreamPair
from versions_support import SPARK

if SPARK < (4, 0):
    # Headwater does not run jobs on this one. It rewinds what plain programs wrote.
    @pytest.fixture(scope="session")
    def headwater_spark(
        tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
    ) -> Iterator[SparkSession]:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["TZ"] = "UTC"
        time.tzset()
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            **dict(line.split("=", 1) for line in pytestconfig.getini("headwater_conf")),
            "spark.jars": os.environ.get("MATRIX_KAFKA_JARS", ""),
        }
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
        spark.stop()


@pytest.fixture
def stream_pair(headwater_spark: SparkSession, tmp_path: Path) -> Callable[..., StreamPair]:
    """Return a function that creates two streams of an operator on a state store."""
    return lambda operator, store, *feeds: StreamPair(headwater_spark, tmp_path, operator, store, *feeds)
