"""Spark's Murmur3 hash, which decides the partition of a key, over Arrow columns.

Every value is mixed into the hash of the values before it, beginning with 42. A null leaves the hash as it is. The bytes
after the last complete word of a string are mixed in one by one, which differs from the original Murmur3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.statefiles.buffers import Ints, Mask, as_mask, as_numbers, numbers
from headwater.statefiles.rowencoder import Parts, absent_values, variable_parts
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Interval, SqlType, Struct
from headwater.statefiles.unsaferow import FIXED, INLINE_DECIMAL_DIGITS

_SEED = 42
_ONE_WORD = ("boolean", "byte", "short", "integer", "date", "float")


def partition_of(kinds: Sequence[SqlType], columns: Sequence[pa.Array], count: int, partitions: int) -> Ints:
    """Return the partition of each key, given its columns in order."""
    hashes = np.full(count, _SEED, np.uint32)
    with np.errstate(over="ignore"):
        for kind, column in zip(kinds, columns, strict=True):
            hashes = _mixed(kind, column, hashes)
    return hashes.view(np.int32).astype(np.int64) % partitions


def _mixed(kind: SqlType, column: pa.Array, seed: np.ndarray) -> np.ndarray:
    absent = absent_values(column)
    match kind:
        case Atomic("void"):
            return seed
        case Struct(fields):
            mixed = seed
            for field, part in zip(fields, column.flatten(), strict=True):
                mixed = _mixed(field.type, part, mixed)
        case Array(element):
            mixed = _array(element, column, absent, seed)
        case Atomic("string") | Atomic("binary"):
            mixed = _hash_bytes(variable_parts(kind, column, absent), seed)
        case Decimal(precision) if precision > INLINE_DECIMAL_DIGITS:
            mixed = _hash_bytes(variable_parts(kind, column, absent), seed)
        case _:
            mixed = _number(kind, column, seed)
    return np.where(absent, seed, mixed)


def _number(kind: SqlType, column: pa.Array, seed: np.ndarray) -> np.ndarray:
    match kind:
        case Atomic("boolean"):
            return _hash_int(as_mask(column).astype(np.uint32), seed)
        case Atomic("float" | "double" as name):
            values = as_numbers(column, FIXED[name]).copy()
            values[values == 0] = 0
            return _hash_int(values.view("<u4"), seed) if name == "float" else _hash_long(values.view("<u8"), seed)
        case Atomic(name) if name in _ONE_WORD:
            return _hash_int(as_numbers(column, FIXED[name]).astype(np.int32).view(np.uint32), seed)
        case Atomic(name) if name in FIXED:
            return _hash_long(as_numbers(column, FIXED[name]).view("<u8"), seed)
        case Decimal():
            return _hash_long(np.ascontiguousarray(as_numbers(column, "<i8,<i8")["f0"]).view("<u8"), seed)
        case Interval(months) if months:
            pairs = as_numbers(column, "<i4,<i4,<i8")
            return _hash_int(np.ascontiguousarray(pairs["f0"]).view("<u4"), seed)
        case Interval():
            return _hash_long(as_numbers(column, "<i8").view("<u8"), seed)
        case _:
            raise ValueError(f"keys of type {kind} have no known hash")


def _array(element: SqlType, column: pa.Array, absent: Mask, seed: np.ndarray) -> np.ndarray:
    """Mix in the elements of arrays: the first of each, then the second of those that have one, and so on."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    counts = np.where(absent, 0, np.diff(offsets))
    mixed = seed.copy()
    for number in range(int(counts.max(initial=0))):
        longer = np.flatnonzero(counts > number)
        elements = column.values.take(numbers(offsets[longer] + number))
        mixed[longer] = _mixed(element, elements, mixed[longer])
    return mixed


def _hash_int(value: np.ndarray, seed: np.ndarray) -> np.ndarray:
    return _finished(_mix(seed, value), np.full(len(seed), 4, np.uint32))


def _hash_long(value: np.ndarray, seed: np.ndarray) -> np.ndarray:
    low, high = (value & np.uint64(0xFFFFFFFF)).astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)
    return _finished(_mix(_mix(seed, low), high), np.full(len(seed), 8, np.uint32))


def _hash_bytes(parts: Parts, seed: np.ndarray) -> np.ndarray:
    hashes = seed.copy()
    size = parts.size
    words = parts.data.view("<u4")
    for word in range(int(size.max(initial=0)) // 4):
        inside = np.flatnonzero(size >= 4 * word + 4)
        hashes[inside] = _mix(hashes[inside], words[parts.start[inside] // 4 + word])
    aligned = size // 4 * 4
    for byte in range(3):
        inside = np.flatnonzero(aligned + byte < size)
        if len(inside):
            signed = parts.data.view(np.int8)[parts.start[inside] + aligned[inside] + byte]
            hashes[inside] = _mix(hashes[inside], signed.astype(np.int32).view(np.uint32))
    return _finished(hashes, size.astype(np.uint32))


def _mix(hashes: np.ndarray, word: np.ndarray) -> np.ndarray:
    word = word * np.uint32(0xCC9E2D51)
    word = _rotated(word, 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(value: np.ndarray, bits: int) -> np.ndarray:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _finished(hashes: np.ndarray, length: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = hashes ^ length
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
