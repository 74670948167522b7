"""Python that runs in Spark's worker processes, where custom state is read and written.

PySpark's workers wait for an answer to every read and change of a state variable. ``daemon`` replaces the classes that
do so in each forked worker; a ``StatefulProcessor`` sees no difference.

Seen on: PySpark 4.1.4, 4.2.0; on 4.3.0 without ``row_batches``, because its workers convert rows themselves.
Without it (``spark.python.daemon.module=pyspark.daemon``, PySpark 4.0, or a worker whose Python lacks Headwater):
PySpark's own workers run the same processors, at a third of the speed.
"""

from __future__ import annotations


def probe() -> bool:
    """Return whether PySpark has the calls that are replaced. Its 4.0 has custom state in pandas only."""
    from pyspark.sql import GroupedData  # noqa: PLC0415
    from pyspark.sql.streaming import stateful_processor  # noqa: PLC0415

    return hasattr(GroupedData, "transformWithState") and hasattr(stateful_processor, "ValueStateClient")


def probe_row_batches() -> bool:
    """Return whether a class outside of PySpark's worker converts the rows of a processor."""
    from pyspark.sql.pandas import serializers  # noqa: PLC0415

    return hasattr(serializers, "TransformWithStateInPySparkRowSerializer")
