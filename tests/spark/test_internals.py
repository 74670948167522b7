"""Uses of Spark's private classes: each is documented and has a probe."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.spark import internals
from headwater.spark.internals import json_parser, query_end
from headwater.spark.missing import missing_internals, missing_internals_note
from versions_support import SPARK

# The first PySpark that has what a module needs, if it is not 4.0.
SINCE = {"workers": (4, 1), "offline_repartition": (4, 2)}
MODULES = sorted(found.name for found in pkgutil.iter_modules(internals.__path__))


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"{internals.__name__}.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_each_use_is_documented(name: str) -> None:
    """The docstring names the tested Spark versions and what happens without the internals."""
    text = module_of(name).__doc__ or ""
    assert "Seen on: PySpark" in text
    assert "Without it" in text


@pytest.mark.parametrize("name", MODULES)
def test_this_spark_has_what_each_use_needs(name: str, headwater_spark: SparkSession) -> None:
    """Every probe succeeds on the installed Spark, except for what an older one is known to lack."""
    probe = module_of(name).probe
    found = probe(headwater_spark) if inspect.signature(probe).parameters else probe()
    assert found == (SINCE.get(name, (4, 0)) <= SPARK)


def test_a_run_names_what_it_goes_without(headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, once for each session; no line if nothing is missing."""
    session = headwater_spark.newSession()
    monkeypatch.setattr(json_parser, "probe", lambda spark: False)
    monkeypatch.setattr(query_end, "probe", lambda spark: False)
    line = missing_internals_note(session)
    assert line is not None
    assert line.startswith(f"note: PySpark {SPARK[0]}.{SPARK[1]}: running without Headwater's JSON parser")
    assert line.endswith(" and a stop between two batches")
    assert missing_internals_note(session) is None


@pytest.mark.skipif(SPARK[:2] != (4, 2), reason="this PySpark is known to lack some")
def test_nothing_is_missing(headwater_spark: SparkSession) -> None:
    """The PySpark that the tests run on has everything."""
    assert missing_internals(headwater_spark) == []


def test_a_parser_that_cannot_parse_is_not_used(headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe tries a record: a class that is present but does not work on this Spark counts as missing."""
    monkeypatch.setattr(json_parser, "_parses", {})
    monkeypatch.setattr(json_parser, "_parsed", lambda *_, **__: F.lit(None))
    assert not json_parser.probe(headwater_spark)
