"""What the tests of the time machine share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from timemachine.twins import Twins


@pytest.fixture(autouse=True)
def _disk_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill processes, not machines: waiting for the disk thousands of times would only make them slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def twins(headwater_spark: SparkSession, tmp_path: Path) -> Callable[[str, str], Twins]:
    return lambda operator, store: Twins(headwater_spark, tmp_path, operator, store)
