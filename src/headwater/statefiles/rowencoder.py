"""UnsafeRow, encoded column by column: exactly the bytes that Spark's own writer produces.

Keys are found by their bytes, so a row must not only be readable but identical. Where Spark's writer has a choice, this
module follows it: a decimal of more than 18 digits and a calendar interval reserve sixteen bytes in a row, even if
they are null, so that Spark can update them in place; in an array they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.statefiles.buffers import Ints, Mask, as_mask, as_numbers, expand, numbers, offsets_of
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Interval, Map, SqlType, Struct
from headwater.statefiles.unsaferow import FIXED, NANOS, bitset_bytes, element_width, is_inline

_WORD = 8
_WIDE_BYTES = 16
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Parts:
    """Byte strings of variable size, each at a multiple of eight in ``data`` and followed by zeros.

    ``reserved`` is how much of a row each takes, a multiple of eight. ``kept`` are the parts to which a row points
    although they are null.
    """

    data: np.ndarray
    start: Ints
    size: Ints
    reserved: Ints
    kept: Mask | None = None

    def without(self, absent: Mask) -> Parts:
        """Return the parts with some of them empty."""
        if not absent.any():
            return self
        size, reserved = np.where(absent, 0, self.size), np.where(absent, 0, self.reserved)
        return Parts(self.data, self.start, size, reserved)

    def texts(self) -> list[bytes]:
        """Return each part as a byte string."""
        data = self.data.tobytes()
        return [data[start : start + size] for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True)]


def encode_rows(kind: Struct, columns: Sequence[pa.Array], count: int) -> list[bytes]:
    """Return rows whose fields are given as columns, which have the Arrow types of ``arrow_type``."""
    found: list[bytes] = []
    for first in range(0, count, _ROWS_AT_ONCE):
        size = min(_ROWS_AT_ONCE, count - first)
        found += _rows(kind, [column.slice(first, size) for column in columns], size).texts()
    return found


def encode_structs(kind: Struct, rows: pa.StructArray) -> list[bytes]:
    """Return rows that are given as a struct array without nulls."""
    return encode_rows(kind, rows.flatten(), len(rows))


def _rows(kind: Struct, columns: Sequence[pa.Array], count: int) -> Parts:
    bitset = bitset_bytes(len(kind.fields))
    fixed = bitset + _WORD * len(kind.fields)
    absent = [absent_values(column) for column in columns]
    variable = {
        number: variable_parts(field.type, columns[number], absent[number], in_row=True)
        for number, field in enumerate(kind.fields)
        if not is_inline(field.type)
    }
    size = np.full(count, fixed, np.int64)
    for parts in variable.values():
        size += parts.reserved
    start = offsets_of(size)
    words = np.zeros(int(start[-1]) // _WORD, "<u8")
    first_word = start[:-1] // _WORD
    _write_null_bits(words, first_word, absent)
    at = np.full(count, fixed, np.int64)
    for number, field in enumerate(kind.fields):
        slot = first_word + bitset // _WORD + number
        if number not in variable:
            words[slot] = np.where(absent[number], 0, _inline(field.type, columns[number]))
            continue
        parts = variable[number]
        pointed = ~absent[number] if parts.kept is None else ~absent[number] | parts.kept
        words[slot] = np.where(pointed, at << 32 | parts.size, 0).astype("<u8")
        _copy(words, first_word + at // _WORD, parts)
        at = at + parts.reserved
    return Parts(words.view(np.uint8), start[:-1], size, size)


def _write_null_bits(words: np.ndarray, first_word: Ints, absent: list[Mask]) -> None:
    for word in range((len(absent) + 63) // 64):
        bits = np.zeros(len(first_word), "<u8")
        for bit, missing in enumerate(absent[64 * word : 64 * word + 64]):
            bits |= missing.astype("<u8") << np.uint64(bit)
        words[first_word + word] = bits


def _copy(words: np.ndarray, at: Ints, parts: Parts) -> None:
    """Copy parts to the words that begin at these indices."""
    source = parts.data.view("<u8")
    _, owner, within = expand((parts.size + _WORD - 1) // _WORD)
    words[at[owner] + within] = source[parts.start[owner] // _WORD + within]


def absent_values(column: pa.Array) -> Mask:
    """Return which values are null."""
    if pa.types.is_null(column.type):
        return np.ones(len(column), bool)
    return ~as_mask(column.is_valid()) if column.null_count else np.zeros(len(column), bool)


def _inline(kind: SqlType, column: pa.Array) -> np.ndarray:
    """Return the word of each value; the narrower types leave the upper bytes zero."""
    if kind == Atomic("void"):
        return np.zeros(len(column), "<u8")
    values = _fixed(kind, column)
    return np.ascontiguousarray(values).view(f"<u{values.dtype.itemsize}").astype("<u8")


def _fixed(kind: SqlType, column: pa.Array) -> np.ndarray:
    """Return the values of a type that is stored in the field itself, as an array stores them."""
    match kind:
        case Atomic("boolean"):
            return as_mask(column).view(np.uint8)
        case Atomic(name):
            return as_numbers(column, FIXED[name])
        case Decimal():
            return as_numbers(column, "<i8,<i8")["f0"]
        case Interval(months) if months:
            return _month_day_nanos(column)["months"].copy()
        case Interval():
            return as_numbers(column, "<i8")
        case _:
            raise AssertionError(kind)


def _month_day_nanos(column: pa.Array) -> np.ndarray:
    form = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    return np.frombuffer(column.buffers()[1], form, len(column), column.offset * form.itemsize)


def variable_parts(kind: SqlType, column: pa.Array, absent: Mask, *, in_row: bool = False) -> Parts:
    """Return the values of a type that is not stored in the field itself."""
    match kind:
        case Atomic("string") | Atomic("binary"):
            return _byte_strings(column, absent)
        case Atomic("interval"):
            return _calendar_intervals(column, absent, in_row=in_row)
        case Decimal():
            return _wide_decimals(column, absent, in_row=in_row)
        case Struct():
            return _rows(kind, column.flatten(), len(column)).without(absent)
        case Array(element):
            return _arrays(element, *_list_items(column, absent, [column.values])).without(absent)
        case Map(key, value):
            begin, counts, (keys, items) = _list_items(column, absent, [column.keys, column.items])
            return _maps(_arrays(key, begin, counts, [keys]), _arrays(value, begin, counts, [items])).without(absent)
        case _:
            raise ValueError(f"values of type {kind} cannot be written")


def _padded(size: Ints) -> Ints:
    return (size + _WORD - 1) // _WORD * _WORD


def _byte_strings(column: pa.Array, absent: Mask) -> Parts:
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    size = np.where(absent, 0, np.diff(offsets))
    start = offsets_of(_padded(size))
    out = np.zeros(int(start[-1]), np.uint8)
    if size.any():
        _, owner, within = expand(size)
        out[start[owner] + within] = np.frombuffer(data, np.uint8)[offsets[owner] + within]
    return Parts(out, start[:-1], size, _padded(size))


def _calendar_intervals(column: pa.Array, absent: Mask, *, in_row: bool) -> Parts:
    values = _month_day_nanos(column)
    micros, rest = np.divmod(values["nanos"], NANOS)
    if rest[~absent].any():
        raise ValueError("an interval with a fraction of a microsecond")
    out = np.zeros(len(column), np.dtype([("months", "<i4"), ("days", "<i4"), ("micros", "<i8")]))
    out["months"], out["days"], out["micros"] = values["months"], values["days"], micros
    out[absent] = 0
    return _sixteen_bytes(out.view(np.uint8), np.full(len(column), _WIDE_BYTES), absent, in_row=in_row)


def _wide_decimals(column: pa.Array, absent: Mask, *, in_row: bool) -> Parts:
    """Return decimals as big-endian integers of the smallest size, as Java's ``BigInteger`` has them."""
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _WIDE_BYTES, column.offset * _WIDE_BYTES)
    digits = raw.reshape(-1, _WIDE_BYTES)[:, ::-1]
    negative = digits[:, 0] >= 0x80
    filler = np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
    redundant = (digits[:, :-1] == filler) & ((digits[:, 1:] >= 0x80) == negative[:, None])
    skipped = np.logical_and.accumulate(redundant, axis=1).sum(axis=1)
    size = np.where(absent, 0, _WIDE_BYTES - skipped)
    out = np.zeros((len(column), _WIDE_BYTES), np.uint8)
    place = np.arange(_WIDE_BYTES)[None, :]
    inside = place < size[:, None]
    out[inside] = np.take_along_axis(digits, np.minimum(place + skipped[:, None], _WIDE_BYTES - 1), axis=1)[inside]
    return _sixteen_bytes(out.reshape(-1), size, absent, in_row=in_row)


