"""PySpark's daemon, which forks a worker for each task that runs Python: ``spark.python.daemon.module`` of our sessions.

The workers are PySpark's too. In each of them some classes give way to subclasses that wait less and copy less; what a
``StatefulProcessor`` sees is the same.
"""

from __future__ import annotations

import socket
from functools import cache

from pyspark import daemon


def with_faster_state(sock: socket.socket, authenticated: bool) -> int:
    """What a forked process does. Arrow starts threads when it is imported, and threads do not survive a fork."""
    import pyspark.worker  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415
    from pyspark.sql.streaming import stateful_processor  # noqa: PLC0415

    from headwater.spark.internals.workers import row_batches, state_calls  # noqa: PLC0415

    pyspark.worker.StatefulProcessorApiClient = state_calls.StateCalls
    pyspark.worker.TransformWithStateInPySparkRowSerializer = row_batches.RowBatches
    stateful_processor.ValueStateClient = state_calls.Values
    stateful_processor.ListStateClient = state_calls.Lists
    stateful_processor.MapStateClient = state_calls.Maps
    # Every value that comes from the state brings its schema along, as JSON.
    types._parse_datatype_json_string = cache(types._parse_datatype_json_string)
    return pysparks_worker(sock, authenticated)


if __name__ == "__main__":
    pysparks_worker, daemon.worker = daemon.worker, with_faster_state
    daemon.manager()
