"""One key as Spark would store it, so that a table can be asked for it alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pyarrow as pa

from headwater.statefiles.sqltypes import Atomic, SqlType, Struct
from headwater.statefiles.unsaferow import bitset_bytes

Path = tuple[int, ...]
# How a value that stands in its field itself is written, and as which Arrow type its number is had.
_INLINE: dict[str, tuple[str, pa.DataType]] = {
    "boolean": ("<?7x", pa.bool_()),
    "byte": ("<b7x", pa.int8()),
    "short": ("<h6x", pa.int16()),
    "integer": ("<i4x", pa.int32()),
    "date": ("<i4x", pa.int32()),
    "long": ("<q", pa.int64()),
    "timestamp": ("<q", pa.int64()),
    "timestamp_ntz": ("<q", pa.int64()),
}


def encoded_row(kind: Struct, values: Mapping[Path, pa.Scalar | None], at: Path = ()) -> bytes | None:
    """The row whose fields, by their places, have these values.

    None where a field is not given, is null, or is of a type that can be written in more than one way.
    """
    fixed_bytes = bitset_bytes(len(kind.fields))
    variable_at = fixed_bytes + 8 * len(kind.fields)
    fixed, variable = bytes(fixed_bytes), b""
    for number, field in enumerate(kind.fields):
        match field.type:
            case Atomic(name) if name in _INLINE:
                slot = _inline(name, values.get((*at, number)))
                if slot is None:
                    return None
                fixed += slot
            case _:
                part = _variable(field.type, values, (*at, number))
                if part is None:
                    return None
                fixed += struct.pack("<II", len(part), variable_at + len(variable))
                variable += part + bytes(-len(part) % 8)
    return fixed + variable


def _inline(name: str, value: pa.Scalar | None) -> bytes | None:
    form, arrow = _INLINE[name]
    return None if value is None else struct.pack(form, value.cast(arrow).as_py())


def _variable(kind: SqlType, values: Mapping[Path, pa.Scalar | None], at: Path) -> bytes | None:
    if isinstance(kind, Struct):
        return encoded_row(kind, values, at)
    value = values.get(at) if kind == Atomic("string") else None
    return None if value is None else value.as_py().encode()
