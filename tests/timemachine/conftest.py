"""Fixtures of the time machine's tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from timemachine.stream_pairs import StreamPair


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: these tests kill processes, not machines, and syncing thousands of times would be slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def stream_pair(headwater_spark: SparkSession, tmp_path: Path) -> Callable[..., StreamPair]:
    """Return a function that creates two streams of an operator on a state store."""
    return lambda operator, store, *feeds: StreamPair(headwater_spark, tmp_path, operator, store, *feeds)
