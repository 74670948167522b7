"""Typed reads at many byte positions at once, and Arrow arrays built directly from numpy buffers.

``pa.array`` and ``pa.scalar`` import pandas to check whether they were given a data frame, which takes longer than
reading most states. The functions here avoid that import.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
else:  # importing numpy.typing is slow, and nothing needs it at run time
    Bytes = Ints = Mask = np.ndarray

# Reading a word at the end of the data must stay inside the buffer.
PADDING = 16


class ByteSpace:
    """A buffer that can be read as any fixed-width type at any byte position."""

    def __init__(self, data: Bytes | bytes | bytearray, *, padded: bool = False) -> None:
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes | bytearray) else data
        self.size = len(array) - PADDING if padded else len(array)
        self.data: Bytes = array if padded else np.concatenate([array, np.zeros(PADDING, np.uint8)])
        self._windows: dict[str, npt.NDArray[Any]] = {}

    def gather(self, dtype: str, at: Ints) -> npt.NDArray[Any]:
        """Return the values of a fixed-width type at these positions, which need not be aligned."""
        return self._window(dtype)[at]

    def rows(self, at: Ints, size: int) -> Bytes:
        """Return so many bytes from each of these positions, as the rows of a matrix, with zeros after the end.

        This takes hardly longer than ``gather`` for one number of each row.
        """
        if not len(at):
            return np.zeros((0, size), np.uint8)
        last = int(at.max())
        if last + size <= len(self.data):
            taken = self._window(f"V{size}")[at]
        elif last <= self.size:
            taken = ByteSpace(np.concatenate([self.data, np.zeros(size, np.uint8)]), padded=True).gather(f"V{size}", at)
        else:
            raise IndexError(f"position {last} of {self.size} bytes")
        return taken.view(np.uint8).reshape(len(at), size)

    def _window(self, dtype: str) -> npt.NDArray[Any]:
        # In this view every byte starts a value, so numpy needs one index per value, not one per byte.
        if dtype not in self._windows:
            width = np.dtype(dtype).itemsize
            self._windows[dtype] = np.ndarray(
                (len(self.data) - width + 1,), dtype=dtype, buffer=self.data.data, strides=(1,)
            )
        return self._windows[dtype]

    def holds(self, needle: bytes) -> bool:
        """Return whether the bytes occur anywhere in the buffer."""
        # A regular expression searches the buffer in place; ``in`` would need a copy of it as bytes.
        return re.search(re.escape(needle), self.data) is not None  # type: ignore[call-overload]

    def text(self, start: int, length: int) -> bytes:
        return self.data[start : start + length].tobytes()


def distinct_bytes(values: Bytes) -> set[int]:
    """Return the values that occur. ``np.unique`` would import numpy's masked arrays, which takes longer."""
    return set(np.flatnonzero(np.bincount(values, minlength=256)).tolist())


def joined(spaces: list[ByteSpace]) -> tuple[ByteSpace, list[int]]:
    """Return one space with the contents of several, and the position at which each begins."""
    if len(spaces) == 1:
        return spaces[0], [0]
    starts, at = [], 0
    for space in spaces:
        starts.append(at)
        at += space.size
    data = np.empty(at + PADDING, np.uint8)
    data[at:] = 0
    for space, start in zip(spaces, starts, strict=True):
        data[start : start + space.size] = space.data[: space.size]
    return ByteSpace(data, padded=True), starts


def expand(counts: Ints) -> tuple[Ints, Ints, Ints]:
    """For lists of these lengths, return the offsets, the list of each element and its index within that list."""
    offsets = offsets_of(counts)
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    within = np.arange(offsets[-1], dtype=np.int64) - offsets[owner]
    return offsets, owner, within


def offsets_of(lengths: Ints) -> Ints:
    """Return where each of several consecutive parts begins, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


_VIEW_INLINE = 12
_VIEW_LIMIT = 2**31 - 1
# Texts of one length, if it is at most this, are copied directly.
_COPIED_BYTES = 64
# Masks that keep the lowest 0 to 8 bytes of a little-endian word.
LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype="<u8")


def validity(valid: Mask | None) -> Any:
    """Return the Arrow validity bitmap for a mask; None if there are no nulls."""
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Return an array of a fixed-width type."""
    data = np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [validity(valid), pa.py_buffer(data)])


