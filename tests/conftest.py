"""Fixtures that tests of several packages share."""

from __future__ import annotations

from corpus_support import corpus

__all__ = ["corpus"]

pytest_plugins = ["broker_support", "postgres_support", "s3_support", "spark_cluster_support"]
