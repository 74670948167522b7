"""The conversation of a Python worker with its JVM about custom state, with little waiting in it.

PySpark sends a message for every new key and for every read and change of a state variable, and waits for the answer each
time: the two processes put each other to sleep three or four times for a key. Spark answers in order. So here

- a change is sent, and its answer, which is only "done", is read before the next answer that somebody waits for. A
  change that failed is told then, at the end of the partition at the latest: before Spark commits anything.
- reads of single values are sent ahead for the keys to come, if the keys before them began with the same reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any

import pyspark.sql.streaming.proto.StateMessage_pb2 as messages
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import PickleSerializer, read_int
from pyspark.sql.streaming.list_state_client import ListStateClient
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Key = tuple[Any, ...]
Response = tuple[int, str, bytes]

DONE: Response = (0, "", b"")
VERSION_AND_LENGTH = Struct("!ii")
# What is on its way and unanswered fits into the socket's buffers: we never wait to write while Spark waits for us to read.
MOST_BYTES_UNANSWERED = 32_768
MOST_KEYS_AHEAD = 32
MOST_BYTES_AHEAD = 1_000_000
# Pickled as they are; numpy's and pandas' values have to be turned into these first.
PLAIN = frozenset({str, int, bool, float, bytes, type(None)})
plain_values = PickleSerializer()
# Where Python and Spark agree on which keys are the same, so that each comes once: not so for NaN, or for collations.
ONE_TO_BOTH = (IntegralType, BooleanType, BinaryType, DecimalType, DateType, TimestampType, TimestampNTZType)

# The keys of the rows in hand that were not begun yet, in order. A worker does one task at a time.
coming_keys: deque[Key] = deque()


class Unanswered:
    """A message whose answer was not read yet: a question, or a change, which has a name to complain with."""

    __slots__ = ("change", "response", "size")

    def __init__(self, size: int, change: str) -> None:
        self.size, self.change = size, change
        self.response: Response | None = None


def _marked(mark: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, with its name in ``mark`` of the conversation while it sends and receives."""

    def call(self: Any, *args: Any) -> Any:
        calls = self if isinstance(self, StateCalls) else self._stateful_processor_api_client
        setattr(calls, mark, method.__name__)
        try:
            return method(self, *args)
        finally:
            setattr(calls, mark, "")

    return call


_change = partial(_marked, "change_in_hand")
_read = partial(_marked, "read_in_hand")


