"""RocksDB's table files (block-based tables): where their data blocks are, and the contents of some of them.

A table consists of data blocks, a filter, an index block that locates the data blocks, a properties block and a footer.
Each block is followed by its compression type and a checksum. Only the end of a large file and the blocks that are asked
for are read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.statefiles.buffers import PADDING, ByteSpace, Ints, Mask, distinct_bytes, expand
from headwater.statefiles.refusals import corrupt_state, unknown_format

if TYPE_CHECKING:
    import numpy.typing as npt

_FOOTER_BYTES = 53
_MAGIC = 0x88E241B785F4CFF7
_KNOWN_VERSIONS = range(2, 6)
_TRAILER_BYTES = 5
_XXH3 = 4
_XXH3_PRIME = 0x6B9083D9
_HASH_INDEX_BIT = 0x80000000
_RAW, _SNAPPY, _LZ4, _LZ4HC, _ZSTD = 0, 1, 4, 5, 7
SEQUENCE_BYTES = 8
# A file of this size is read at once: a request to an object store takes as long as the transfer.
_READ_AT_ONCE = 1 << 18
_TAIL_BYTES = 1 << 14
# Blocks with a smaller gap between them are read together.
_SMALL_GAP = 1 << 16


@dataclass(frozen=True)
class _Handle:
    offset: int
    size: int


class TableFile:
    """A table file, of which only the parts that are needed are read. ``size`` saves a request if it is known."""

    def __init__(self, files: FileTree, path: str, size: int | None = None) -> None:
        self._files, self.path = files, path
        self._given_size = size

    @cached_property
    def size(self) -> int:
        return self._files.size(self.path) if self._given_size is None else self._given_size

    @cached_property
    def _end(self) -> tuple[int, bytes]:
        """The last bytes of the file, and where they begin; the entire file if it is small."""
        try:
            if self.size <= _READ_AT_ONCE:
                return 0, self._files.read(self.path)
            start = self.size - _TAIL_BYTES
            return start, self._files.read_range(self.path, start, _TAIL_BYTES)
        except FileNotFoundError:
            raise corrupt_state(self.path, "is missing, and a snapshot needs it") from None

    @cached_property
    def _footer(self) -> tuple[int, _Handle, _Handle]:
        data = self._end[1]
        if len(data) < _FOOTER_BYTES:
            raise corrupt_state(self.path, "is shorter than the footer of a RocksDB table")
        footer = data[-_FOOTER_BYTES:]
        version, magic = struct.unpack_from("<IQ", footer, 41)
        if magic != _MAGIC:
            raise corrupt_state(self.path, "does not end with the footer of a RocksDB table")
        if version not in _KNOWN_VERSIONS:
            raise unknown_format(self.path, f"is a RocksDB table of unsupported format version {version}")
        meta, at = _handle(footer, 1)
        index, _ = _handle(footer, at)
        return footer[0], meta, index

    @cached_property
    def index(self) -> BlockIndex:
        """The data blocks. Raise ``UnknownFormat`` for a table whose entries cannot be decoded."""
        _, meta, index = self._footer
        properties = self._properties(meta)
        if int.from_bytes(properties.get("block.based.table.index.type", b""), "little"):
            raise unknown_format(self.path, "has an index of an unknown type")
        if properties.get("comparator") != b"leveldb.BytewiseComparator":
            raise unknown_format(self.path, "uses an unknown key comparator")
        if any(properties.get("num.range-deletions", b"").strip(b"\0")) or "external_sst_file.version" in properties:
            raise unknown_format(self.path, "has range deletions, or was ingested from outside")
        delta_encoded = properties.get("index.value.is.delta.encoded", b"\0") != b"\0"
        user_keys = properties.get("index.key.is.user.key", b"\0") != b"\0"
        entries = _varint(properties.get("num.entries") or b"\0", 0)[0]
        return _parse_index(
            ByteSpace(self._block(index)),
            self.path,
            delta_encoded=delta_encoded,
            trailer=0 if user_keys else SEQUENCE_BYTES,
            entries=entries,
        )

    def blocks_with(self, keys: Sequence[bytes]) -> Ints:
        """Return the numbers of the blocks that can contain some keys."""
        return self.index.with_keys(keys)

    def _properties(self, meta: _Handle) -> dict[str, bytes]:
        for name, value in _small_block(self._block(meta)):
            if name == b"rocksdb.properties":
                found = _small_block(self._block(_handle(value, 0)[0]))
                return {key.decode("latin-1").removeprefix("rocksdb."): value for key, value in found}
        return {}

    def _block(self, handle: _Handle) -> bytes:
        space, starts, ends = self._read(np.array([handle.offset]), np.array([handle.size]))
        return space.text(int(starts[0]), int(ends[0] - starts[0]))

    def read_blocks(self, chosen: Ints | slice) -> tuple[ByteSpace, Ints, Ints]:
        """Return the contents of data blocks in one buffer, and where each begins and ends."""
        return self._read(self.index.offsets[chosen], self.index.sizes[chosen])

    def _read(self, offsets: Ints, sizes: Ints) -> tuple[ByteSpace, Ints, Ints]:
        if len(offsets) and int((offsets + sizes).max()) + _TRAILER_BYTES > self.size:
            raise corrupt_state(self.path, "is truncated")
        data, offsets = self._fetch(offsets, sizes + _TRAILER_BYTES)
        table = ByteSpace(np.frombuffer(data, np.uint8))
        kinds = table.gather("u1", offsets + sizes)
        unknown = distinct_bytes(kinds) - {_RAW, _SNAPPY, _LZ4, _LZ4HC, _ZSTD}
        if unknown:
            raise unknown_format(self.path, f"has blocks of unknown compression type {min(unknown)}")
        lengths, headers = varints(table, offsets)
        packed_with_length = (kinds == _LZ4) | (kinds == _LZ4HC) | (kinds == _ZSTD)
        lengths = np.where(packed_with_length, lengths, np.where(kinds == _SNAPPY, lengths, sizes))
        headers = np.where(packed_with_length, headers, 0)
        ends = np.cumsum(lengths)
        contents = np.empty((int(ends[-1]) if len(ends) else 0) + PADDING, np.uint8)
        contents[-PADDING:] = 0
        checksums = table.gather("<u4", offsets + sizes + 1)
        self._decompress(data, contents, np.stack([offsets, sizes, headers, lengths, kinds, checksums], axis=1))
        return ByteSpace(contents, padded=True), ends - lengths, ends

    def _fetch(self, offsets: Ints, sizes: Ints) -> tuple[bytes, Ints]:
        """Return bytes that include all these ranges, and where each range begins in them."""
        start, tail = self._end
        if not len(offsets) or int(offsets.min()) >= start:
            return tail, offsets - start
        order = np.argsort(offsets, kind="stable")
        begins, ends = offsets[order], (offsets + sizes)[order]
        apart = np.flatnonzero(begins[1:] - ends[:-1] > _SMALL_GAP) + 1
        parts, moved, at = [], np.empty(len(offsets), np.int64), 0
        for group in np.split(np.arange(len(begins)), apart):
            begin, size = int(begins[group[0]]), int(ends[group].max() - begins[group[0]])
            parts.append(self._files.read_range(self.path, begin, size))
            if len(parts[-1]) < size:
                raise corrupt_state(self.path, "is truncated")
            moved[order[group]] = begins[group] - begin + at
            at += size
        return parts[0] if len(parts) == 1 else b"".join(parts), moved

    def _decompress(self, source: bytes, into: npt.NDArray[np.uint8], blocks: Ints) -> None:
        import cramjam  # noqa: PLC0415  rarely needed
        import pyarrow as pa  # noqa: PLC0415
        import xxhash  # noqa: PLC0415

        data, target, at = memoryview(source), memoryview(into), 0  # type: ignore[arg-type]
        zstd = pa.Codec("zstd")
        lz4, digest, check = cramjam.lz4.decompress_block_into, xxhash.xxh3_64_intdigest, self._footer[0] == _XXH3
        try:
            for offset, size, header, length, kind, checksum in blocks.tolist():
                packed, output = data[offset : offset + size], target[at : at + length]
                at += length
                if check and (digest(packed) ^ (kind * _XXH3_PRIME)) & 0xFFFFFFFF != checksum:
                    raise corrupt_state(self.path, f"has a block at byte {offset} with a wrong checksum")
                if kind in (_LZ4, _LZ4HC):
                    lz4(packed[header:], output)
                elif kind == _RAW:
                    output[:] = packed
                elif kind == _SNAPPY:
                    output[:] = bytes(cramjam.snappy.decompress_raw(packed))
                else:
                    output[:] = zstd.decompress(packed[header:], length, asbytes=True)
        except (cramjam.DecompressionError, OSError, ValueError):
            raise corrupt_state(self.path, "has a block that cannot be decompressed") from None


def _handle(data: bytes, at: int) -> tuple[_Handle, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return _Handle(offset, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _small_block(data: bytes) -> list[tuple[bytes, bytes]]:
    (count,) = struct.unpack_from("<I", data, len(data) - 4)
    end, at, key, found = len(data) - 4 - 4 * count, 0, b"", []
    while at < end:
        shared, at = _varint(data, at)
        unshared, at = _varint(data, at)
        length, at = _varint(data, at)
        key = key[:shared] + data[at : at + unshared]
        at += unshared
        found.append((key, data[at : at + length]))
        at += length
    return found


def varints(space: ByteSpace, at: Ints) -> tuple[Ints, Ints]:
    """Return the varints at these positions, and the number of bytes that each takes."""
    byte = space.gather("u1", at)
    value = byte.astype(np.int64)
    size = np.ones(len(at), np.int64)
    longer = np.flatnonzero(byte >= 0x80)
    value[longer] &= 0x7F
    while len(longer):
        byte = space.gather("u1", at[longer] + size[longer])
        value[longer] |= (byte & 0x7F).astype(np.int64) << (7 * size[longer])
        size[longer] += 1
        longer = longer[byte >= 0x80]
        if len(longer) and int(size[longer].max()) > 9:
            raise ValueError("a varint of more than ten bytes")
    return value, size


def restarts(space: ByteSpace, starts: Ints, ends: Ints, path: str) -> tuple[Ints, Ints]:
    """Return where each run of entries begins and ends, across all blocks."""
    counts = space.gather("<u4", ends - 4).astype(np.int64)
    if (counts & _HASH_INDEX_BIT).any():
        raise unknown_format(path, "has blocks with a hash index")
    data_ends = ends - 4 - 4 * counts
    offsets, owner, within = expand(counts)
    begins = starts[owner] + space.gather("<u4", data_ends[owner] + 4 * within).astype(np.int64)
    run_ends = np.append(begins[1:], 0)
    run_ends[offsets[1:] - 1] = data_ends
    return begins, run_ends


@dataclass(frozen=True)
class BlockIndex:
    """The data blocks, each with a separator: a key not before any in the block and before all in the next block."""

    space: ByteSpace
    key_start: Ints
    key_length: Ints
    offsets: Ints
    sizes: Ints
    entries: int

    def __len__(self) -> int:
        return len(self.offsets)

    def separator(self, number: int) -> bytes:
        """Return the separator of a block."""
        return self.space.text(int(self.key_start[number]), int(self.key_length[number]))

    def with_keys(self, keys: Sequence[bytes]) -> Ints:
        """Return the numbers of the blocks that can contain some keys."""
        numbers = range(len(self))
        # A key can have several entries, and those can continue in the next block.
        found = {bisect_left(numbers, key, key=self.separator) + more for key in keys for more in (0, 1)}
        return np.array(sorted(number for number in found if number < len(self)), np.int64)

    def up_to(self, key: bytes) -> int:
        """Return how many blocks have no key after the given one; the next block can have keys on both sides of it."""
        return bisect_right(range(len(self)), key, key=self.separator)

    def with_pattern(self, known: bytes, mask: bytes) -> Ints:
        """Return the numbers of the blocks that can contain a key which has these bytes where the mask is set.

        All keys of a block share the bytes that the separators before and after it have in common, and the first byte in
        which those differ bounds theirs.
        """
        width = len(known)
        separators = self._matrix(width)
        before = np.vstack([np.zeros((1, width), np.uint8), separators[:-1]])
        wanted, given = np.frombuffer(known, np.uint8), np.frombuffer(mask, np.uint8)
        differs = before != separators
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
        mismatch = ((separators ^ wanted) & given) != 0
        first_mismatch = np.where(mismatch.any(axis=1), mismatch.argmax(axis=1), width)
        possible: Mask = first_mismatch >= first
        place, rows = np.minimum(first, width - 1), np.arange(len(self))
        bounded = (first < width) & (given[place] == 0xFF)
        inside = (before[rows, place] <= wanted[place]) & (wanted[place] <= separators[rows, place])
        possible &= ~bounded | inside
        found: Ints = np.flatnonzero(possible)
        return found

    def _matrix(self, width: int) -> npt.NDArray[np.uint8]:
        """Return the first bytes of the separators, zeros after their end."""
        columns = np.arange(width)
        inside = columns < self.key_length[:, None]
        at = np.where(inside, self.key_start[:, None] + columns, 0)
        taken: npt.NDArray[np.uint8] = np.where(inside, self.space.gather("u1", at), 0).astype(np.uint8)
        return taken


def _parse_index(space: ByteSpace, path: str, *, delta_encoded: bool, trailer: int, entries: int) -> BlockIndex:
    """Return the data blocks. Every index entry is a restart, so none depends on the entry before it."""
    at, ends = restarts(space, np.array([0]), np.array([space.size]), path)
    shared, size = varints(space, at)
    at = at + size
    unshared, size = varints(space, at)
    at = at + size
    if not delta_encoded:
        at = at + varints(space, at)[1]
    key_start = at
    at = at + unshared
    offsets, size = varints(space, at)
    at = at + size
    sizes, size = varints(space, at)
    if shared.any() or (at + size != ends).any():
        raise unknown_format(path, "has an index with delta-encoded keys")
    return BlockIndex(space, key_start, unshared - trailer, offsets, sizes, entries)
