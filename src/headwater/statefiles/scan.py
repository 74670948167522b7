"""Where the records of a state file begin.

A record's lengths stand inside it, so each can only be found from the one before. Long files are cut into stretches:
likely beginnings are guessed in each, all stretches are followed side by side, and guesses are proved by a chain from
the first record on, in which every stretch begins exactly where the one before ends. Where there is none, the file is
read one record after another.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints, Mask
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
    cuts, starts, stretch = _guessed(space, begins_at, _Looks(space, probed, head))
    limits = np.append(cuts[1:], space.size)[stretch]
    # The last stretch has the end mark, which only following one by one looks for.
    going = stretch < len(cuts) - 1
    steps, lanes, ends = _followed(space, starts[going], limits[going], head)
    chain = _proved(starts, stretch, ends, len(cuts))
    if chain is None:
        return None
    *inner, last = chain
    true_lane = np.zeros(len(starts), bool)
    true_lane[inner] = True
    held = true_lane[lanes]
    # Stretches lie in order, and so do the steps in each: small numbers sort much faster than positions.
    found = steps[held][np.argsort(lanes[held], kind="stable")]
    rest = _one_by_one(space, int(starts[last]), path, head=head)
    return np.concatenate([found, np.array(rest, np.int64)])


def _proved(starts: Ints, stretch: Ints, ends: Ints, stretches: int) -> list[int] | None:
    """The guesses that follow from the first record, each beginning where the one before ends; None if they break off."""
    by_place = {(int(part), int(start)): lane for lane, (part, start) in enumerate(zip(stretch, starts, strict=True))}
    chain = [0]
    for part in range(1, stretches):
        lane = by_place.get((part, int(ends[chain[-1]])))
        if lane is None:
            return None
        chain.append(lane)
    return chain


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


def _guessed(space: ByteSpace, begins_at: int, looks: _Looks) -> tuple[Ints, Ints, Ints]:
    """Where stretches are cut, likely first records in each, and the stretch of each of those.

    Keys and values of like lengths allow of two readings, the other one a field off; so there are up to two guesses.
    """
    cuts = np.linspace(begins_at, space.size, _STRETCHES + 1).astype(np.int64)[1:-1]
    at = (cuts[:, None] + np.arange(_WINDOW)).ravel()
    likely, first_hop = looks.like_a_record(at)
    chosen, then = np.flatnonzero(likely), first_hop[likely]
    for _ in range(_HOPS - 1):
        good, then = looks.like_a_record(then)
        likely[chosen[~good]] = False
        chosen, then = chosen[good], then[good]
    fits, hops = likely.reshape(len(cuts), _WINDOW), first_hop.reshape(len(cuts), _WINDOW)
    held = fits.any(axis=1)
    cuts, fits, hops = cuts[held], fits[held], hops[held]
    rows, places = np.arange(len(cuts)), np.arange(_WINDOW)
    first = fits.argmax(axis=1)
    between = fits & (places > first[:, None]) & (cuts[:, None] + places < hops[rows, first][:, None])
    second = between.argmax(axis=1)
    other = between.any(axis=1)
    starts = np.concatenate([[begins_at], cuts + first, (cuts + second)[other]])
    stretch = np.concatenate([[0], rows + 1, rows[other] + 1])
    order = np.argsort(stretch, kind="stable")
    return np.concatenate([[begins_at], cuts]), starts[order], stretch[order]


def _followed(space: ByteSpace, starts: Ints, limits: Ints, head: int) -> tuple[Ints, npt.NDArray[np.uint16], Ints]:
    """Every record from each start up to its limit, the lane of each, and where each lane first passes its limit."""
    at, lane = starts, np.arange(len(starts), dtype=np.uint16)
    ends = np.full(len(starts), -1, np.int64)
    steps, lanes = [at[:0]], [lane[:0]]
    while len(at):
        steps.append(at)
        lanes.append(lane)
        key = space.gather(">i4", at + head).astype(np.int64)
        after_key = at + head + 4 + key
        sound = (key >= 0) & (after_key <= space.size)
        value = space.gather(">i4", np.where(sound, after_key, 0))
        at = after_key + 4 + np.maximum(value, 0)
        sound &= at <= space.size
        past = sound & (at >= limits)
        ends[lane[past]] = at[past]
        going = sound & ~past
        at, limits, lane = at[going], limits[going], lane[going]
    return np.concatenate(steps), np.concatenate(lanes), ends