def numbers(values: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Return an array of numbers whose Arrow type follows from their numpy type."""
    return fixed(pa.from_numpy_dtype(values.dtype), values, valid)


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return an array of strings."""
    encoded = [b"" if value is None else value.encode("utf-8") for value in values]
    offsets = offsets_of(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    if offsets[-1] > _VIEW_LIMIT:
        raise ValueError("a column holds more than two gigabytes of text")
    valid = np.fromiter((value is not None for value in values), bool, len(encoded))
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def text(value: str | None) -> pa.Scalar:
    """Return one string as a scalar."""
    return texts([value])[0]


def as_numbers(column: pa.Array, dtype: str) -> npt.NDArray[Any]:
    """Return an array's numbers as a numpy array; the value at a null is undefined."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * width)


def as_mask(column: pa.Array) -> Mask:
    """Return the values of a boolean array without nulls as a mask."""
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    mask: Mask = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :].astype(bool)
    return mask


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column's chunks as one array, without a copy if there is only one."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def words(kind: pa.DataType, count: int, pairs: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Return an array of a sixteen-byte type whose values are given as two words each."""
    return pa.Array.from_buffers(kind, count, [validity(valid), pa.py_buffer(np.ascontiguousarray(pairs))])


def nested(
    kind: pa.DataType, count: int, offsets: Ints | None, children: list[pa.Array], valid: Mask | None
) -> pa.Array:
    """Return an array of structs (without offsets), lists or maps."""
    buffers = [validity(valid)]
    if offsets is not None:
        if offsets[-1] > _VIEW_LIMIT:
            raise ValueError("a column holds more than two billion elements")
        buffers.append(pa.py_buffer(offsets.astype(np.int32)))
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def binary(kind: pa.DataType, space: ByteSpace, start: Ints, length: Ints, valid: Mask | None) -> pa.Array:
    """Return an array of strings or byte strings."""
    if space.size > _VIEW_LIMIT:
        return _binary_in_parts(kind, space, start, length, valid)
    size = int(length[0]) if len(length) else 0
    if 0 < size <= _COPIED_BYTES and size * len(length) <= _VIEW_LIMIT and bool((length == size).all()):
        offsets = np.arange(0, size * len(length) + 1, size, dtype=np.int32)
        data = pa.py_buffer(space.rows(start, size))
        return pa.Array.from_buffers(kind, len(start), [validity(valid), pa.py_buffer(offsets), data])
    # Arrow views point into the space; the cast makes the copy.
    view_kind = pa.string_view() if pa.types.is_string(kind) else pa.binary_view()
    buffers = [validity(valid), pa.py_buffer(_views(space, start, length)), pa.py_buffer(space.data)]
    return pa.Array.from_buffers(view_kind, len(start), buffers).cast(kind)


def _views(space: ByteSpace, start: Ints, length: Ints) -> npt.NDArray[np.uint32]:
    """Return Arrow's views: a length, then a short text itself, or the first bytes and the position of a long one."""
    views = np.zeros((len(start), 4), "<u4")
    views[:, 0] = length
    if len(length) and int(length.min()) > _VIEW_INLINE:
        views[:, 1], views[:, 3] = space.gather("<u4", start), start
        return views
    first = space.rows(start, _VIEW_INLINE).view("<u4")
    for number in range(3):
        first[:, number] &= LOW_BYTES[np.clip(length - 4 * number, 0, 4)].astype("<u4")
    views[:, 1:] = first
    outside = np.flatnonzero(length > _VIEW_INLINE)
    views[outside, 2], views[outside, 3] = 0, start[outside]
    return views


def _binary_in_parts(kind: pa.DataType, space: ByteSpace, start: Ints, length: Ints, valid: Mask | None) -> pa.Array:
    offsets = offsets_of(length)
    if offsets[-1] > _VIEW_LIMIT:
        raise ValueError("a column holds more than two gigabytes of text")
    data = np.empty(int(offsets[-1]), np.uint8)
    for index, (begin, size) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        data[offsets[index] : offsets[index + 1]] = space.data[begin : begin + size]
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(start), buffers)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a small table as ``to_pylist`` does, without pandas, and with texts for times beyond Python's years."""
    schema = pa.schema([field.with_type(_with_numbers(field.type)) for field in table.schema])
    if schema.types == table.schema.types:
        found: list[dict[str, Any]] = table.to_pylist()
        return found
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    return [
        {name: _with_times(kinds[name], value) for name, value in row.items()}
        for row in table.cast(schema, safe=False).to_pylist()
    ]


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct(
            [kind.field(each).with_type(_with_numbers(kind.field(each).type)) for each in range(kind.num_fields)]
        )
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    return kind


def _with_times(kind: pa.DataType, value: Any) -> Any:
    """Return a value with times in place of numbers of microseconds or days; state has no other units."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        try:
            return datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None) + timedelta(microseconds=value)
        except OverflowError:
            return str(np.datetime64(value, "us"))
    if pa.types.is_date32(kind):
        try:
            return date(1970, 1, 1) + timedelta(days=value)
        except OverflowError:
            return str(np.datetime64(value, "D"))
    if pa.types.is_struct(kind):
        return {name: _with_times(kind.field(name).type, item) for name, item in value.items()}
    if pa.types.is_map(kind):
        return [(_with_times(kind.key_type, key), _with_times(kind.item_type, item)) for key, item in value]
    if pa.types.is_list(kind):
        return [_with_times(kind.value_type, item) for item in value]
    return value