def _sixteen_bytes(data: np.ndarray, size: Ints, absent: Mask, *, in_row: bool) -> Parts:
    count = len(size)
    start = np.arange(count, dtype=np.int64) * _WIDE_BYTES
    if in_row:
        return Parts(data, start, size.astype(np.int64), np.full(count, _WIDE_BYTES, np.int64), absent)
    size = np.where(absent, 0, size).astype(np.int64)
    return Parts(data, start, size, _padded(size))


def _list_items(column: pa.Array, absent: Mask, children: list[pa.Array]) -> tuple[Ints, Ints, list[pa.Array]]:
    """Return where the elements of each list begin, how many there are, and the arrays that contain them."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    return offsets[:-1], np.where(absent, 0, np.diff(offsets)), children


def _arrays(kind: SqlType, begin: Ints, counts: Ints, children: list[pa.Array]) -> Parts:
    """Encode arrays: the number of elements, a null bitset, the elements, then the variable parts."""
    offsets, owner, within = expand(counts)
    elements = children[0].take(numbers(begin[owner] + within))
    absent = absent_values(elements)
    header = _WORD + (counts + 63) // 64 * _WORD
    width = element_width(kind)
    fixed = _padded(counts * width)
    variable = None if is_inline(kind) else variable_parts(kind, elements, absent, in_row=False)
    size = header + fixed
    if variable is not None:
        before = offsets_of(variable.reserved)
        size = size + before[offsets[1:]] - before[offsets[:-1]]
    start = offsets_of(size)
    out = np.zeros(int(start[-1]), np.uint8)
    words = out.view("<u8")
    words[start[:-1] // _WORD] = counts
    begins = start[:-1][owner]
    missing = np.flatnonzero(absent)
    np.bitwise_or.at(out, begins[missing] + _WORD + within[missing] // 8, (1 << (within[missing] % 8)).astype(np.uint8))
    slot = begins + header[owner] + within * width
    if variable is None:
        if kind != Atomic("void") and len(elements):
            values = _fixed(kind, elements)
            places = np.ndarray((len(out) - width + 1,), f"<u{width}", out.data, strides=(1,))
            places[slot] = np.where(absent, 0, np.ascontiguousarray(values).view(f"<u{width}"))
    else:
        at = header[owner] + fixed[owner] + before[:-1] - before[offsets[:-1]][owner]
        words[slot // _WORD] = np.where(absent, 0, at << 32 | variable.size)
        _copy(words, (begins + at) // _WORD, variable)
    return Parts(out, start[:-1], size, size)


def _maps(keys: Parts, items: Parts) -> Parts:
    """Encode maps: the size of the key array, the key array, and the array of values."""
    size = _WORD + keys.size + items.size
    start = offsets_of(size)
    words = np.zeros(int(start[-1]) // _WORD, "<u8")
    first = start[:-1] // _WORD
    words[first] = keys.size
    _copy(words, first + 1, keys)
    _copy(words, first + 1 + keys.size // _WORD, items)
    return Parts(words.view(np.uint8), start[:-1], size, size)


def normalized(kind: SqlType, column: pa.Array) -> pa.Array:
    """Return a column of a key as Spark normalizes it: one NaN, and no negative zero."""
    match kind:
        case Atomic("float") | Atomic("double"):
            form = FIXED[kind.name]
            values: Any = as_numbers(column, form).copy()
            values[np.isnan(values)] = np.nan
            values[values == 0] = 0
            return numbers(values, None if not column.null_count else as_mask(column.is_valid()))
        case Struct(fields):
            parts = [normalized(field.type, part) for field, part in zip(fields, column.flatten(), strict=True)]
            names = [field.name for field in column.type]
            mask = column.is_null() if column.null_count else None
            if not parts:
                return column
            return pa.StructArray.from_arrays(parts, names, mask=mask)
        case _:
            return column
