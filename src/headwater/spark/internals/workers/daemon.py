"""PySpark's daemon, which forks a worker for each task that runs Python: the value of ``spark.python.daemon.module``.

Each worker is PySpark's own, with some classes replaced by others that wait less and copy less.
"""

from __future__ import annotations

import socket
from typing import Any

from pyspark import daemon


def worker_with_faster_state(sock: socket.socket, authenticated: bool) -> int:
    """Replace the classes in a forked process, then run PySpark's worker.

    The imports are here because Arrow starts threads when it is imported, and threads do not survive a fork.
    """
    import pyspark.worker  # noqa: PLC0415

    from headwater.spark.internals.workers import probe_row_batches, probe_row_function  # noqa: PLC0415

    pyspark.worker.StatefulProcessorApiClient = connect_to_state
    if probe_row_batches():
        from headwater.spark.internals.workers.row_batches import RowBatches  # noqa: PLC0415

        pyspark.worker.TransformWithStateInPySparkRowSerializer = RowBatches
    elif probe_row_function():
        from headwater.spark.internals.workers.row_function import with_row_batches  # noqa: PLC0415

        pyspark.worker.read_udfs = with_row_batches(pyspark.worker.read_udfs)
    return pyspark_worker(sock, authenticated)


def connect_to_state(state_server_port: int | str, key_schema: Any) -> Any:
    """Return a client for this task's state: Headwater's, or PySpark's own if the executor lacks Headwater's server."""
    from pyspark.sql.streaming import stateful_processor, stateful_processor_util  # noqa: PLC0415
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient  # noqa: PLC0415

    from headwater.spark.internals.workers import state_variables  # noqa: PLC0415
    from headwater.spark.internals.workers.row_format import describe  # noqa: PLC0415
    from headwater.spark.internals.workers.state_channel import connect  # noqa: PLC0415
    from headwater.spark.internals.workers.state_client import ExpiredTimers, StateClient  # noqa: PLC0415

    # First, because Spark's own server accepts a single client.
    channel = connect(state_server_port, describe(key_schema))
    if channel is None:
        return StatefulProcessorApiClient(state_server_port, key_schema)
    client = StateClient(state_server_port, key_schema, channel)
    stateful_processor.ValueStateClient = state_variables.ValueState
    stateful_processor.ListStateClient = state_variables.ListState
    stateful_processor.MapStateClient = state_variables.MapState
    stateful_processor.ListStateIterator = state_variables.list_elements
    stateful_processor.MapStateIterator = state_variables.map_keys_or_values
    stateful_processor.MapStateKeyValuePairIterator = state_variables.map_entries
    stateful_processor.ListTimerIterator = StateClient.timers
    stateful_processor_util.ExpiredTimerIterator = ExpiredTimers
    return client


if __name__ == "__main__":
    pyspark_worker, daemon.worker = daemon.worker, worker_with_faster_state
    daemon.manager()