class StateCalls(StatefulProcessorApiClient):
    """The worker's end of the conversation. PySpark's calls send a message and then receive its answer; both are ours."""

    register_timer = _change(StatefulProcessorApiClient.register_timer)
    delete_timer = _change(StatefulProcessorApiClient.delete_timer)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.change_in_hand = ""  # its answer is read later
        self.read_in_hand = ""  # of a single value: it may be sent ahead for the keys to come
        self._unanswered: deque[Unanswered] = deque()
        self._bytes_unanswered = 0
        self._largest_answer = 1
        self._untold_key: Key | None = None
        self._asked: dict[bytes, Unanswered] = {}
        self._asked_ahead: deque[tuple[Key, dict[bytes, Unanswered]]] = deque()
        self._reads_of_late: dict[bytes, None] = {}
        self._response: Response | None = None
        self._keys_come_once = all(_is_one_to_both(field.dataType) for field in self.key_schema)

    def set_implicit_key(self, key: Key) -> None:
        """Whose state the next calls are about. Spark is told when there is something to say."""
        self._untold_key = key
        self._asked = self._asked_for(key)
        if self._keys_come_once and coming_keys and self._reads_of_late:
            self._ask_ahead()

    def _asked_for(self, key: Key) -> dict[bytes, Unanswered]:
        while self._asked_ahead:
            asked_key, asked = self._asked_ahead.popleft()
            if asked_key is key:
                return asked
        while coming_keys and coming_keys.popleft() is not key:
            pass
        return {}

    def _ask_ahead(self) -> None:
        room = max(1, min(MOST_KEYS_AHEAD, MOST_BYTES_AHEAD // self._largest_answer))
        if len(self._asked_ahead) > room // 2:
            return
        reads, self._reads_of_late = self._reads_of_late, {}
        for _ in range(min(room - len(self._asked_ahead), len(coming_keys))):
            key = coming_keys.popleft()
            self._tell_key(key)
            self._asked_ahead.append((key, {read: self._write(read) for read in reads}))
        self.sockfile.flush()

    def _send_proto_message(self, message: bytes) -> None:
        if self.read_in_hand:
            self._reads_of_late[message] = None
        asked = self._asked.get(message)
        if asked is not None:
            if asked.response is None:
                self._read_answers(until=asked)
            self._response = asked.response
            return
        if self._untold_key is not None:
            key, self._untold_key = self._untold_key, None
            self._tell_key(key)
        if self.change_in_hand:
            self._asked = {}
            self._write(message, self.change_in_hand)
        else:
            self._make_room_for(message)
            self._write_bytes(message)
            self._read_answers()

    def _receive_proto_message(self) -> Response:
        if self.change_in_hand:
            return DONE
        if self._response is not None:
            response, self._response = self._response, None
            return response
        return self._read_response()

    def _tell_key(self, key: Key) -> None:
        told = messages.SetImplicitKey(key=self._serialize_to_bytes(self.key_schema, key))
        request = messages.ImplicitGroupingKeyRequest(setImplicitKey=told)
        self._write(messages.StateRequest(implicitGroupingKeyRequest=request).SerializeToString(), "set_implicit_key")

    def _write(self, message: bytes, change: str = "") -> Unanswered:
        self._make_room_for(message)
        self._write_bytes(message)
        self._bytes_unanswered += len(message)
        written = Unanswered(len(message), change)
        self._unanswered.append(written)
        return written

    def _make_room_for(self, message: bytes) -> None:
        if self._bytes_unanswered + len(message) > MOST_BYTES_UNANSWERED:
            self._read_answers()

    def _write_bytes(self, message: bytes) -> None:
        self.sockfile.write(VERSION_AND_LENGTH.pack(0, len(message)))
        self.sockfile.write(message)

    def _read_answers(self, until: Unanswered | None = None) -> None:
        if until is None:  # what was asked ahead is on its way already
            self.sockfile.flush()
        while self._unanswered:
            answered = self._unanswered.popleft()
            self._bytes_unanswered -= answered.size
            answered.response = status, complaint, value = self._read_response()
            if answered.change and status != 0:
                raise PySparkRuntimeError(f"Error in {answered.change} of custom state: {complaint}")
            self._largest_answer = max(self._largest_answer, len(value))
            if answered is until:
                return

    def _read_response(self) -> Response:
        length = read_int(self.sockfile)
        if length == 0:
            return DONE
        response = messages.StateResponse.FromString(self.sockfile.read(length))
        return response.statusCode, response.errorMessage, response.value

    def _serialize_to_bytes(self, schema: StructType, data: Any) -> bytes:
        if type(data) is tuple and not schema._needSerializeAnyField and PLAIN.issuperset(map(type, data)):
            return plain_values.dumps(data)
        return super()._serialize_to_bytes(schema, data)


def _is_one_to_both(kind: DataType) -> bool:
    return isinstance(kind, ONE_TO_BOTH) or kind == StringType()


class Values(ValueStateClient):
    """A single value of a key."""

    get = _read(ValueStateClient.get)
    exists = _read(ValueStateClient.exists)
    update = _change(ValueStateClient.update)
    clear = _change(ValueStateClient.clear)


class Lists(ListStateClient):
    """A list of a key."""

    append_value = _change(ListStateClient.append_value)
    append_list = _change(ListStateClient.append_list)
    put = _change(ListStateClient.put)
    clear = _change(ListStateClient.clear)


class Maps(MapStateClient):
    """A map of a key."""

    update_value = _change(MapStateClient.update_value)
    remove_key = _change(MapStateClient.remove_key)
    clear = _change(MapStateClient.clear)
