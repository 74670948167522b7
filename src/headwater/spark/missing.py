"""Features of Headwater that the running Spark does not support: internals that make runs faster, or reports more precise."""

from __future__ import annotations

from weakref import WeakSet

from pyspark.sql import SparkSession

from headwater.spark.internals import file_manager, json_parser, memory_sink, query_end, watermarks, workers

_reported: WeakSet[SparkSession] = WeakSet()


def missing_internals(spark: SparkSession) -> list[str]:
    """Return what this Spark does not offer, as named in docs/limits.md; empty if a run uses all of Headwater."""
    found = {
        "Headwater's JSON parser": json_parser.probe(spark),
        "Headwater's Python workers": workers.probe(),
        "row batches in Python workers": workers.converts_rows() or not workers.probe(),
        "Headwater's file manager": file_manager.probe(spark),
        "a stop between two batches": query_end.probe(spark),
        "the last batch of a memory table": memory_sink.probe(spark),
        "watermarks by source": watermarks.probe(spark),
    }
    return [name for name, present in found.items() if not present]


def missing_internals_note(spark: SparkSession) -> str | None:
    """Return one line about what is missing, once for each session; None if nothing is."""
    if spark in _reported:
        return None
    _reported.add(spark)
    missing = missing_internals(spark)
    if not missing:
        return None
    *others, last = missing
    version = ".".join(spark.version.split(".")[:2])
    return f"note: PySpark {version}: running without {', '.join(others)}{' and ' if others else ''}{last}"
