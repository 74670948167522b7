"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os

from corpus_support import corpus

# Tests start many JVMs and let none live long enough for the optimising compiler to pay: 40 % less CPU without it.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

__all__ = ["corpus"]

pytest_plugins = ["broker_support", "postgres_support", "s3_support", "spark_cluster_support"]
