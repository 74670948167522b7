"""Spark's UnsafeRow, decoded column by column.

A row consists of a null bitset (one bit per field, in words of eight bytes), eight bytes per field, and then the parts
of variable size, to which a field points with ``offset << 32 | size`` from the start of the row. All is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.statefiles import buffers
from headwater.statefiles.buffers import ByteSpace, Ints, Mask, expand
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Interval, Map, SqlType, Struct, arrow_type

# Atomic types that are stored in the field itself, in the form that arrays use for their elements.
FIXED = {
    "boolean": "u1",
    "byte": "i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "time": "<i8",
}
# The words of fields, or the elements of arrays, read as numbers of a given form.
Slot = Callable[[str], "np.typing.NDArray[Any]"]
INLINE_DECIMAL_DIGITS = 18
_WORDS_AT_ONCE = 8
NANOS = 1000
_LARGEST_MICROS = (2**63 - 1) // NANOS


def struct_of(kind: Struct, columns: list[pa.Array], count: int, valid: Mask | None) -> pa.StructArray:
    """Return a struct array of a type with these columns."""
    return buffers.nested(arrow_type(kind), count, None, columns, valid)


def decode_fields(kind: Struct, space: ByteSpace, starts: Ints, valid: Mask | None) -> list[pa.Array]:
    """Return one array per field of the rows; all fields of a row that is not valid are null."""
    bitset = bitset_bytes(len(kind.fields)) // 8
    slots = _slots(space, starts, bitset + len(kind.fields))
    nulls = [next(slots)("<u8") for _ in range(bitset)]
    return [
        _column(field.type, space, slot, starts, _present(nulls[number // 64], number % 64, valid))
        for number, (field, slot) in enumerate(zip(kind.fields, slots, strict=True))
    ]


def _slots(space: ByteSpace, starts: Ints, count: int) -> Iterator[Slot]:
    """Yield the words with which rows begin. Several of them are read at once, because they are adjacent."""
    for first in range(0, count, _WORDS_AT_ONCE):
        together = min(_WORDS_AT_ONCE, count - first)
        words = space.rows(starts + 8 * first, 8 * together)
        yield from (partial(_word, words, number) for number in range(together))


def _word(words: buffers.Bytes, number: int, form: str) -> np.typing.NDArray[Any]:
    """Return a word of each row as a number, which may be shorter than the word."""
    found: np.typing.NDArray[Any] = words.view(form)[:, number * (8 // np.dtype(form).itemsize)]
    return found


def check_rows(kind: Struct, space: ByteSpace, start: Ints, length: Ints, *, version_byte: bool) -> None:
    """Raise ``ValueError`` if rows cannot have a schema: by their size, their null bits, or where their fields point.

    A schema in a checkpoint is the one with which Spark wrote the rows. A schema that a user writes may be wrong.
    """
    start, length = (start + 1, length - 1) if version_byte else (start, length)
    # Spark before 2.3 may have appended four bytes to a row.
    length = length // 8 * 8
    fields = len(kind.fields)
    fixed = bitset_bytes(fields) + 8 * fields
    is_fixed = all(is_inline(field.type) for field in kind.fields)
    if bool((length < fixed).any()) or (is_fixed and bool((length != fixed).any())):
        wrong = int(length[(length != fixed) if is_fixed else (length < fixed)][0])
        raise ValueError(f"a row of {wrong} bytes, where {'exactly' if is_fixed else 'at least'} {fixed} were expected")
    if fields % 64:
        last_word = space.gather("<u8", start + bitset_bytes(fields) - 8)
        if bool((last_word >> np.uint64(fields % 64)).any()):
            raise ValueError(f"a row with more than {fields} fields")
    for number, field in enumerate(kind.fields):
        if is_inline(field.type):
            continue
        nulls = space.gather("<u8", start + 8 * (number // 64)) >> np.uint64(number % 64) & np.uint64(1)
        word = space.gather("<i8", start + bitset_bytes(fields) + 8 * number)
        at, size = word >> 32, word & 0xFFFFFFFF
        if bool(((nulls == 0) & ((at < fixed) | (at + size > length))).any()):
            raise ValueError(f"a row whose field {field.name} is not of the type {arrow_type(field.type)}")


def is_inline(kind: SqlType) -> bool:
    """Return whether the values of a type are in the word of their field, not in the variable part of the row."""
    match kind:
        case Atomic(name):
            return name in FIXED or name == "void"
        case Decimal(precision):
            return precision <= INLINE_DECIMAL_DIGITS
        case _:
            return isinstance(kind, Interval)


def bitset_bytes(fields: int) -> int:
    """Return the size of the null bitset of a row with so many fields."""
    return (fields + 63) // 64 * 8


def _present(nulls: np.typing.NDArray[np.uint64], bit: int, valid: Mask | None) -> Mask | None:
    flagged = (nulls >> np.uint64(bit)) & np.uint64(1)
    if not flagged.any():
        return valid
    present: Mask = flagged == 0
    return present if valid is None else present & valid


def _column(kind: SqlType, space: ByteSpace, slot: Slot, base: Ints, valid: Mask | None) -> pa.Array:
    """Return the values of a field or of elements. What a slot points to is at an offset from ``base``."""
    match kind:
        case Atomic("void"):
            return pa.nulls(len(base))
        case Atomic(name) if name in FIXED:
            values = slot(FIXED[name])
            return buffers.fixed(arrow_type(kind), values != 0 if name == "boolean" else values, valid)
        case Decimal(precision) if precision <= INLINE_DECIMAL_DIGITS:
            low = slot("<i8")
            return buffers.words(arrow_type(kind), len(low), np.stack([low, low >> 63], axis=1), valid)
        case Interval(months):
            return _interval(kind, slot, months=months, valid=valid)
        case _:
            start, size = _pointed(space, slot, base, valid)
            return _variable(kind, space, start, size, valid)


def _pointed(space: ByteSpace, slot: Slot, base: Ints, valid: Mask | None) -> tuple[Ints, Ints]:
    word = slot("<i8")
    start, size = base + (word >> 32), word & 0xFFFFFFFF
    if valid is not None:
        start, size = np.where(valid, start, 0), np.where(valid, size, 0)
    if len(start) and (int((start + size).max()) > space.size or int(start.min()) < 0):
        raise ValueError("a field points outside its row")
    return start, size


def _variable(kind: SqlType, space: ByteSpace, start: Ints, size: Ints, valid: Mask | None) -> pa.Array:
    match kind:
        case Atomic("string") | Atomic("binary"):
            return buffers.binary(arrow_type(kind), space, start, size, valid)
        case Atomic("variant"):
            return _variants(space, start, size, valid)
        case Atomic("interval"):
            return _calendar_interval(space, start, valid)
        case Decimal():
            return wide_decimal(kind, space, start, size, valid)
        case Struct():
            return struct_of(kind, decode_fields(kind, space, start, valid), len(start), valid)
        case Array(element):
            offsets, values = _elements(element, space, start, valid)
            return buffers.nested(arrow_type(kind), len(start), offsets, [values], valid)
        case Map(key, value):
            return _map(kind, key, value, space, start, valid)
        case _:
            raise AssertionError(kind)


def _interval(kind: Interval, slot: Slot, *, months: bool, valid: Mask | None) -> pa.Array:
    if not months:
        return buffers.fixed(arrow_type(kind), slot("<i8"), valid)
    values = slot("<i4").astype("<i8")
    pairs = np.stack([values & 0xFFFFFFFF, np.zeros_like(values)], axis=1)
    return buffers.words(arrow_type(kind), len(values), pairs, valid)


def _variants(space: ByteSpace, start: Ints, size: Ints, valid: Mask | None) -> pa.Array:
    from headwater.statefiles.variant import json_of_variant  # noqa: PLC0415  few states hold one

    present = np.ones(len(start), bool) if valid is None else valid
    texts = [
        json_of_variant(space.text(at, length)) if is_present else None
        for at, length, is_present in zip(start.tolist(), size.tolist(), present.tolist(), strict=True)
    ]
    return buffers.texts(texts)


def _calendar_interval(space: ByteSpace, start: Ints, valid: Mask | None) -> pa.Array:
    micros = space.gather("<i8", start + 8)
    if valid is not None:
        micros = np.where(valid, micros, 0)
    if len(micros) and int(np.abs(micros).max()) > _LARGEST_MICROS:
        raise ValueError("an interval whose microseconds exceed 292 years")
    pairs = np.stack([space.gather("<i8", start), micros * NANOS], axis=1)
    return buffers.words(pa.month_day_nano_interval(), len(start), pairs, valid)


def wide_decimal(kind: Decimal, space: ByteSpace, start: Ints, size: Ints, valid: Mask | None) -> pa.Array:
    """Return decimals that are stored as big-endian integers of variable size."""
    if len(size) and int(size.max()) > 16:
        raise ValueError("a decimal of more than sixteen bytes")
    values = np.empty((len(start), 16), np.uint8)
    negative = (space.gather("i1", start) < 0) & (size > 0)
    filler = np.where(negative, 255, 0).astype(np.uint8)
    for byte in range(16):
        inside = size > byte
        values[:, byte] = np.where(inside, space.data[np.where(inside, start + size - 1 - byte, 0)], filler)
    return buffers.words(arrow_type(kind), len(start), values, valid)


def _elements(kind: SqlType, space: ByteSpace, start: Ints, valid: Mask | None) -> tuple[Ints, pa.Array]:
    """Decode the elements of arrays: a count, a null bitset, the elements, then the variable parts."""
    counts = space.gather("<i8", start)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    if len(counts) and (int(counts.min()) < 0 or int(counts.max()) > space.size):
        raise ValueError("an array of impossible length")
    offsets, owner, within = expand(counts)
    begin = start[owner]
    null_bits = space.gather("u1", begin + 8 + within // 8) >> (within % 8).astype(np.uint8)
    present: Mask | None = (null_bits & 1) == 0
    if present is not None and bool(present.all()):
        present = None
    at = begin + 8 + (counts[owner] + 63) // 64 * 8 + within * element_width(kind)
    return offsets, _column(kind, space, lambda form: space.gather(form, at), begin, present)


def element_width(kind: SqlType) -> int:
    """Return how many bytes an array uses for each element, apart from the variable parts."""
    match kind:
        case Atomic(name) if name in FIXED:
            return np.dtype(FIXED[name]).itemsize
        case Interval(months) if months:
            return 4
        case _:
            return 8


def _map(kind: Map, key: SqlType, value: SqlType, space: ByteSpace, start: Ints, valid: Mask | None) -> pa.Array:
    """Decode maps: the size of the key array, the key array, and the value array."""
    key_bytes = space.gather("<i8", start)
    if valid is not None:
        key_bytes = np.where(valid, key_bytes, 0)
    values_at = start + 8 + key_bytes
    if len(start) and (int(values_at.max()) > space.size or int(key_bytes.min()) < 0):
        raise ValueError("a map of impossible size")
    offsets, keys = _elements(key, space, start + 8, valid)
    _, values = _elements(value, space, values_at, valid)
    map_type = arrow_type(kind)
    entries = pa.StructArray.from_arrays([keys, values], fields=[map_type.key_field, map_type.item_field])
    return buffers.nested(map_type, len(start), offsets, [entries], valid)


Path = tuple[int, ...]
# The form of a value that is stored in the field itself, and the Arrow type to cast it to first.
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
    """Return the row in which the field at each path has a given value.

    Return None if a field is missing or null, or has a type with more than one valid encoding.
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
                part = _encoded_variable(field.type, values, (*at, number))
                if part is None:
                    return None
                fixed += struct.pack("<II", len(part), variable_at + len(variable))
                variable += part + bytes(-len(part) % 8)
    return fixed + variable


