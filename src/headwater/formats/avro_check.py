"""Check that bytes are exactly one value of an Avro schema, before they are decoded.

``fastavro`` decodes some damaged records without an error: it accepts negative indexes of unions and enums, numbers of
any length and bytes after the record. It also follows recursive types on the C stack. A record that passes this check
has none of these, and its nesting is limited by Python's own recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.formats.confluent import read_long
from headwater.formats.schema import MalformedRecord

Skip: TypeAlias = Callable[[bytes, int], int]
"""Returns the position after a value, given the record and the value's position."""

# Values without bytes, such as nulls, could fill the memory from a record of ten bytes.
MAX_EMPTY_ITEMS = 100_000
INT_RANGE = range(-(1 << 31), 1 << 31)


def record_check(schema: Any, named: Mapping[str, Any]) -> Callable[[bytes, int], None]:
    """Return a function that raises ``MalformedRecord`` unless a record, from a position on, is one value of a schema.

    ``schema`` is parsed by ``fastavro``, and ``named`` are the named types that it refers to.
    """
    skip = _Checks(named).of(schema)

    def check(data: bytes, position: int) -> None:
        try:
            end = skip(data, position)
        except RecursionError:
            raise MalformedRecord("the record is nested too deeply") from None
        except IndexError:
            raise MalformedRecord("the record is truncated") from None
        if end != len(data):
            left = len(data) - end
            raise MalformedRecord("1 byte follows the record" if left == 1 else f"{left} bytes follow the record")

    return check


class _Checks:
    """Builds the functions for all types of a schema; a named type has one, however often it is used."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._built: dict[str, Skip] = {}

    def of(self, schema: Any) -> Skip:
        if isinstance(schema, list):
            return _union([self.of(branch) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.of(kind)
        if kind in SIMPLE_TYPES:
            return SIMPLE_TYPES[kind]
        match kind:
            case "array":
                return _blocks(self.of(schema["items"]), can_be_empty=self._is_empty(schema["items"], ()))
            case "map":
                values = self.of(schema["values"])
                return _blocks(lambda data, position: values(data, _sized(data, position)), can_be_empty=False)
            case "fixed":
                return _fixed(schema["size"])
            case "enum":
                return _enum(len(schema["symbols"]))
            case "record" | "error":
                return self._record(schema)
            case _:
                return self._reference(kind)

    def _record(self, schema: Mapping[str, Any]) -> Skip:
        name = schema["name"]
        if name not in self._built:
            fields: list[Skip] = []

            def skip_fields(data: bytes, position: int) -> int:
                for skip in fields:
                    position = skip(data, position)
                return position

            self._built[name] = skip_fields  # before its fields: one of them may refer to the record
            fields += [self.of(field["type"]) for field in schema["fields"]]
        return self._built[name]

    def _reference(self, name: str) -> Skip:
        if name in self._built:
            return self._built[name]
        if name not in self._named:
            raise MalformedRecord(f"the writer's schema uses an unknown type {name}")
        return self.of(self._named[name])

    def _is_empty(self, schema: Any, path: tuple[str, ...]) -> bool:
        """Return whether values of a type can take no bytes."""
        if isinstance(schema, list):
            return False
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self._is_empty(kind, path)
        if kind == "fixed":
            return bool(schema["size"] == 0)
        if kind in ("record", "error"):
            name = schema["name"]
            return name not in path and all(self._is_empty(one["type"], (*path, name)) for one in schema["fields"])
        return kind == "null" or (kind in self._named and self._is_empty(self._named[kind], path))


def _boolean(data: bytes, position: int) -> int:
    if position >= len(data) or data[position] > 1:
        raise MalformedRecord("a boolean is neither 0 nor 1")
    return position + 1


def _int(data: bytes, position: int) -> int:
    number, position = read_long(data, position)
    if number not in INT_RANGE:
        raise MalformedRecord(f"{number} is not an int of 32 bits")
    return position


def _sized(data: bytes, position: int) -> int:
    first = data[position]
    if first & 0x81:  # more than one byte, or negative
        size, position = read_long(data, position)
    else:
        size, position = first >> 1, position + 1
    if not 0 <= size <= len(data) - position:
        raise MalformedRecord(f"a value of {size} bytes, where {len(data) - position} are left")
    return position + size


def _fixed(size: int) -> Skip:
    def skip(data: bytes, position: int) -> int:
        if size > len(data) - position:
            raise MalformedRecord("the record is truncated")
        return position + size

    return skip


def _long(data: bytes, position: int) -> int:
    end = position
    while data[end] >= 0x80:
        end += 1
    # Only a number of ten bytes or more can have more than 64 bits.
    return end + 1 if end - position < 9 else read_long(data, position)[1]


SIMPLE_TYPES: dict[str, Skip] = {
    "null": _fixed(0),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _sized,
    "string": _sized,
}


def _enum(symbols: int) -> Skip:
    def skip(data: bytes, position: int) -> int:
        index, position = read_long(data, position)
        if not 0 <= index < symbols:
            raise MalformedRecord(f"an enum has no symbol {index}")
        return position

    return skip


def _union(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, position: int) -> int:
        first = data[position]
        if not first & 0x81 and first >> 1 < len(branches):
            return branches[first >> 1](data, position + 1)
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise MalformedRecord(f"a union has no branch {index}")
        return branches[index](data, position)

    return skip


def _blocks(item: Skip, *, can_be_empty: bool) -> Skip:
    def skip(data: bytes, position: int) -> int:
        empty_items = 0
        while True:
            count, position = read_long(data, position)
            if count == 0:
                return position
            if count < 0:
                count = -count
                _, position = read_long(data, position)  # the block's length in bytes
            if can_be_empty:
                empty_items += count
                if empty_items > MAX_EMPTY_ITEMS:
                    raise MalformedRecord(f"an array of {empty_items} values without bytes")
            for _ in range(count):
                position = item(data, position)

    return skip
