"""Spark's VARIANT type as JSON text.

In a row, a variant is the length of the value (int32), the value, and the metadata, which contains all field names.
The low two bits of a value's first byte give its basic type: a primitive, a short string, an object or an array.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import UUID

_EPOCH_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def json_of_variant(data: bytes) -> str:
    """Return a variant as JSON; ``data`` is the field of a row. Raise ``ValueError`` for an unknown encoding."""
    (length,) = struct.unpack_from("<i", data)
    try:
        return _value(data[4 : 4 + length], 0, _names(data[4 + length :]))
    except (IndexError, struct.error):
        raise ValueError("a truncated variant") from None


def _names(metadata: bytes) -> list[str]:
    width = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, width)
    offsets = [_unsigned(metadata, 1 + width * (number + 1), width) for number in range(count + 1)]
    begin = 1 + width * (count + 2)
    return [metadata[begin + first : begin + last].decode("utf-8") for first, last in pairwise(offsets)]


def _unsigned(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _value(data: bytes, at: int, names: list[str]) -> str:
    header = data[at] >> 2
    match data[at] & 3:
        case 0:
            return _primitive(header, data, at + 1)
        case 1:
            return json.dumps(data[at + 1 : at + 1 + header].decode("utf-8"), ensure_ascii=False)
        case 2:
            return _object(header, data, at + 1, names)
        case _:
            return _array(header, data, at + 1, names)


def _object(header: int, data: bytes, at: int, names: list[str]) -> str:
    count_width = 4 if header >> 4 & 1 else 1
    id_width, offset_width = (header >> 2 & 3) + 1, (header & 3) + 1
    count = _unsigned(data, at, count_width)
    ids_at = at + count_width
    offsets_at = ids_at + count * id_width
    values_at = offsets_at + (count + 1) * offset_width
    fields = [
        json.dumps(names[_unsigned(data, ids_at + number * id_width, id_width)], ensure_ascii=False)
        + ":"
        + _value(data, values_at + _unsigned(data, offsets_at + number * offset_width, offset_width), names)
        for number in range(count)
    ]
    return "{" + ",".join(fields) + "}"


def _array(header: int, data: bytes, at: int, names: list[str]) -> str:
    count_width, offset_width = 4 if header >> 2 & 1 else 1, (header & 3) + 1
    count = _unsigned(data, at, count_width)
    offsets_at = at + count_width
    values_at = offsets_at + (count + 1) * offset_width
    return (
        "["
        + ",".join(
            _value(data, values_at + _unsigned(data, offsets_at + number * offset_width, offset_width), names)
            for number in range(count)
        )
        + "]"
    )


def _primitive(kind: int, data: bytes, at: int) -> str:
    if kind not in _PRIMITIVES:
        raise ValueError(f"a variant of unknown primitive type {kind}")
    return _PRIMITIVES[kind](data, at)


def _number(form: str) -> Callable[[bytes, int], str]:
    return lambda data, at: json.dumps(struct.unpack_from(form, data, at)[0])


def _float(form: str) -> Callable[[bytes, int], str]:
    def text_of(data: bytes, at: int) -> str:
        (value,) = struct.unpack_from(form, data, at)
        text = repr(value).replace("nan", '"NaN"').replace("inf", "Infinity")
        return f'"{text}"' if text.endswith("Infinity") else text

    return text_of


def _decimal(width: int) -> Callable[[bytes, int], str]:
    def text_of(data: bytes, at: int) -> str:
        scale = data[at]
        unscaled = int.from_bytes(data[at + 1 : at + 1 + width], "little", signed=True)
        return format(Decimal(unscaled).scaleb(-scale), "f")

    return text_of


def _date(data: bytes, at: int) -> str:
    return f'"{_EPOCH_DAY + timedelta(days=struct.unpack_from("<i", data, at)[0])}"'


def _timestamp(ending: str) -> Callable[[bytes, int], str]:
    def text_of(data: bytes, at: int) -> str:
        moment = _EPOCH + timedelta(microseconds=struct.unpack_from("<q", data, at)[0])
        fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
        return f'"{moment:%Y-%m-%d %H:%M:%S}{fraction}{ending}"'

    return text_of


def _length_prefixed(data: bytes, at: int) -> bytes:
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4 : at + 4 + length]


_PRIMITIVES: dict[int, Callable[[bytes, int], str]] = {
    0: lambda data, at: "null",  # noqa: ARG005  these types have no data
    1: lambda data, at: "true",  # noqa: ARG005
    2: lambda data, at: "false",  # noqa: ARG005
    3: _number("<b"),
    4: _number("<h"),
    5: _number("<i"),
    6: _number("<q"),
    7: _float("<d"),
    8: _decimal(4),
    9: _decimal(8),
    10: _decimal(16),
    11: _date,
    12: _timestamp("+00:00"),
    13: _timestamp(""),
    14: _float("<f"),
    15: lambda data, at: f'"{base64.b64encode(_length_prefixed(data, at)).decode()}"',
    16: lambda data, at: json.dumps(_length_prefixed(data, at).decode("utf-8"), ensure_ascii=False),
    20: lambda data, at: f'"{UUID(bytes=data[at : at + 16])}"',
}
