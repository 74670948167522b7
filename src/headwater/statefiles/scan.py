"""Where the records of a state file begin.

A record's lengths stand inside it, so each can only be found from the one before. Long files are cut into stretches:
a likely beginning is guessed in each, all stretches are followed side by side, and the guesses are proved by every
stretch ending exactly where the next one began. One that does not, and the file is read one record after another.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from headwater.statefiles.bytespace import ByteSpace, Ints, Mask
from headwater.statefiles.refusals import broken_state

if TYPE_CHECKING:
    import numpy.typing as npt

_END_OF_FILE = 0x00
_SMALL = 1 << 19
_LONGEST_GUESSED = 1 << 16
_STRETCHES = 1024
_WINDOW = 192
_PROBED_RECORDS = 1000
_HOPS = 3


def record_starts(space: ByteSpace, begins_at: int, path: str, *, typed: bool) -> Ints:
    """``typed`` records have a byte before the key's length, 0 at the end; others end with a key length of -1."""
    if space.size - begins_at >= _SMALL:
        found = _side_by_side(space, begins_at, path, head=1 if typed else 0)
        if found is not None:
            return found
    return np.array(_one_by_one(space, begins_at, path, head=1 if typed else 0), np.int64)


def _one_by_one(
    space: ByteSpace, at: int, path: str, *, head: int, most: int | None = None, end: int | None = None
) -> list[int]:
    """From ``at`` to the end mark, or so many records, or as far as ``end``."""
    data, size = memoryview(space.data), space.size  # type: ignore[arg-type]
    found: list[int] = []
    length_at, append = struct.Struct(">i").unpack_from, found.append
    key = 0
    try:
        while at < size:
            if head and data[at] == _END_OF_FILE:
                return found
            (key,) = length_at(data, at + head)
            if key < 0:
                break
            if len(found) == most or (end is not None and at >= end):
                return found
            (value,) = length_at(data, at + head + 4 + key)
            append(at)
            at += head + 8 + key + (value if value > 0 else 0)
    except struct.error:
        raise broken_state(path, "ends in the middle of a record") from None
    if at >= size:
        raise broken_state(path, "ends without its end mark")
    if key != -1 or head:
        raise broken_state(path, f"has a record with a key of {key} bytes")
    return found


def _side_by_side(space: ByteSpace, begins_at: int, path: str, *, head: int) -> Ints | None:
    probed = np.array(_one_by_one(space, begins_at, path, head=head, most=_PROBED_RECORDS), np.int64)
    if len(probed) < _PROBED_RECORDS:
        return probed
    looks = _Looks(space, probed, head)
    starts = _guessed(space, begins_at, looks)
    pieces = _followed(space, starts, head)
    if pieces is None:
        return None
    last = _one_by_one(space, int(starts[-1]), path, head=head)
    return np.concatenate([pieces, np.array(last, np.int64)])


class _Looks:
    """What records of this file look like: the lengths and types that its first ones have."""

    def __init__(self, space: ByteSpace, probed: Ints, head: int) -> None:
        self._space, self._head = space, head
        self._types = np.zeros(256, bool)
        self._types[space.gather("u1", probed)] = True
        key = space.gather(">i4", probed + head).astype(np.int64)
        value = space.gather(">i4", probed + head + 4 + key).astype(np.int64)
        self._keys, self._values = _seen(key), _seen(value + 1)

    def like_a_record(self, at: Ints) -> tuple[Mask, Ints]:
        """Which positions could be a record's, and where the next one would then begin."""
        space, head = self._space, self._head
        inside = at < space.size
        at = np.where(inside, at, 0)
        key = space.gather(">i4", at + head).astype(np.int64)
        fits: Mask = inside & (key > 0) & (key < _LONGEST_GUESSED)
        key = np.where(fits, key, 0)
        fits &= self._keys[key] & (at + head + 8 + key <= space.size)
        value = space.gather(">i4", np.where(fits, at + head + 4 + key, 0)).astype(np.int64) + 1
        fits &= (value >= 0) & (value < _LONGEST_GUESSED)
        value = np.where(fits, value, 0)
        fits &= self._values[value]
        if head:
            fits &= self._types[space.gather("u1", at)]
        return fits, at + head + 8 + key + np.maximum(value - 1, 0)


def _seen(lengths: Ints) -> npt.NDArray[np.bool_]:
    seen = np.zeros(_LONGEST_GUESSED, bool)
    seen[lengths[(lengths >= 0) & (lengths < _LONGEST_GUESSED)]] = True
    return seen


def _guessed(space: ByteSpace, begins_at: int, looks: _Looks) -> Ints:
    """The first record, and a likely one soon after each cut."""
    cuts = np.linspace(begins_at, space.size, _STRETCHES + 1).astype(np.int64)[1:-1]
    at = (cuts[:, None] + np.arange(_WINDOW)).ravel()
    fits = np.ones(len(at), bool)
    chosen = np.arange(len(at))
    then = at
    for _ in range(_HOPS):
        good, then = looks.like_a_record(then)
        fits[chosen[~good]] = False
        chosen, then = chosen[good], then[good]
    likely = fits.reshape(len(cuts), _WINDOW)
    found = likely.any(axis=1)
    starts = cuts[found] + likely.argmax(axis=1)[found]
    return np.unique(np.concatenate([[begins_at], starts]))


def _followed(space: ByteSpace, starts: Ints, head: int) -> Ints | None:
    """All records before the last start, or None when a stretch does not end where the next begins."""
    at, ends = starts[:-1], starts[1:]
    lane = np.arange(len(at), dtype=np.uint16)
    steps, lanes = [], []
    while len(at):
        steps.append(at)
        lanes.append(lane)
        key = space.gather(">i4", at + head).astype(np.int64)
        after_key = at + head + 4 + key
        if (key < 0).any() or (after_key > ends).any():
            return None
        at = after_key + 4 + np.maximum(space.gather(">i4", after_key), 0)
        if (at > ends).any():
            return None
        going = at < ends
        at, ends, lane = at[going], ends[going], lane[going]
    if not steps:
        return np.zeros(0, np.int64)
    # Stretches lie in order, and so do the steps in each: small numbers sort much faster than positions.
    whole: Ints = np.concatenate(steps)[np.argsort(np.concatenate(lanes), kind="stable")]
    return whole
