"""Tests on other versions of PySpark than the one that `make test` uses: what a version lacks is skipped, by name."""

from __future__ import annotations

from importlib.metadata import version

from headwater.core.errors import HeadwaterError

# How a query fails in the connector of Spark 4.1, after the first batch of a start that an earlier one had planned.
NO_LATEST_OFFSETS = 'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)"'
INSTALLED = version("pyspark")
SPARK = tuple(int(part) for part in INSTALLED.split(".")[:2])
# On this one and on newer ones a refusal is a failure.
COMPLETE = (4, 2)
MISSING_BEFORE = {
    "transformWithState": "PySpark 4.1 introduced transformWithState on rows",
    "transformWithStateInPandas": "PySpark 4.0 introduced transformWithStateInPandas",
}


def lacking(error: BaseException) -> str | None:
    """Return why a test cannot run on this PySpark, if its error says so; None for any other error."""
    if isinstance(error, HeadwaterError) and error.code == "no-delta" and SPARK > COMPLETE:
        return error.problem
    if SPARK >= COMPLETE:
        return None
    if isinstance(error, HeadwaterError) and error.code == "pyspark-version":
        return error.problem
    if isinstance(error, ImportError) and "StatefulProcessor" in str(error):
        return "PySpark 4.0 introduced StatefulProcessor"
    return MISSING_BEFORE.get(error.name or "") if isinstance(error, AttributeError) else None


def fails_after_commit(error: BaseException | None) -> bool:
    """Return whether a query on Kafka has committed the batch that it ran again, and then met a bug of Spark 4.1."""
    return SPARK == (4, 1) and NO_LATEST_OFFSETS in str(error)
