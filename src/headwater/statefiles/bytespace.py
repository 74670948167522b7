"""Many rows' bytes side by side, read a column at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
else:  # numpy.typing takes a while to import, and nothing here needs it to run
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
