"""PySpark's daemon, which forks a worker for each task that runs Python: the value of ``spark.python.daemon.module``.

Each worker is PySpark's own, with some classes replaced by subclasses that wait less and copy less.
"""

from __future__ import annotations

import socket
from functools import cache

from pyspark import daemon


def worker_with_faster_state(sock: socket.socket, authenticated: bool) -> int:
    """Replace the classes in a forked process, then run PySpark's worker.

    The imports are here because Arrow starts threads when it is imported, and threads do not survive a fork.
    """
    import pyspark.worker  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415
    from pyspark.sql.streaming import stateful_processor  # noqa: PLC0415

    from headwater.spark.internals.workers import probe_row_batches, state_calls  # noqa: PLC0415

    pyspark.worker.StatefulProcessorApiClient = state_calls.StateClient
    if probe_row_batches():
        from headwater.spark.internals.workers.row_batches import RowBatches  # noqa: PLC0415

        pyspark.worker.TransformWithStateInPySparkRowSerializer = RowBatches
    stateful_processor.ValueStateClient = state_calls.ValueState
    stateful_processor.ListStateClient = state_calls.ListState
    stateful_processor.MapStateClient = state_calls.MapState
    # Every value read from state comes with its schema as JSON.
    types._parse_datatype_json_string = cache(types._parse_datatype_json_string)
    return pyspark_worker(sock, authenticated)


if __name__ == "__main__":
    pyspark_worker, daemon.worker = daemon.worker, worker_with_faster_state
    daemon.manager()
