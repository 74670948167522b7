"""Deltas, HDFS-backed snapshots and changelogs, read piece by piece, so that a large file needs little memory.

A piece has some megabytes of decompressed records. A record that continues in the next piece is carried over to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.statefiles.buffers import PADDING, Bytes, ByteSpace, Ints
from headwater.statefiles.codecs import decompressed_pieces
from headwater.statefiles.records import DELETE_RANGE, ChangelogHeader, Records, changelog_header, records_at
from headwater.statefiles.refusals import corrupt_state
from headwater.statefiles.scan import scan_piece

PIECE_BYTES = 16 << 20
BLOCK_BYTES = 4 << 20
_HEADER_BYTES = 1 << 18


class FlatFile:
    """A file of records, read in pieces, as often as it is needed."""

    def __init__(self, files: FileTree, path: str) -> None:
        self._files, self.path = files, path

    def _pieces(self) -> Iterator[Bytes]:
        return decompressed_pieces(self._blocks(), self.path, PIECE_BYTES)

    def _blocks(self) -> Iterator[bytes]:
        """Yield the file in blocks. A file that is smaller than one takes a single request."""
        at = 0
        while block := self._files.read_range(self.path, at, BLOCK_BYTES):
            yield block
            at += len(block)
            if len(block) < BLOCK_BYTES:
                break

    def _header(self, first: ByteSpace) -> ChangelogHeader:
        return changelog_header(first, self.path) if self.path.endswith(".changelog") else ChangelogHeader(1, 0)

    def parts(self) -> Iterator[Records]:
        """Yield all records, ranked by their place in the file."""
        for space, starts, typed, first in self._scanned():
            yield _ranked_from(records_at(space, starts, self.path, typed=typed), first)

    def parts_with(self, needle: bytes, key: bytes | None = None) -> Iterator[Records]:
        """Yield the records that contain some bytes, or have a key that contains them, and all range deletions.

        Other records may be included.
        """
        wanted = _Wanted(needle, key)
        last = self._last_piece_with(wanted)
        if last is None:
            return
        for number, (space, starts, typed, first) in enumerate(self._scanned()):
            near = np.zeros(len(starts), bool)
            if len(starts):
                near[np.searchsorted(starts, wanted.places(space.data[: space.size]), "right") - 1] = True
            if typed:
                near |= space.gather("u1", starts) == DELETE_RANGE
            chosen = np.flatnonzero(near)
            yield replace(records_at(space, starts[chosen], self.path, typed=typed), rank=chosen + first)
            if number > last and not typed:
                return

    def _last_piece_with(self, wanted: _Wanted) -> int | None:
        """Return a piece after which the bytes do not occur; None if no record matters."""
        last, end = None, np.zeros(0, np.uint8)
        for number, piece in enumerate(self._pieces()):
            if number == 0 and self._header(ByteSpace(piece[:_HEADER_BYTES])).version in (2, 4):
                return 0  # a range deletion concerns keys that the file does not contain
            # What crosses the boundary between two pieces is found in the end of one and the beginning of the next.
            across = np.concatenate([end, piece[: wanted.width]])
            if len(wanted.places(across)) or len(wanted.places(piece)):
                last = number
            end = piece[-wanted.width :]
        return last

    def _scanned(self) -> Iterator[tuple[ByteSpace, Ints, bool, int]]:
        """Yield the pieces, where their records begin, whether these have types, and how many records came before."""
        carried, count, ended, begins_at, typed, is_first = np.zeros(0, np.uint8), 0, False, 0, False, True
        for piece in self._pieces():
            if ended:
                break  # Spark writes nothing after the end mark
            space = ByteSpace(np.concatenate([carried, piece, np.zeros(PADDING, np.uint8)]), padded=True)
            if is_first:
                header = self._header(space)
                begins_at, typed, is_first = header.begins_at, header.version in (2, 4), False
            found = scan_piece(space, begins_at, self.path, typed=typed)
            yield space, found.starts, typed, count
            carried, begins_at = space.data[found.stopped_at : space.size], 0
            count, ended = count + len(found.starts), found.ended
        if not ended:
            what = "in the middle of a record" if len(carried) else "its end mark is missing"
            raise corrupt_state(self.path, f"is truncated{' ' if len(carried) else ': '}{what}")


def _ranked_from(records: Records, first: int) -> Records:
    return replace(records, rank=records.rank + first) if first else records


class _Wanted:
    """Bytes to search for: those of a key, if it is known, found by a part of it that seldom occurs elsewhere."""

    def __init__(self, needle: bytes, key: bytes | None) -> None:
        self._pattern = re.compile(re.escape(needle))
        self._stored = b"" if key is None else len(key).to_bytes(4, "big") + key
        self._before = 0 if key is None else 4 + key.index(needle)
        self.width = max(len(needle), len(self._stored))

    def places(self, data: Bytes) -> Ints:
        """Return where the bytes begin."""
        text, stored, before = memoryview(data), self._stored, self._before  # type: ignore[arg-type]
        found = [match.start() for match in self._pattern.finditer(text)]
        if stored:
            found = [at for at in found if at >= before and text[at - before : at - before + len(stored)] == stored]
        return np.array(found, np.int64)
