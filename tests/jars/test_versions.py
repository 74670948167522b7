"""The jars that belong to each PySpark."""

from __future__ import annotations

import importlib.metadata

import pytest

from headwater.core.errors import SetupProblem
from headwater.jars import versions


@pytest.mark.parametrize(
    ("installed", "connector"),
    [("4.0.5", "4.0.2"), ("4.1.4", "4.1.2"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0")],
)
def test_a_connector_that_can_be_fetched(monkeypatch: pytest.MonkeyPatch, installed: str, connector: str) -> None:
    """A newer patch of Spark gets the newest connector that the public repositories have for its version."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed)
    assert versions.kafka_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}"


@pytest.mark.parametrize("installed", ["3.5.9", "4.4.0", "5.0.0"])
def test_another_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    """Headwater has no jars for a PySpark on which it runs no jobs."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed)
    with pytest.raises(SetupProblem) as refused:
        versions.ivy_variables()
    assert refused.value.code == "pyspark-version"
    assert refused.value.evidence["installed"] == installed
