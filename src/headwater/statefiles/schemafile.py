"""The schema files of a checkpoint, which describe the keys and values of its stores.

Version 1 consists of two Java UTF strings, version 2 of strings in chunks. Version 3 (custom state and newer joins) has
one entry per column family, which includes the encoding of its keys.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from headwater.core.ids import DEFAULT_STORE
from headwater.statefiles.refusals import corrupt_state, unknown_format
from headwater.statefiles.sqltypes import Struct, UnknownType, parse_struct

KeyLayout = Literal["row", "prefix", "range", "timestamp-first", "timestamp-last"]

_LAYOUTS: dict[str, KeyLayout] = {
    "NoPrefixKeyStateEncoderSpec": "row",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPrefixKeyStateEncoderSpec": "timestamp-first",
    "TimestampAsPostfixKeyStateEncoderSpec": "timestamp-last",
}


@dataclass(frozen=True)
class KeyEncoding:
    """The layout of a key in bytes; ``columns`` are those stored first, in their order."""

    layout: KeyLayout
    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class FamilySchema:
    """The schema of a column family, or of an entire store, whose family is then ``default``."""

    path: str
    name: str
    key_json: str
    value_json: str
    encoding: KeyEncoding = KeyEncoding("row")
    key_schema_id: int = 0
    value_schema_id: int = 0

    @cached_property
    def key(self) -> Struct:
        return self._parsed(self.key_json)

    @cached_property
    def value(self) -> Struct:
        return self._parsed(self.value_json)

    @cached_property
    def required_key_fields(self) -> frozenset[int]:
        """The numbers of the key's fields that are never null, such as the window of an aggregation."""
        fields = json.loads(self.key_json)["fields"]
        return frozenset(number for number, field in enumerate(fields) if field.get("nullable") is False)

    def _parsed(self, text: str) -> Struct:
        try:
            return parse_struct(text)
        except UnknownType as unknown:
            raise unknown_format(self.path, f"has a column of unsupported {unknown}") from None
        except (ValueError, KeyError, TypeError):
            raise corrupt_state(self.path, "has a schema that cannot be parsed") from None


def parse_schema_file(data: bytes, path: str) -> list[FamilySchema]:
    """Return the schema of each column family in a schema file."""
    source = _DataInput(data, path)
    version = source.utf()
    match version:
        case "v1":
            return [FamilySchema(path, DEFAULT_STORE, source.utf(), source.utf())]
        case "v2":
            return [FamilySchema(path, DEFAULT_STORE, source.chunks(), source.chunks())]
        case "v3":
            return [_family(source, path) for _ in range(source.number(">i"))]
        case _:
            raise unknown_format(path, f"is a schema file of unsupported version {version[:20]!r}")


def _family(source: _DataInput, path: str) -> FamilySchema:
    name = source.utf()
    key_schema_id, key = source.number(">h"), source.chunks()
    value_schema_id, value = source.number(">h"), source.chunks()
    encoding = _encoding(source.chunks(), path)
    source.chunks()  # the user key of a map, which is also part of the key's schema
    return FamilySchema(path, name, key, value, encoding, key_schema_id, value_schema_id)


def _encoding(text: str, path: str) -> KeyEncoding:
    try:
        spec: dict[str, Any] = json.loads(text)
        kind = spec["keyStateEncoderType"]
        if kind not in _LAYOUTS:
            raise unknown_format(path, f"names the unknown key encoder {kind!r}")
        columns = spec.get("orderingOrdinals") or range(spec.get("numColsPrefixKey", 0))
        return KeyEncoding(_LAYOUTS[kind], tuple(int(column) for column in columns))
    except (ValueError, KeyError, TypeError):
        raise corrupt_state(path, "names a key encoder that cannot be parsed") from None


class _DataInput:
    """Java's ``DataInput`` over the bytes of a file."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error:
            raise corrupt_state(self._path, "is truncated") from None
        self._at += struct.calcsize(form)
        return int(value)

    def utf(self) -> str:
        length = self.number(">H")
        text = self._data[self._at : self._at + length]
        self._at += length
        if len(text) < length:
            raise corrupt_state(self._path, "is truncated")
        try:
            # Java encodes characters outside the basic plane as two surrogates of three bytes each.
            return text.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise corrupt_state(self._path, "contains a string that is not UTF-8") from None

    def chunks(self) -> str:
        return "".join(self.utf() for _ in range(self.number(">i")))
