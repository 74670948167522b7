"""A worker's client for custom state that exchanges the state of many keys at a time with ``headwater.state`` in the JVM.

For every new key and for every read or change of a state variable, PySpark sends a request and waits for the response.
This client

- keeps what it has read or changed of the current key, and answers from it,
- collects changes and sends them without waiting. A failed change is reported by the next response, at the end of the
  partition at the latest, which is before Spark commits anything.
- reads the variables of the next keys ahead that the previous keys have read.

Definitions of variables, schemas, times and the processor's life cycle remain with Spark's own state server.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from struct import Struct
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorApiClient,
    StatefulProcessorHandleState,
)
from pyspark.sql.types import Row, StructType

from headwater.spark.internals.workers.row_format import LENGTH, RowFormat, sized_text
from headwater.spark.internals.workers.state_channel import StateChannel

Key = tuple[Any, ...]

TIMER = Struct("!Bq")
EXPIRED = Struct("!Bqi")
EXPIRY = Struct("!q")
NEXT_ELEMENTS = Struct("!BBi")

SET_KEY, REGISTER_TIMER, DELETE_TIMER = b"\1", 9, 10
SYNC, READ, EXPIRED_CALL, PREFETCH, DEFINE, DELETE_IF_EXISTS = b"\x14", b"\x15", 24, b"\x19", b"\x1a", b"\x1b"
NEXT_CALL = 23
TIMERS = 0  # the timers of a key are the first variable

MAX_PREFETCHED_KEYS = 500
EXPIRED_TIMERS = 500

# The keys of the current rows that the processor has not reached yet, in order. A worker runs one task at a time.
upcoming_keys: deque[Key] = deque()


class StateClient(StatefulProcessorApiClient):
    """PySpark's client, with the calls of a running processor sent to Headwater's state server."""

    def __init__(self, state_server_port: int | str, key_schema: StructType, channel: StateChannel) -> None:
        super().__init__(state_server_port, key_schema)
        self._channel = channel
        self.keys = self.row_format(key_schema)
        self.variables: dict[str, tuple[int, tuple[RowFormat, ...]]] = {}
        self.cache: dict[int, Any] = {}  # what is known of the current key, by variable
        self._sections: dict[int, bytes | None] = {}  # read ahead for the current key, not yet decoded
        self._count = 1
        self._key = b""
        self._key_is_sent = True
        self._prefetched: deque[tuple[Key, bytes, dict[int, bytes | None]]] = deque()
        self._recent_reads: set[int] = set()
        self._large: set[int] = set()  # variables that for most keys are too large to be read ahead
        self._iterators = 0
        self._schemas: dict[str, StructType] = {}
        self._timestamps: tuple[int, int] | None = None

    def row_format(self, schema: StructType) -> RowFormat:
        return RowFormat(schema, self._serialize_to_bytes, self._deserialize_from_bytes)

    # requests

    def change(self, *call: bytes) -> None:
        """Send a change of the current key, later and together with others."""
        if not self._key_is_sent:
            self._key_is_sent = True
            self._channel.add(SET_KEY, self._key)
        self._channel.add(*call)

    def ask(self, *call: bytes) -> bytes:
        """Send a read of the current key and return the response."""
        if not self._key_is_sent:
            self._key_is_sent = True
            self._channel.add(SET_KEY, self._key)
        return self._channel.ask(*call)

    def synchronize(self) -> None:
        """Wait until all changes are carried out."""
        self.ask(SYNC)

    # keys

    def set_implicit_key(self, key: Key) -> None:
        """Set the key of the next calls. The server receives it with the first of them that it has to carry out."""
        self.cache = {}
        self._key_is_sent = False
        prefetched = self._prefetched
        if not _advance(prefetched, key, itemgetter(0)):
            if _advance(upcoming_keys, key, None) and self._recent_reads and self.keys.keeps_equality:
                self._prefetch()
            else:
                self._key, self._sections = self.keys.encode(key), {}
                return
        _, self._key, self._sections = prefetched.popleft()

    def _prefetch(self) -> None:
        """Read the recently read variables of the next keys, the one that was just set included."""
        reads, self._recent_reads = sorted(self._recent_reads), set()
        keys = [upcoming_keys.popleft() for _ in range(min(MAX_PREFETCHED_KEYS, len(upcoming_keys)))]
        encoded = [self.keys.encode(key) for key in keys]
        response = self._channel.ask(PREFETCH, bytes([len(reads), *reads]), *encoded)
        at = count = 0
        large: Counter[int] = Counter()
        while at < len(response):
            sections: dict[int, bytes | None] = {}
            for variable in reads:
                (length,) = LENGTH.unpack_from(response, at)
                start = at + 4
                at = start + max(length, 0)
                sections[variable] = response[start:at] if length >= 0 else None
                large[variable] += length < 0
            self._prefetched.append((keys[count], encoded[count], sections))
            count += 1
        upcoming_keys.extendleft(reversed(keys[count:]))
        self._large.update(variable for variable, found in large.items() if found > count // 2)

    def read(self, variable: int) -> bytes | None:
        """Return everything that a variable holds for the current key, or None if that is too much."""
        if variable in self._large:
            return self._sections.pop(variable, None)
        self._recent_reads.add(variable)
        if variable in self._sections:
            return self._sections.pop(variable)
        response = self.ask(READ, bytes([variable]))
        return None if LENGTH.unpack_from(response)[0] < 0 else response[4:]

    def take_read_ahead(self, variable: int) -> bytes | None:
        """Return what was read ahead of a variable, before it is changed."""
        return self._sections.pop(variable, None)

    def forget(self, variable: int) -> None:
        """Read the variable again when it is needed: it was changed in a way that only Spark can tell."""
        self.cache.pop(variable, None)
        self._sections.pop(variable, None)

    def elements(self, variable: int, decode: Callable[[bytes, int], tuple[Any, int]]) -> Iterator[Any]:
        """Yield the elements of a large variable."""
        self._iterators += 1
        number = self._iterators
        has_more = True
        while has_more:
            response = self.ask(NEXT_ELEMENTS.pack(NEXT_CALL, variable, number))
            at = 0
            while response[at] == 1:
                element, at = decode(response, at + 1)
                yield element
            has_more = response[at] == 2

    def remove_implicit_key(self) -> None:
        """End the processing of keys."""
        self.synchronize()
        super().remove_implicit_key()

    def set_handle_state(self, state: StatefulProcessorHandleState) -> None:
        """Start the next part of the processor's life cycle, after all changes are carried out."""
        self.synchronize()
        super().set_handle_state(state)

    # variables

    def get_value_state(self, state_name: str, schema: StructType | str, ttl_duration_ms: int | None) -> None:
        """Define a value."""
        self._define("value", state_name, [schema], ttl_duration_ms)

    def get_list_state(self, state_name: str, schema: StructType | str, ttl_duration_ms: int | None) -> None:
        """Define a list."""
        self._define("list", state_name, [schema], ttl_duration_ms)

    def get_map_state(
        self,
        state_name: str,
        user_key_schema: StructType | str,
        value_schema: StructType | str,
        ttl_duration_ms: int | None,
    ) -> None:
        """Define a map."""
        self._define("map", state_name, [user_key_schema, value_schema], ttl_duration_ms)

    def _define(self, kind: str, name: str, schemas: list[StructType | str], time_to_live: int | None) -> None:
        if name in self.variables:
            raise PySparkRuntimeError(
                f"Error initializing {kind} state: {kind.capitalize()} state {name} already exists"
            )
        formats = tuple(
            self.row_format(self._parse_string_schema(schema) if isinstance(schema, str) else schema)
            for schema in schemas
        )
        expiry = EXPIRY.pack(-1 if time_to_live is None else time_to_live)
        descriptions = (one.description() for one in formats)
        try:
            self._channel.ask(DEFINE, kind[0].encode(), sized_text(name), expiry, *descriptions)
        except PySparkRuntimeError as error:
            message = str(error).partition(": ")[2]
            raise PySparkRuntimeError(f"Error initializing {kind} state: {message}") from None
        self.variables[name] = self._count, formats
        self._count += 1

    def delete_if_exists(self, state_name: str) -> None:
        """Delete a variable with the state of all keys."""
        self._channel.ask(DELETE_IF_EXISTS, sized_text(state_name))
        self.variables.pop(state_name, None)

    def _parse_string_schema(self, schema: str) -> StructType:
        if schema not in self._schemas:
            self._schemas[schema] = super()._parse_string_schema(schema)
        return self._schemas[schema]

    # times

    def get_timestamps(self, time_mode: str) -> tuple[int, int]:
        """Return the time of the batch and its watermark. PySpark asks again for each key while one is unknown."""
        if self._timestamps is None:
            self._timestamps = super().get_timestamps(time_mode)
        return self._timestamps

    def register_timer(self, expiry_time_stamp_ms: int) -> None:
        """Set a timer of the current key."""
        self.change(TIMER.pack(REGISTER_TIMER, expiry_time_stamp_ms))
        timers = self._timers_in_cache()
        if timers and expiry_time_stamp_ms not in timers:
            self.forget(TIMERS)  # only Spark knows the order
        elif timers is not None and not timers:
            self.cache[TIMERS] = [expiry_time_stamp_ms]

    def delete_timer(self, expiry_time_stamp_ms: int) -> None:
        """Delete a timer of the current key."""
        self.change(TIMER.pack(DELETE_TIMER, expiry_time_stamp_ms))
        if timers := self._timers_in_cache():
            self.cache[TIMERS] = [one for one in timers if one != expiry_time_stamp_ms]

    def _timers_in_cache(self) -> list[int] | None:
        if TIMERS not in self.cache and TIMERS in self._sections:
            section = self._sections.pop(TIMERS)
            self.cache[TIMERS] = None if section is None else [time for (time,) in EXPIRY.iter_unpack(section)]
        timers: list[int] | None = self.cache.get(TIMERS)
        return timers

    def timers(self) -> Iterator[int]:
        """Yield the timers of the current key."""
        timers = self._timers_in_cache()
        if timers is None:
            section = self.read(TIMERS)
            if section is None:
                yield from self.elements(TIMERS, lambda data, at: (EXPIRY.unpack_from(data, at)[0], at + EXPIRY.size))
                return
            timers = self.cache[TIMERS] = [time for (time,) in EXPIRY.iter_unpack(section)]
        else:
            self._recent_reads.add(TIMERS)
        yield from timers

    def expired_timers(self, expiry_timestamp: int) -> Iterator[tuple[Row, int]]:
        """Yield the expired timers of all keys."""
        while True:
            response = self._channel.ask(EXPIRED.pack(EXPIRED_CALL, expiry_timestamp, EXPIRED_TIMERS))
            if not response:
                return
            timers = list(self._decode_expired(response))
            # A key may have several expired timers: what is read for the second one depends on what the first one does.
            first: dict[bytes, Row] = {}
            for data, key, _ in timers:
                first.setdefault(data, key)
            upcoming_keys.clear()
            upcoming_keys.extend(first.values())
            for _, key, time in timers:
                yield key, time

    def _decode_expired(self, response: bytes) -> Iterator[tuple[bytes, Row, int]]:
        at = 0
        while at < len(response):
            (time,) = EXPIRY.unpack_from(response, at)
            start = at + EXPIRY.size + 4
            at = start + LENGTH.unpack_from(response, at + EXPIRY.size)[0]
            data = response[start:at]
            yield data, self.keys.decode_row(data), time


def _advance(entries: deque[Any], key: Key, key_of: Callable[[Any], Key] | None) -> bool:
    """Return whether the entry of this very key is found, and drop those before it."""
    for at, entry in enumerate(entries):
        if (key_of(entry) if key_of else entry) is key:
            for _ in range(at):
                entries.popleft()
            return True
    return False


class ExpiredTimers:
    """Iterates over the expired timers of all keys, in place of PySpark's class."""

    def __init__(self, client: StateClient, expiry_timestamp: int) -> None:
        self._timers = client.expired_timers(expiry_timestamp)

    def __iter__(self) -> Iterator[tuple[Row, int]]:
        return self._timers
