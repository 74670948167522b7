"""Python that runs in Spark's worker processes, where custom state is read and written.

PySpark's workers wait for an answer to every read and change of a state variable, and convert rows cell by cell.
``daemon`` replaces the classes that do so in each forked worker, and ``headwater.state.StatePlugin`` in the jar starts a
server in each executor for the state of many keys at a time. A ``StatefulProcessor`` sees no difference. The server
finds a task's state in Spark's runner for the worker, among the listeners that wait for the end of the task.

Seen on: PySpark 4.1.4, 4.2.0, 4.2.1, 4.3.0 (with ``row_function`` in place of ``row_batches``).
Without it (``spark.python.daemon.module=pyspark.daemon``, PySpark 4.0, workers of another Python, or an executor that
cannot create a socket file): PySpark's own workers run the same processors, at a third of the speed or less.
"""

from __future__ import annotations

from pathlib import Path

PLUGIN = "headwater.state.StatePlugin"
LOCAL_SETTINGS = {"spark.python.daemon.module": "headwater.spark.internals.workers.daemon", "spark.plugins": PLUGIN}
# The jar has the same modules, in a package of its own. An executor fetches it into its working folder.
CLUSTER_SETTINGS = {"spark.python.daemon.module": "headwater_workers.daemon", "spark.plugins": PLUGIN}


def python_path_on_executors(jar: Path) -> dict[str, str]:
    """Return the environment in which executors start ``headwater_workers.daemon``."""
    return {"PYTHONPATH": jar.name}


def probe() -> bool:
    """Return whether PySpark has the calls that are replaced. Its 4.0 has custom state in pandas only."""
    from pyspark.sql import GroupedData  # noqa: PLC0415
    from pyspark.sql.streaming import stateful_processor  # noqa: PLC0415

    return hasattr(GroupedData, "transformWithState") and hasattr(stateful_processor, "ValueStateClient")


def probe_row_batches() -> bool:
    """Return whether a class outside of PySpark's worker converts the rows of a processor."""
    from pyspark.sql.pandas import serializers  # noqa: PLC0415

    return hasattr(serializers, "TransformWithStateInPySparkRowSerializer")


def probe_row_function() -> bool:
    """Return whether PySpark's worker converts rows itself, from Arrow batches to Arrow batches."""
    from pyspark.sql import conversion  # noqa: PLC0415

    return hasattr(conversion, "ArrowBatchTransformer") and not probe_row_batches()


def converts_rows() -> bool:
    """Return whether rows can be converted in batches of many keys, in either of the two ways."""
    return probe_row_batches() or probe_row_function()
