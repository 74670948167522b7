"""The connection of a worker to the state server that ``headwater.state.StatePlugin`` has started in its executor.

A request consists of any number of changes and, if it asks for a response, a read at its end.
"""

from __future__ import annotations

import socket
from struct import Struct

from pyspark import TaskContext
from pyspark.errors import PySparkRuntimeError

from headwater.spark.internals.workers.row_format import LENGTH, sized_text

ADDRESS = "headwater.state.server"
FRAME = Struct("!iB")
TASK = Struct("!q")
MAX_UNSENT_BYTES = 32_768


class StateChannel:
    """Collects changes, and sends them when there are many or when a response is needed."""

    def __init__(self, address: str) -> None:
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(address)
        self._input = self._socket.makefile("rb", 65_536)

    def add(self, *call: bytes) -> None:
        """Send a change, later and together with others."""
        self._unsent += call
        self._unsent_bytes += sum(map(len, call))
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._send(is_answered=False)

    def ask(self, *call: bytes) -> bytes:
        """Send all changes and a read, and return the response."""
        self._unsent += call
        self._send(is_answered=True)
        (length,) = LENGTH.unpack(self._input.read(4))
        response = self._input.read(length)
        if response[0]:
            name, _, message = response[1:].decode().partition(": ")
            raise PySparkRuntimeError(f"Error in {name} of custom state: {message}")
        return response[1:]

    def _send(self, *, is_answered: bool) -> None:
        request = b"".join(self._unsent)
        self._socket.sendall(FRAME.pack(len(request) + 1, is_answered) + request)
        self._unsent.clear()
        self._unsent_bytes = 0

    def close(self) -> None:
        self._input.close()
        self._socket.close()


def connect(spark_server: int | str, key_description: bytes) -> StateChannel | None:
    """Connect to the state of this worker's task, which Spark's own server listens for at ``spark_server``.

    Return None if the executor has no state server, or if it cannot find the task's state.
    """
    task = TaskContext.get()
    address = task.getLocalProperty(ADDRESS) if task else None
    if task is None or address is None:
        return None
    try:
        channel = StateChannel(address)
    except OSError:
        return None
    try:
        channel.ask(TASK.pack(task.taskAttemptId()), sized_text(str(spark_server)), key_description)
    except (OSError, PySparkRuntimeError):
        channel.close()
        return None
    return channel
