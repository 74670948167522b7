"""A checkpoint's state as rows, for assertions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def state_rows(spark: SparkSession, checkpoint: Path) -> list[dict[str, Any]]:
    raise NotImplementedError
