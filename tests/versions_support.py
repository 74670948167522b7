"""Tests on other versions of PySpark than the one that `make test` uses: what a version lacks is skipped, by name."""

from __future__ import annotations

from importlib.metadata import version

from headwater.core.errors import HeadwaterError

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
