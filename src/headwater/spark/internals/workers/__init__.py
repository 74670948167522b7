"""Python that runs in Spark's worker processes, where custom state is read and written.

PySpark's workers wait for an answer to every read and change of a state variable. ``daemon`` replaces the classes that
do so in each forked worker; a ``StatefulProcessor`` sees no difference.

Seen on: PySpark 4.2.0.
Without it (``spark.python.daemon.module=pyspark.daemon``, or a worker whose Python lacks Headwater): PySpark's own
workers run the same processors, at a third of the speed.
"""

from __future__ import annotations


def probe() -> bool:
    from pyspark import worker  # noqa: PLC0415
    from pyspark.sql.streaming import stateful_processor  # noqa: PLC0415

    return (
        hasattr(worker, "StatefulProcessorApiClient")
        and hasattr(worker, "TransformWithStateInPySparkRowSerializer")
        and hasattr(stateful_processor, "ValueStateClient")
    )