def _inline(name: str, value: pa.Scalar | None) -> bytes | None:
    form, arrow = _INLINE[name]
    return None if value is None else struct.pack(form, value.cast(arrow).as_py())


def _encoded_variable(kind: SqlType, values: Mapping[Path, pa.Scalar | None], at: Path) -> bytes | None:
    if isinstance(kind, Struct):
        return encoded_row(kind, values, at)
    value = values.get(at) if kind == Atomic("string") else None
    return None if value is None else value.as_py().encode()


def row_pattern(
    kind: Struct, values: Mapping[Path, pa.Scalar | None], required: Collection[int]
) -> tuple[bytes, bytes]:
    """Return the bytes with which all rows begin that have given values, and a mask of those that are known.

    ``required`` are the numbers of the fields that are never null. The length of a field is known if its value is, or if
    it is a struct of fixed length that is never null.
    """
    known, mask = bytearray(bitset_bytes(len(kind.fields))), bytearray(b"\xff" * bitset_bytes(len(kind.fields)))
    variable, variable_mask = b"", b""
    variable_at: int | None = len(known) + 8 * len(kind.fields)
    for number, field in enumerate(kind.fields):
        given = any(path[0] == number for path in values)
        if not given and number not in required:
            mask[number // 8] &= ~(1 << number % 8)
        if isinstance(field.type, Atomic) and field.type.name in _INLINE:
            slot = _inline(field.type.name, values.get((number,)))
            known += slot or bytes(8)
            mask += bytes(8) if slot is None else b"\xff" * 8
            continue
        part = _encoded_variable(field.type, values, (number,))
        part_mask = b"" if part is None else b"\xff" * len(part)
        if part is None and number in required and (size := _fixed_size(field.type)) is not None:
            part, part_mask = bytes(size), bytes(size)
        if part is None:
            variable_at = None
            known += bytes(8)
            mask += bytes(8)
            continue
        known += struct.pack("<II", len(part), 0 if variable_at is None else variable_at + len(variable))
        mask += b"\xff" * 4 + (b"\0" if variable_at is None else b"\xff") * 4
        if variable_at is not None:
            variable += part + bytes(-len(part) % 8)
            variable_mask += part_mask + b"\xff" * (-len(part) % 8)
    return bytes(known) + variable, bytes(mask) + variable_mask


def _fixed_size(kind: SqlType) -> int | None:
    """Return the size of a struct whose fields are all stored inline; None for other types."""
    if not isinstance(kind, Struct) or not all(
        isinstance(field.type, Atomic) and field.type.name in _INLINE for field in kind.fields
    ):
        return None
    return bitset_bytes(len(kind.fields)) + 8 * len(kind.fields)
