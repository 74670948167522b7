"""Uses of Spark's private classes: each is documented and has a probe."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from headwater.spark import internals

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
    """Every probe succeeds on the installed Spark."""
    probe = module_of(name).probe
    assert probe(headwater_spark) if inspect.signature(probe).parameters else probe()
