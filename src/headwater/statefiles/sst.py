"""RocksDB's table files (block-based tables), decoded column by column.

A table consists of data blocks, an index block that locates them, a properties block and a footer. Each block is
followed by its compression type and a checksum. An entry of a data block is ``shared, unshared, value length``
(varints), the part of the key that differs from the previous key, and the value. About every sixteenth key is complete;
the end of the block lists the positions of these restarts. All runs between restarts are decoded in parallel, one entry
of each run per step. A key ends with eight bytes: its sequence number and the operation.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.statefiles.buffers import LOW_BYTES, PADDING, ByteSpace, Ints, expand
from headwater.statefiles.records import DELETE, MERGE, PUT, Records, no_records
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
_OPERATIONS = {0: DELETE, 1: PUT, 2: MERGE, 7: DELETE}
_SEQUENCE_BYTES = 8


@dataclass(frozen=True)
class _Handle:
    offset: int
    size: int


def read_tables(files: FileTree, paths: Sequence[str], only: Sequence[bytes] | None = None) -> list[Records]:
    """Return every operation in some tables of one database, table by table, ranked by sequence number.

    With ``only`` (sorted keys), read just the blocks that can contain them; other keys of those blocks are included.
    """
    return [_parse_table(read_table(files, path), path, only) for path in paths]


def read_table(files: FileTree, path: str) -> bytes:
    """Return the bytes of a table file."""
    try:
        return files.read(path)
    except FileNotFoundError:
        raise corrupt_state(path, "is missing, and a snapshot needs it") from None


def _parse_table(data: bytes, path: str, only: Sequence[bytes] | None) -> Records:
    checksum_kind, meta, index = _footer(data, path)
    block = _BlockReader(data, path, checksum_kind)
    properties = _properties(block, meta)
    if int.from_bytes(properties.get("block.based.table.index.type", b""), "little"):
        raise unknown_format(path, "has an index of an unknown type")
    if properties.get("comparator") != b"leveldb.BytewiseComparator":
        raise unknown_format(path, "uses an unknown key comparator")
    if any(properties.get("num.range-deletions", b"").strip(b"\0")) or "external_sst_file.version" in properties:
        raise unknown_format(path, "has range deletions, or was ingested from outside")
    delta_encoded = properties.get("index.value.is.delta.encoded", b"\0") != b"\0"
    user_keys = properties.get("index.key.is.user.key", b"\0") != b"\0"
    found = _index(ByteSpace(block.read(index)), path, delta_encoded=delta_encoded)
    chosen = found if only is None else found.holding(only, 0 if user_keys else _SEQUENCE_BYTES)
    space, starts, ends = block.read_all(chosen.offsets, chosen.sizes)
    return _entries(space, starts, ends, path)


def _footer(data: bytes, path: str) -> tuple[int, _Handle, _Handle]:
    if len(data) < _FOOTER_BYTES:
        raise corrupt_state(path, "is shorter than the footer of a RocksDB table")
    footer = data[-_FOOTER_BYTES:]
    version, magic = struct.unpack_from("<IQ", footer, 41)
    if magic != _MAGIC:
        raise corrupt_state(path, "does not end with the footer of a RocksDB table")
    if version not in _KNOWN_VERSIONS:
        raise unknown_format(path, f"is a RocksDB table of unsupported format version {version}")
    meta, at = _handle(footer, 1)
    index, _ = _handle(footer, at)
    return footer[0], meta, index


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


class _BlockReader:
    """Reads, verifies and decompresses the blocks of one table."""

    def __init__(self, data: bytes, path: str, checksum_kind: int) -> None:
        self._data, self._path, self._checksum_kind = memoryview(data), path, checksum_kind

    def read(self, handle: _Handle) -> bytes:
        space, starts, ends = self.read_all(np.array([handle.offset]), np.array([handle.size]))
        return space.text(int(starts[0]), int(ends[0] - starts[0]))

    def read_all(self, offsets: Ints, sizes: Ints) -> tuple[ByteSpace, Ints, Ints]:
        """Return the contents of the blocks in one buffer, and where each begins and ends."""
        table = ByteSpace(np.frombuffer(self._data, np.uint8))
        if len(offsets) and int((offsets + sizes).max()) + _TRAILER_BYTES > table.size:
            raise corrupt_state(self._path, "is truncated")
        kinds = table.gather("u1", offsets + sizes)
        unknown = set(np.unique(kinds).tolist()) - {_RAW, _SNAPPY, _LZ4, _LZ4HC, _ZSTD}
        if unknown:
            raise unknown_format(self._path, f"has blocks of unknown compression type {min(unknown)}")
        lengths, headers = varints(table, offsets)
        packed_with_length = (kinds == _LZ4) | (kinds == _LZ4HC) | (kinds == _ZSTD)
        lengths = np.where(packed_with_length, lengths, np.where(kinds == _SNAPPY, lengths, sizes))
        headers = np.where(packed_with_length, headers, 0)
        ends = np.cumsum(lengths)
        contents = np.zeros(int(ends[-1]) + PADDING if len(ends) else PADDING, np.uint8)
        checksums = table.gather("<u4", offsets + sizes + 1)
        self._decompress(contents, np.stack([offsets, sizes, headers, lengths, kinds, checksums], axis=1))
        return ByteSpace(contents, padded=True), ends - lengths, ends

    def _decompress(self, into: npt.NDArray[np.uint8], blocks: Ints) -> None:
        import cramjam  # noqa: PLC0415  rarely needed
        import pyarrow as pa  # noqa: PLC0415
        import xxhash  # noqa: PLC0415

        data, target, at = self._data, memoryview(into), 0  # type: ignore[arg-type]
        zstd = pa.Codec("zstd")
        lz4, digest, check = cramjam.lz4.decompress_block_into, xxhash.xxh3_64_intdigest, self._checksum_kind == _XXH3
        try:
            for offset, size, header, length, kind, checksum in blocks.tolist():
                packed, output = data[offset : offset + size], target[at : at + length]
                at += length
                if check and (digest(packed) ^ (kind * _XXH3_PRIME)) & 0xFFFFFFFF != checksum:
                    raise corrupt_state(self._path, f"has a block at byte {offset} with a wrong checksum")
                if kind in (_LZ4, _LZ4HC):
                    lz4(packed[header:], output)
                elif kind == _RAW:
                    output[:] = packed
                elif kind == _SNAPPY:
                    output[:] = bytes(cramjam.snappy.decompress_raw(packed))
                else:
                    output[:] = zstd.decompress(packed[header:], length, asbytes=True)
        except (cramjam.DecompressionError, OSError, ValueError):
            raise corrupt_state(self._path, "has a block that cannot be decompressed") from None


def _properties(block: _BlockReader, meta: _Handle) -> dict[str, bytes]:
    for name, value in _small_block(block.read(meta)):
        if name == b"rocksdb.properties":
            found = _small_block(block.read(_handle(value, 0)[0]))
            return {key.decode("latin-1").removeprefix("rocksdb."): value for key, value in found}
    return {}


def _small_block(data: bytes) -> list[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", data, len(data) - 4)
    end, at, key, found = len(data) - 4 - 4 * restarts, 0, b"", []
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


def _restarts(space: ByteSpace, starts: Ints, ends: Ints, path: str) -> tuple[Ints, Ints]:
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
class _Index:
    """The data blocks, each with a separator: a key not before any in the block and before all in the next block."""

    space: ByteSpace
    key_start: Ints
    key_length: Ints
    offsets: Ints
    sizes: Ints

    def holding(self, keys: Sequence[bytes], trailer: int) -> _Index:
        """Return the blocks that can contain these keys."""
        pairs = zip(self.key_start.tolist(), (self.key_length - trailer).tolist(), strict=True)
        separators = [self.space.text(start, length) for start, length in pairs]
        blocks = {bisect_left(separators, key) for key in keys}
        # A key can have several entries, and those can continue in the next block.
        numbers = {block for first in blocks for block in (first, first + 1) if block < len(separators)}
        chosen = np.array(sorted(numbers), np.int64)
        return _Index(
            self.space,
            self.key_start[chosen],
            self.key_length[chosen],
            self.offsets[chosen],
            self.sizes[chosen],
        )


def _index(space: ByteSpace, path: str, *, delta_encoded: bool) -> _Index:
    """Return the data blocks. Every index entry is a restart, so none depends on the entry before it."""
    at, ends = _restarts(space, np.array([0]), np.array([space.size]), path)
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
    return _Index(space, key_start, unshared, offsets, sizes)


def _entries(space: ByteSpace, starts: Ints, ends: Ints, path: str) -> Records:
    if not len(starts):
        return no_records()
    at, run_ends = _restarts(space, starts, ends, path)
    steps = []
    run = np.arange(len(at))
    while len(run):
        shared, size = varints(space, at)
        key_at = at + size
        unshared, size = varints(space, key_at)
        key_at = key_at + size
        length, size = varints(space, key_at)
        key_at = key_at + size
        value_at = key_at + unshared
        steps.append((run, shared, unshared, key_at, value_at, length))
        at = value_at + length
        if (at > run_ends).any():
            raise corrupt_state(path, "has an entry that extends beyond its block")
        going = at < run_ends
        run, at, run_ends = run[going], at[going], run_ends[going]
    runs, shared, unshared, key_at, value_at, length = (np.concatenate(column) for column in zip(*steps, strict=True))
    del steps
    key_length = shared + unshared
    keys, stride = _complete_keys(space, runs, shared, key_at, key_length, path)
    # A step has one entry of every run; sorting by run restores the order of the keys.
    order = np.argsort(runs, kind="stable")
    key_start = order * stride
    trailer = keys.gather("<u8", key_start + key_length[order] - _SEQUENCE_BYTES)
    return Records(
        keys,
        space,
        _operations(trailer, path),
        key_start,
        key_length[order] - _SEQUENCE_BYTES,
        value_at[order],
        length[order],
        (trailer >> np.uint64(8)).astype(np.int64),
    )


def _complete_keys(
    space: ByteSpace, runs: Ints, shared: Ints, key_at: Ints, key_length: Ints, path: str
) -> tuple[ByteSpace, int]:
    """Return keys completed with the part that they share with the previous key, in rows of equal width."""
    words = int(key_length.max()) // 8 + 1
    if len(runs) * words * 8 > 8 * int(key_length.sum()) + (64 << 20):
        raise unknown_format(path, "has keys of very different lengths")
    data = np.zeros(len(runs) * words + PADDING // 8, "<u8")
    table = data[: len(runs) * words].reshape(len(runs), words)
    current = np.zeros((words, int(runs.max()) + 1), "<u8")
    step_ends = np.append(np.flatnonzero(np.diff(runs) <= 0) + 1, len(runs))
    begin = 0
    for end in step_ends.tolist():
        active, same, source = runs[begin:end], shared[begin:end], key_at[begin:end]
        # While every run continues, entire columns are replaced, which is much faster than chosen positions in them.
        chosen = slice(None) if end - begin == current.shape[1] else active
        for word in range(int(same.min()) // 8, int(key_length[begin:end].max() + 7) // 8):
            kept = same - 8 * word
            fresh = space.gather("<u8", np.clip(source - kept, 0, space.size))
            if (kept > 0).any():
                mask = LOW_BYTES[np.clip(kept, 0, 8)]
                fresh = (current[word, chosen] & mask) | (fresh & ~mask)
            current[word, chosen] = fresh
        table[begin:end] = current[:, chosen].T
        begin = end
    return ByteSpace(data.view(np.uint8), padded=True), words * 8


def _operations(trailer: npt.NDArray[np.uint64], path: str) -> npt.NDArray[np.uint8]:
    kinds = (trailer & np.uint64(0xFF)).astype(np.uint8)
    known = np.zeros(256, np.uint8)
    for kind, operation in _OPERATIONS.items():
        known[kind] = operation
    operations = known[kinds]
    if (operations == 0).any():
        raise unknown_format(path, f"has entries of unknown type {int(kinds[operations == 0][0])}")
    return operations
