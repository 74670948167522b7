"""The jars that belong to each PySpark."""

from __future__ import annotations

import importlib.metadata

import pytest

from headwater.core.errors import SetupProblem
from headwater.jars import versions
from headwater.jars.versions import ivy_variables, maven_coordinates, require_table_format


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


@pytest.mark.parametrize(
    ("spark", "delta", "iceberg"),
    [
        ("4.0", "io.delta:delta-spark_4.0_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"),
        ("4.1", "io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
        ("4.2", "io.delta:delta-spark_4.2_2.13:4.4.0", None),
        ("4.3", None, None),
    ],
)
def test_table_formats(monkeypatch: pytest.MonkeyPatch, spark: str, delta: str | None, iceberg: str | None) -> None:
    """A table format is refused by name on a Spark that it has no release for."""
    monkeypatch.setattr(versions, "spark_version", lambda: spark)
    for name, coordinates in (("delta", delta), ("iceberg", iceberg)):
        if coordinates is None:
            with pytest.raises(SetupProblem, match=f"{name.title()} has no release for PySpark {spark}") as refused:
                require_table_format(name)
            assert refused.value.code == f"no-{name}"
            assert name not in ivy_variables()
        else:
            require_table_format(name)
            assert maven_coordinates(name) == coordinates
            assert ivy_variables()[name] == coordinates.rpartition(":")[2]


def test_other_jars_have_no_format() -> None:
    """Jars that are no table format are never refused."""
    require_table_format("spark")
