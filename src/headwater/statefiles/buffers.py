"""Bytes of many rows side by side, and Arrow arrays built directly from numpy buffers.

``pa.array`` and ``pa.scalar`` import pandas to check whether they were given a data frame, which takes longer than
reading most states. The functions here avoid that import.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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

# Reading a word at the very end must stay inside the buffer.
PADDING = 16


class ByteSpace:
    """One buffer and typed reads at any byte position of it."""

    def __init__(self, data: Bytes | bytes | bytearray, *, padded: bool = False) -> None:
        held = np.frombuffer(data, np.uint8) if isinstance(data, bytes | bytearray) else data
        self.size = len(held) - PADDING if padded else len(held)
        self.data: Bytes = held if padded else np.concatenate([held, np.zeros(PADDING, np.uint8)])
        self._windows: dict[str, npt.NDArray[Any]] = {}

    def gather(self, dtype: str, at: Ints) -> npt.NDArray[Any]:
        """The values of a fixed-width type that begin at these positions, aligned or not."""
        return self._window(dtype)[at]

    def _window(self, dtype: str) -> npt.NDArray[Any]:
        # A view in which every byte starts a value: numpy then gathers without an index for each byte.
        if dtype not in self._windows:
            width = np.dtype(dtype).itemsize
            self._windows[dtype] = np.ndarray(
                (len(self.data) - width + 1,), dtype=dtype, buffer=self.data.data, strides=(1,)
            )
        return self._windows[dtype]

    def holds(self, needle: bytes) -> bool:
        # A regular expression looks through the buffer where it is; a search in bytes would copy it first.
        return re.search(re.escape(needle), self.data) is not None  # type: ignore[call-overload]

    def text(self, start: int, length: int) -> bytes:
        return self.data[start : start + length].tobytes()


def joined(spaces: list[ByteSpace]) -> tuple[ByteSpace, list[int]]:
    """One space that holds several, and where each of them begins in it."""
    if len(spaces) == 1:
        return spaces[0], [0]
    starts, at = [], 0
    for space in spaces:
        starts.append(at)
        at += space.size
    whole = np.zeros(at + PADDING, np.uint8)
    for space, start in zip(spaces, starts, strict=True):
        whole[start : start + space.size] = space.data[: space.size]
    return ByteSpace(whole, padded=True), starts


def expand(counts: Ints) -> tuple[Ints, Ints, Ints]:
    """For lists of these lengths laid end to end: offsets, each element's list, and its number within the list."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    within = np.arange(offsets[-1], dtype=np.int64) - offsets[owner]
    return offsets, owner, within


_VIEW_INLINE = 12
_VIEW_LIMIT = 2**31 - 1
_BYTE_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype="<u8")


def validity(valid: Mask | None) -> Any:
    """The Arrow bitmap of a mask; None, which means no nulls, for none."""
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    held = np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [validity(valid), pa.py_buffer(held)])


def numbers(values: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """An array of numbers, of the type that they have."""
    return fixed(pa.from_numpy_dtype(values.dtype), values, valid)


def texts(values: Sequence[str | None]) -> pa.Array:
    held = [b"" if value is None else value.encode("utf-8") for value in values]
    offsets = np.zeros(len(held) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, held), np.int64, len(held)), out=offsets[1:])
    if offsets[-1] > _VIEW_LIMIT:
        raise ValueError("more than two gigabytes of text in one column")
    valid = np.fromiter((value is not None for value in values), bool, len(held))
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(held))]
    return pa.Array.from_buffers(pa.string(), len(held), buffers)


def text(value: str | None) -> pa.Scalar:
    return texts([value])[0]


def as_numbers(column: pa.Array, dtype: str) -> npt.NDArray[Any]:
    """The numbers in an array without nulls, or with anything in their place, as numpy has them."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * width)


def as_mask(column: pa.Array) -> Mask:
    """The truth values of an array without nulls."""
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    mask: Mask = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :].astype(bool)
    return mask


def words(kind: pa.DataType, count: int, pairs: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Values of sixteen bytes, given as two words each."""
    return pa.Array.from_buffers(kind, count, [validity(valid), pa.py_buffer(np.ascontiguousarray(pairs))])


def nested(
    kind: pa.DataType, count: int, offsets: Ints | None, children: list[pa.Array], valid: Mask | None
) -> pa.Array:
    buffers = [validity(valid)]
    if offsets is not None:
        if offsets[-1] > _VIEW_LIMIT:
            raise ValueError("more than two billion elements in one column")
        buffers.append(pa.py_buffer(offsets.astype(np.int32)))
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def binary(kind: pa.DataType, space: ByteSpace, start: Ints, length: Ints, valid: Mask | None) -> pa.Array:
    """Texts or byte strings of any length. Arrow's views point into the space, and Arrow itself then copies."""
    if space.size > _VIEW_LIMIT:
        return _binary_in_parts(kind, space, start, length, valid)
    low = space.gather("<u8", start)
    high = space.gather("<u4", start + 8).astype("<u8")
    low &= _BYTE_MASKS[np.minimum(length, 8)]
    high &= _BYTE_MASKS[np.clip(length - 8, 0, 4)]
    inline = length <= _VIEW_INLINE
    views = np.empty((len(start), 4), "<u4")
    views[:, 0] = length
    views[:, 1] = low & np.uint64(0xFFFFFFFF)
    views[:, 2] = np.where(inline, low >> np.uint64(32), np.uint64(0))
    views[:, 3] = np.where(inline, high, start.astype("<u8"))
    view_kind = pa.string_view() if pa.types.is_string(kind) else pa.binary_view()
    buffers = [validity(valid), pa.py_buffer(views), pa.py_buffer(space.data)]
    return pa.Array.from_buffers(view_kind, len(start), buffers).cast(kind)


def _binary_in_parts(kind: pa.DataType, space: ByteSpace, start: Ints, length: Ints, valid: Mask | None) -> pa.Array:
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    if offsets[-1] > _VIEW_LIMIT:
        raise ValueError("more than two gigabytes of text in one column")
    held = np.empty(int(offsets[-1]), np.uint8)
    for index, (begin, size) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        held[offsets[index] : offsets[index + 1]] = space.data[begin : begin + size]
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(held)]
    return pa.Array.from_buffers(kind, len(start), buffers)
