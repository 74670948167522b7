"""A worker's client for custom state that rarely waits for the JVM.

For every new key and for every read or change of a state variable, PySpark sends a request and waits for the response.
For each key, the two processes wait for each other three or four times. Spark responds in order, so this client

- sends a change without waiting. Its response, which only confirms it, is read before the next response that is needed.
  A failed change raises then, at the end of the partition at the latest, which is before Spark commits anything.
- sends reads of single values ahead for the next keys, if the previous keys started with the same reads.
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
# Requests without a response fit into the socket's buffers: the worker never blocks on a write while Spark does, too.
MAX_UNANSWERED_BYTES = 32_768
MAX_PREFETCHED_KEYS = 32
MAX_PREFETCHED_BYTES = 1_000_000
# Values that are pickled as they are; those of numpy and pandas have to be converted first.
PLAIN_TYPES = frozenset({str, int, bool, float, bytes, type(None)})
plain_serializer = PickleSerializer()
# Types for which Python and Spark agree on equality, so that each key occurs once: not NaN, and not strings with collations.
COMPARABLE_TYPES = (IntegralType, BooleanType, BinaryType, DecimalType, DateType, TimestampType, TimestampNTZType)

# The keys of the current rows that the processor has not reached yet, in order. A worker runs one task at a time.
upcoming_keys: deque[Key] = deque()


class Request:
    """A request whose response has not been read yet. ``change`` names the call, for errors; empty for a read."""

    __slots__ = ("change", "response", "size")

    def __init__(self, size: int, change: str) -> None:
        self.size, self.change = size, change
        self.response: Response | None = None


def _named(attribute: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method; while it runs, the client's ``attribute`` holds its name."""

    def call(self: Any, *args: Any) -> Any:
        client = self if isinstance(self, StateClient) else self._stateful_processor_api_client
        setattr(client, attribute, method.__name__)
        try:
            return method(self, *args)
        finally:
            setattr(client, attribute, "")

    return call


_change = partial(_named, "current_change")
_read = partial(_named, "current_read")


class StateClient(StatefulProcessorApiClient):
    """PySpark's client with its own way to send a request and to receive the response."""

    register_timer = _change(StatefulProcessorApiClient.register_timer)
    delete_timer = _change(StatefulProcessorApiClient.delete_timer)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.current_change = ""  # its response is read later
        self.current_read = ""  # of a single value: it can be sent ahead for the next keys
        self._unanswered: deque[Request] = deque()
        self._unanswered_bytes = 0
        self._largest_response = 1
        self._unsent_key: Key | None = None
        self._requested: dict[bytes, Request] = {}
        self._prefetched: deque[tuple[Key, dict[bytes, Request]]] = deque()
        self._recent_reads: dict[bytes, None] = {}
        self._response: Response | None = None
        self._keys_are_unique = all(_is_comparable(field.dataType) for field in self.key_schema)

    def set_implicit_key(self, key: Key) -> None:
        """Set the key of the next calls. Spark receives it with the first of them."""
        self._unsent_key = key
        self._requested = self._prefetched_for(key)
        if self._keys_are_unique and upcoming_keys and self._recent_reads:
            self._prefetch()

    def _prefetched_for(self, key: Key) -> dict[bytes, Request]:
        while self._prefetched:
            prefetched_key, requests = self._prefetched.popleft()
            if prefetched_key is key:
                return requests
        while upcoming_keys and upcoming_keys.popleft() is not key:
            pass
        return {}

    def _prefetch(self) -> None:
        limit = max(1, min(MAX_PREFETCHED_KEYS, MAX_PREFETCHED_BYTES // self._largest_response))
        if len(self._prefetched) > limit // 2:
            return
        reads, self._recent_reads = self._recent_reads, {}
        for _ in range(min(limit - len(self._prefetched), len(upcoming_keys))):
            key = upcoming_keys.popleft()
            self._send_key(key)
            self._prefetched.append((key, {read: self._send(read) for read in reads}))
        self.sockfile.flush()

    def _send_proto_message(self, message: bytes) -> None:
        if self.current_read:
            self._recent_reads[message] = None
        request = self._requested.get(message)
        if request is not None:
            if request.response is None:
                self._read_responses(until=request)
            self._response = request.response
            return
        if self._unsent_key is not None:
            key, self._unsent_key = self._unsent_key, None
            self._send_key(key)
        if self.current_change:
            self._requested = {}
            self._send(message, self.current_change)
        else:
            self._make_room_for(message)
            self._write(message)
            self._read_responses()

    def _receive_proto_message(self) -> Response:
        if self.current_change:
            return DONE
        if self._response is not None:
            response, self._response = self._response, None
            return response
        return self._read_response()

    def _send_key(self, key: Key) -> None:
        set_key = messages.SetImplicitKey(key=self._serialize_to_bytes(self.key_schema, key))
        request = messages.ImplicitGroupingKeyRequest(setImplicitKey=set_key)
        self._send(messages.StateRequest(implicitGroupingKeyRequest=request).SerializeToString(), "set_implicit_key")

    def _send(self, message: bytes, change: str = "") -> Request:
        self._make_room_for(message)
        self._write(message)
        self._unanswered_bytes += len(message)
        request = Request(len(message), change)
        self._unanswered.append(request)
        return request

    def _make_room_for(self, message: bytes) -> None:
        if self._unanswered_bytes + len(message) > MAX_UNANSWERED_BYTES:
            self._read_responses()

    def _write(self, message: bytes) -> None:
        self.sockfile.write(VERSION_AND_LENGTH.pack(0, len(message)))
        self.sockfile.write(message)

    def _read_responses(self, until: Request | None = None) -> None:
        if until is None:  # prefetched requests have been flushed already
            self.sockfile.flush()
        while self._unanswered:
            request = self._unanswered.popleft()
            self._unanswered_bytes -= request.size
            request.response = status, error, value = self._read_response()
            if request.change and status != 0:
                raise PySparkRuntimeError(f"Error in {request.change} of custom state: {error}")
            self._largest_response = max(self._largest_response, len(value))
            if request is until:
                return

    def _read_response(self) -> Response:
        length = read_int(self.sockfile)
        if length == 0:
            return DONE
        response = messages.StateResponse.FromString(self.sockfile.read(length))
        return response.statusCode, response.errorMessage, response.value

    def _serialize_to_bytes(self, schema: StructType, data: Any) -> bytes:
        if type(data) is tuple and not schema._needSerializeAnyField and PLAIN_TYPES.issuperset(map(type, data)):
            return plain_serializer.dumps(data)
        return super()._serialize_to_bytes(schema, data)


def _is_comparable(data_type: DataType) -> bool:
    return isinstance(data_type, COMPARABLE_TYPES) or data_type == StringType()


class ValueState(ValueStateClient):
    """PySpark's client for a value, with its reads and changes named."""

    get = _read(ValueStateClient.get)
    exists = _read(ValueStateClient.exists)
    update = _change(ValueStateClient.update)
    clear = _change(ValueStateClient.clear)


class ListState(ListStateClient):
    """PySpark's client for a list, with its changes named."""

    append_value = _change(ListStateClient.append_value)
    append_list = _change(ListStateClient.append_list)
    put = _change(ListStateClient.put)
    clear = _change(ListStateClient.clear)


class MapState(MapStateClient):
    """PySpark's client for a map, with its changes named."""

    update_value = _change(MapStateClient.update_value)
    remove_key = _change(MapStateClient.remove_key)
    clear = _change(MapStateClient.clear)
