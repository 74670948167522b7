"""Find where the records of a state file begin.

A record contains its own lengths, so each record can only be located from the one before. Long files are divided into
segments. In each segment likely record starts are guessed, and all segments are scanned in parallel. A chain from the
first record then verifies the guesses: every segment has to begin exactly where the one before it ends. If there is no
such chain, the file is scanned one record at a time. Where many records in a row have the same lengths, the first one
determines the others, and all are verified at once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints, Mask
from headwater.statefiles.refusals import corrupt_state

if TYPE_CHECKING:
    import numpy.typing as npt

_END_OF_FILE = 0x00
_PARALLEL_FROM_BYTES = 1 << 19
_LONGEST_GUESSED = 1 << 16
_SEGMENTS = 1024
_WINDOW = 192
_PROBED_RECORDS = 1000
_HOPS = 3


@dataclass(frozen=True)
class ScannedPiece:
    """The complete records in a piece of a file, where the next record would begin, and whether the end mark was found."""

    starts: Ints
    stopped_at: int
    ended: bool


def record_starts(space: ByteSpace, begins_at: int, path: str, *, typed: bool) -> Ints:
    """Return where each record begins.

    ``typed`` records have a type byte before the key's length, which is 0 at the end; others end with a key length of -1.
    """
    found = scan_piece(space, begins_at, path, typed=typed)
    if not found.ended:
        cut = found.stopped_at < space.size
        raise corrupt_state(
            path, "is truncated in the middle of a record" if cut else "is truncated: its end mark is missing"
        )
    return found.starts


def scan_piece(space: ByteSpace, begins_at: int, path: str, *, typed: bool) -> ScannedPiece:
    """Return the records of a piece of a file, the last of which may continue in the next piece."""
    head = 1 if typed else 0
    starts: list[Ints] = []
    at, ended, going = begins_at, False, True
    while going:
        is_long = space.size - at >= _PARALLEL_FROM_BYTES
        found, after, ended = _scan_sequentially(space, at, path, head=head, limit=_PROBED_RECORDS if is_long else None)
        starts.append(np.array(found, np.int64))
        at = after
        going = len(found) == _PROBED_RECORDS and is_long and not ended
        if not going:
            break
        run = _scan_uniform(space, starts[-1], at, head)
        if len(run) < _PROBED_RECORDS:
            piece = _scan_in_parallel(space, starts[-1], at, path, head=head)
            starts.append(piece.starts)
            at, ended, going = piece.stopped_at, piece.ended, False
        else:
            starts.append(run)
            at = int(2 * run[-1] - run[-2])
    return ScannedPiece(np.concatenate(starts), at, ended)


def _scan_sequentially(
    space: ByteSpace, at: int, path: str, *, head: int, limit: int | None = None
) -> tuple[list[int], int, bool]:
    """Return record starts from ``at``, at most ``limit``, where the next one would be, and whether the end mark is there."""
    data, size = memoryview(space.data), space.size  # type: ignore[arg-type]
    found: list[int] = []
    length_at, append = struct.Struct(">i").unpack_from, found.append
    while at + head + (0 if head else 4) <= size and len(found) != limit:
        if head and data[at] == _END_OF_FILE:
            return found, at + 1, True
        if at + head + 4 > size:
            break
        (key,) = length_at(data, at + head)
        if key < 0:
            if key == -1 and not head:
                return found, at + 4, True
            raise corrupt_state(path, f"has a record with a key of {key} bytes")
        after_key = at + head + 4 + key
        if after_key + 4 > size:
            break
        (value,) = length_at(data, after_key)
        after = after_key + 4 + (value if value > 0 else 0)
        if after > size:
            break
        append(at)
        at = after
    return found, at, False


def _scan_uniform(space: ByteSpace, probed: Ints, at: int, head: int) -> Ints:
    """Return the records from ``at`` on that have the lengths and the type of the last one, up to the first that has not.

    A record that begins where the one before it ends, and has its lengths, determines where the next one begins.
    """
    stride = at - int(probed[-1])
    key = int(space.gather(">i4", probed[-1:] + head)[0])
    if int(probed[-1]) - int(probed[-2]) != stride:
        return probed[:0]
    most = (space.size - at) // stride
    for count in (min(most, _PROBED_RECORDS), most):
        same = np.ones(count, bool)
        for place, form in ((head, ">i4"), (head + 4 + key, ">i4"), *([(0, "u1")] if head else [])):
            expected = space.gather(form, probed[-1:] + place)[0]
            view = np.ndarray((count,), form, space.data.data, at + place, (stride,))
            same &= view == expected
        run = count if bool(same.all()) else int(same.argmin())
        if run < count:
            break
    found: Ints = at + stride * np.arange(run, dtype=np.int64)
    return found


def _scan_in_parallel(space: ByteSpace, probed: Ints, begins_at: int, path: str, *, head: int) -> ScannedPiece:
    """Scan all segments at once. ``probed`` are records before ``begins_at``, which show what records look like."""
    cuts, starts, segment = _guess_starts(space, begins_at, _RecordShape(space, probed, head))
    limits = np.append(cuts[1:], space.size)[segment]
    # The last segment has the end mark or an incomplete record, which only the sequential scan checks.
    going = segment < len(cuts) - 1
    steps, lanes, ends = _follow(space, starts[going], limits[going], head)
    chain = _verified_chain(starts, segment, ends, len(cuts))
    if chain is None:
        found, at, ended = _scan_sequentially(space, begins_at, path, head=head)
        return ScannedPiece(np.array(found, np.int64), at, ended)
    *inner, last = chain
    true_lane = np.zeros(len(starts), bool)
    true_lane[inner] = True
    verified = true_lane[lanes]
    # Segments are in order, and so are the steps within each: small lane numbers sort much faster than positions.
    scanned = steps[verified][np.argsort(lanes[verified], kind="stable")]
    rest, at, ended = _scan_sequentially(space, int(starts[last]), path, head=head)
    return ScannedPiece(np.concatenate([scanned, np.array(rest, np.int64)]), at, ended)


def _verified_chain(starts: Ints, segment: Ints, ends: Ints, segments: int) -> list[int] | None:
    """Return the guesses that follow from the first record, each starting where the one before ends; None if any fails."""
    by_place = {(int(part), int(start)): lane for lane, (part, start) in enumerate(zip(segment, starts, strict=True))}
    chain = [0]
    for part in range(1, segments):
        lane = by_place.get((part, int(ends[chain[-1]])))
        if lane is None:
            return None
        chain.append(lane)
    return chain


class _RecordShape:
    """The lengths and types that occur in the first records of a file, to recognize others by."""

    def __init__(self, space: ByteSpace, probed: Ints, head: int) -> None:
        self._space, self._head = space, head
        self._types = np.zeros(256, bool)
        self._types[space.gather("u1", probed)] = True
        key = space.gather(">i4", probed + head).astype(np.int64)
        value = space.gather(">i4", probed + head + 4 + key).astype(np.int64)
        self._keys, self._values = _occurring(key), _occurring(value + 1)

    def matches(self, at: Ints) -> tuple[Mask, Ints]:
        """Return which positions could start a record, and where the next one would then begin."""
        space, head = self._space, self._head
        inside = at < space.size
        at = np.where(inside, at, 0)
        key = space.gather(">i4", at + head).astype(np.int64)
        likely: Mask = inside & (key > 0) & (key < _LONGEST_GUESSED)
        key = np.where(likely, key, 0)
        likely &= self._keys[key] & (at + head + 8 + key <= space.size)
        value = space.gather(">i4", np.where(likely, at + head + 4 + key, 0)).astype(np.int64) + 1
        likely &= (value >= 0) & (value < _LONGEST_GUESSED)
        value = np.where(likely, value, 0)
        likely &= self._values[value]
        if head:
            likely &= self._types[space.gather("u1", at)]
        return likely, at + head + 8 + key + np.maximum(value - 1, 0)


def _occurring(lengths: Ints) -> npt.NDArray[np.bool_]:
    seen = np.zeros(_LONGEST_GUESSED, bool)
    seen[lengths[(lengths >= 0) & (lengths < _LONGEST_GUESSED)]] = True
    return seen


def _guess_starts(space: ByteSpace, begins_at: int, shape: _RecordShape) -> tuple[Ints, Ints, Ints]:
    """Return the segment boundaries, the likely first records in each segment, and the segment of each of those.

    If keys and values have similar lengths, a value can be mistaken for a key, so a segment has up to two guesses.
    """
    cuts = np.linspace(begins_at, space.size, _SEGMENTS + 1).astype(np.int64)[1:-1]
    at = (cuts[:, None] + np.arange(_WINDOW)).ravel()
    likely, first_hop = shape.matches(at)
    chosen, then = np.flatnonzero(likely), first_hop[likely]
    for _ in range(_HOPS - 1):
        good, then = shape.matches(then)
        likely[chosen[~good]] = False
        chosen, then = chosen[good], then[good]
    candidates, hops = likely.reshape(len(cuts), _WINDOW), first_hop.reshape(len(cuts), _WINDOW)
    matched = candidates.any(axis=1)
    cuts, candidates, hops = cuts[matched], candidates[matched], hops[matched]
    rows, places = np.arange(len(cuts)), np.arange(_WINDOW)
    first = candidates.argmax(axis=1)
    between = candidates & (places > first[:, None]) & (cuts[:, None] + places < hops[rows, first][:, None])
    second = between.argmax(axis=1)
    other = between.any(axis=1)
    starts = np.concatenate([[begins_at], cuts + first, (cuts + second)[other]])
    segment = np.concatenate([[0], rows + 1, rows[other] + 1])
    order = np.argsort(segment, kind="stable")
    return np.concatenate([[begins_at], cuts]), starts[order], segment[order]


def _follow(space: ByteSpace, starts: Ints, limits: Ints, head: int) -> tuple[Ints, npt.NDArray[np.uint16], Ints]:
    """Follow records from each start up to its limit; return them, the lane of each, and where each lane passes its limit."""
    at, lane = starts, np.arange(len(starts), dtype=np.uint16)
    ends = np.full(len(starts), -1, np.int64)
    steps, lanes = [at[:0]], [lane[:0]]
    while len(at):
        steps.append(at)
        lanes.append(lane)
        key = space.gather(">i4", at + head).astype(np.int64)
        after_key = at + head + 4 + key
        valid = (key >= 0) & (after_key <= space.size)
        value = space.gather(">i4", np.where(valid, after_key, 0))
        at = after_key + 4 + np.maximum(value, 0)
        valid &= at <= space.size
        past = valid & (at >= limits)
        ends[lane[past]] = at[past]
        going = valid & ~past
        at, limits, lane = at[going], limits[going], lane[going]
    return np.concatenate(steps), np.concatenate(lanes), ends
