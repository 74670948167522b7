"""The state variables of a processor, in place of PySpark's clients for them.

A variable of the current key is read once and as a whole, unless it is large, and kept as bytes. A processor that reads
it again, also after a change, sees what Spark would return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.types import Row, StructType

from headwater.spark.internals.workers.row_format import LENGTH, Values
from headwater.spark.internals.workers.state_client import StateClient

UPDATE, CLEAR, PUT, APPEND_LIST, APPEND_VALUE, UPDATE_VALUE, REMOVE_KEY, READ_ENTRY = (
    bytes([code]) for code in (2, 3, 4, 5, 6, 7, 8, 22)
)
INDEX = [bytes([number]) for number in range(128)]


def _is_exact(data: bytes) -> bool:
    """Return whether Spark returns these bytes for a row that was written as these bytes."""
    return data[0] == 1


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + LENGTH.unpack_from(data, at)[0]
    return data[start:end], end


class ValueState:
    """A value. The cache has its bytes, or None if there is none."""

    def __init__(self, client: StateClient, schema: StructType | str) -> None:  # noqa: ARG002
        self._client = client

    def _current(self, name: str) -> tuple[Any, bytes | None]:
        client = self._client
        variable, (rows,) = client.variables[name]
        cache = client.cache
        if variable not in cache:
            cache[variable] = client.read(variable) or None
        return rows, cache[variable]

    def exists(self, name: str) -> bool:
        return self._current(name)[1] is not None

    def get(self, name: str) -> Values | None:
        rows, data = self._current(name)
        return None if data is None else rows.decode(data)

    def update(self, name: str, value: Values) -> None:
        client = self._client
        variable, (rows,) = client.variables[name]
        data = rows.encode(value)
        client.change(UPDATE, INDEX[variable], data)
        if data[0]:
            client.cache[variable] = data
        else:
            client.forget(variable)

    def clear(self, name: str) -> None:
        variable, _ = self._client.variables[name]
        self._client.change(CLEAR, INDEX[variable])
        self._client.cache[variable] = None


class ListState:
    """A list. The cache has the bytes of its elements."""

    def __init__(self, client: StateClient, schema: StructType | str) -> None:  # noqa: ARG002
        self._client = client

    def _current(self, variable: int) -> list[bytes] | None:
        cache = self._client.cache
        if variable not in cache:
            section = self._client.read(variable)
            if section is None:
                return None
            cache[variable] = list(_split(section))
        elements: list[bytes] = cache[variable]
        return elements

    def exists(self, name: str) -> bool:
        return any(True for _ in self.elements(name))

    def elements(self, name: str) -> Iterator[Values]:
        variable, (rows,) = self._client.variables[name]
        known = self._current(variable)
        if known is None:
            return (rows.decode(data) for data in self._client.elements(variable, _sized))
        return map(rows.decode, tuple(known))

    def append_value(self, name: str, value: Values) -> None:
        variable, (rows,) = self._client.variables[name]
        data = rows.encode(value)
        self._client.change(APPEND_VALUE, INDEX[variable], data)
        self._extend(variable, [data])

    def append_list(self, name: str, values: Iterable[Values]) -> None:
        variable, (rows,) = self._client.variables[name]
        data = [rows.encode(value) for value in values]
        self._client.change(APPEND_LIST, INDEX[variable], LENGTH.pack(len(data)), *data)
        self._extend(variable, data)

    def _extend(self, variable: int, data: list[bytes]) -> None:
        # What was read ahead is from before the change.
        section = self._client.take_read_ahead(variable)
        if section is not None:
            self._client.cache[variable] = list(_split(section))
        elements = self._client.cache.get(variable)
        if elements is None:
            return
        if all(map(_is_exact, data)):
            elements += data
        else:
            self._client.forget(variable)

    def put(self, name: str, values: Iterable[Values]) -> None:
        variable, (rows,) = self._client.variables[name]
        data = [rows.encode(value) for value in values]
        self._client.change(PUT, INDEX[variable], LENGTH.pack(len(data)), *data)
        self._client.forget(variable)
        if all(map(_is_exact, data)):
            self._client.cache[variable] = data

    def clear(self, name: str) -> None:
        variable, _ = self._client.variables[name]
        self._client.change(CLEAR, INDEX[variable])
        self._client.forget(variable)
        self._client.cache[variable] = []


class KnownMap:
    """What is known of a map: some entries, with None for those that do not exist, or all, and perhaps their order."""

    __slots__ = ("entries", "is_complete", "is_ordered")

    def __init__(self, entries: dict[bytes, bytes | None], *, is_complete: bool) -> None:
        self.entries = entries
        self.is_complete = self.is_ordered = is_complete


class MapState:
    """A map. The cache has a ``KnownMap``, unless Spark and Python do not agree on which keys are equal."""

    def __init__(self, client: StateClient, key_schema: StructType | str, value_schema: StructType | str) -> None:  # noqa: ARG002
        self._client = client

    def _current(self, name: str) -> KnownMap:
        client = self._client
        variable, (keys, _) = client.variables[name]
        known: KnownMap | None = client.cache.get(variable)
        if known is None:
            section = client.read(variable) if keys.keeps_equality else None
            known = KnownMap({}, is_complete=False) if section is None else _known_map(section)
            client.cache[variable] = known
        return known

    def _known(self, variable: int) -> KnownMap | None:
        """Return what is known without reading anything, to apply a change to it."""
        section = self._client.take_read_ahead(variable)
        if section is not None:
            self._client.cache[variable] = _known_map(section)
        known: KnownMap | None = self._client.cache.get(variable)
        return known

    def _entry(self, name: str, key: Values) -> bytes | None:
        variable, (keys, _) = self._client.variables[name]
        data = keys.encode(key)
        known = self._current(name)
        is_comparable = keys.keeps_equality and _is_exact(data)
        if is_comparable and (known.is_complete or data in known.entries):
            return known.entries.get(data)
        response = self._client.ask(READ_ENTRY, INDEX[variable], data)
        value = response[4:] or None
        if is_comparable:
            known.entries[data] = value
        return value

    def exists(self, name: str) -> bool:
        known = self._current(name)
        return bool(known.entries) if known.is_complete else any(True for _ in self.elements(name))

    def get_value(self, name: str, key: Values) -> Row | None:
        data = self._entry(name, key)
        row: Row | None = None if data is None else self._client.variables[name][1][1].decode_row(data)
        return row

    def contains_key(self, name: str, key: Values) -> bool:
        return self._entry(name, key) is not None

    def update_value(self, name: str, key: Values, value: Values) -> None:
        variable, (keys, values) = self._client.variables[name]
        key_data, data = keys.encode(key), values.encode(value)
        self._client.change(UPDATE_VALUE, INDEX[variable], key_data, data)
        known = self._known(variable)
        if known is None:
            return
        if not (keys.keeps_equality and _is_exact(key_data) and _is_exact(data)):
            self._client.forget(variable)
            return
        if known.entries and key_data not in known.entries:
            known.is_ordered = False
        known.entries[key_data] = data

    def remove_key(self, name: str, key: Values) -> None:
        variable, (keys, _) = self._client.variables[name]
        key_data = keys.encode(key)
        self._client.change(REMOVE_KEY, INDEX[variable], key_data)
        known = self._known(variable)
        if known is None:
            return
        if not (keys.keeps_equality and _is_exact(key_data)):
            self._client.forget(variable)
        elif known.is_complete:
            known.entries.pop(key_data, None)
        else:
            known.entries[key_data] = None

    def clear(self, name: str) -> None:
        variable, _ = self._client.variables[name]
        self._client.change(CLEAR, INDEX[variable])
        self._client.forget(variable)
        self._client.cache[variable] = KnownMap({}, is_complete=True)

    def elements(self, name: str) -> Iterator[tuple[Values, Values]]:
        variable, (keys, values) = self._client.variables[name]
        known = self._current(name)
        if known.is_complete and not known.is_ordered:
            self._client.forget(variable)
            known = self._current(name)
        entries: Iterable[tuple[bytes, bytes | None]] = (
            tuple(known.entries.items()) if known.is_complete else self._client.elements(variable, _sized_pair)
        )
        for key, value in entries:
            assert value is not None
            yield keys.decode(key), values.decode(value)


def _known_map(section: bytes) -> KnownMap:
    data = list(_split(section))
    return KnownMap(dict(zip(data[::2], data[1::2], strict=True)), is_complete=True)


def _split(section: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(section):
        data, at = _sized(section, at)
        yield data


def _sized_pair(data: bytes, at: int) -> tuple[tuple[bytes, bytes], int]:
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    return (key, value), at


# In place of PySpark's iterators. As theirs, they read the state when the first element is asked for.


def list_elements(state: ListState, name: str) -> Iterator[Values]:
    yield from state.elements(name)


def map_entries(state: MapState, name: str) -> Iterator[tuple[Values, Values]]:
    yield from state.elements(name)


def map_keys_or_values(state: MapState, name: str, is_key: bool) -> Iterator[Values]:
    for key, value in state.elements(name):
        yield key if is_key else value
