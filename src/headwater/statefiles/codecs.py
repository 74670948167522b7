"""Compression of state files. The first bytes of a file show which codec wrote it.

Spark's LZ4 stream is that of lz4-java. Each block begins with ``LZ4Block``, a token (high nibble 1: raw, 2: compressed),
the compressed and the decompressed length (int32 little-endian) and a checksum. A block of length 0 ends the stream.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from headwater.statefiles.buffers import PADDING, Bytes, ByteSpace
from headwater.statefiles.refusals import corrupt_state, unknown_format

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_SEED = 0x9747B28C
_LZ4_CHECKSUM_MASK = 0x0FFFFFFF
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_LEVEL_BASE = 10  # the token's low nibble is a level: a block has at most 2^(10 + level) bytes
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A guard against decompression bombs: no state that Spark writes compresses to less than a thousandth.
_ZSTD_MOST_BYTES, _ZSTD_MOST_TIMES = 1 << 30, 1000
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16
_LZF_MAGIC = b"ZV"
_LONGEST_MAGIC = 8


def decompress(data: bytes, path: str) -> ByteSpace:
    """Return the decompressed bytes of a state file; ``path`` appears in error messages."""
    if data.startswith(_LZ4_MAGIC):
        return _lz4(data, path)
    if data.startswith(_ZSTD_MAGIC):
        return ByteSpace(_zstd(data, path))
    if data.startswith(_SNAPPY_MAGIC):
        return ByteSpace(_snappy(data, path))
    if data.startswith(_LZF_MAGIC):
        return ByteSpace(_lzf(data, path))
    if not data:
        raise corrupt_state(path, "is empty")
    raise unknown_format(path, f"begins with {data[:8]!r}, which is not a known compression format")


def decompressed_pieces(blocks: Iterable[bytes], path: str, size: int) -> Iterator[Bytes]:
    """Yield the decompressed bytes of a state file, given in blocks, in pieces of roughly a size.

    LZ4 and Zstandard, which Spark uses by default and recommends, are decompressed piece by piece.
    """
    source = iter(blocks)
    first = b""
    while len(first) < _LONGEST_MAGIC and (more := next(source, b"")):
        first += more
    rest = chain([first], source)
    if first.startswith(_LZ4_MAGIC):
        yield from _lz4_pieces(rest, path, size)
    elif first.startswith(_ZSTD_MAGIC):
        yield from _zstd_pieces(rest, path, size)
    else:
        space = decompress(b"".join(rest), path)
        for at in range(0, space.size, size):
            yield space.data[at : min(at + size, space.size)]


def _lz4_pieces(source: Iterable[bytes], path: str, size: int) -> Iterator[Bytes]:
    data = b""
    for more in source:
        data += more
        blocks, used = _lz4_blocks(data, path, partial=True)
        if sum(block[3] for block in blocks) >= size:
            yield from _lz4_grouped(data, blocks, path, size)
            data = data[used:]
    if data:
        yield from _lz4_grouped(data, _lz4_blocks(data, path)[0], path, size)


def _lz4_grouped(data: bytes, blocks: list[tuple[int, int, int, int, int]], path: str, size: int) -> Iterator[Bytes]:
    group, total = [], 0
    for block in blocks:
        group.append(block)
        total += block[3]
        if total >= size:
            yield _lz4_piece(data, group, path)
            group, total = [], 0
    if group:
        yield _lz4_piece(data, group, path)


def _lz4_piece(data: bytes, blocks: list[tuple[int, int, int, int, int]], path: str) -> Bytes:
    decompressed = np.empty(sum(block[3] for block in blocks), np.uint8)
    _decompress_blocks(decompressed, data, blocks, path)
    return decompressed


def _zstd_pieces(source: Iterable[bytes], path: str, size: int) -> Iterator[Bytes]:
    import pyarrow as pa  # noqa: PLC0415  not every codec needs it

    packed = _ReadableBlocks(source)
    found = 0
    try:
        with pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd") as reader:
            while piece := reader.read(size):
                found += len(piece)
                most = max(_ZSTD_MOST_BYTES, _ZSTD_MOST_TIMES * packed.count)
                if found > most:
                    raise corrupt_state(path, f"decompresses to more than {most >> 20:,} MB, which is not plausible")
                yield np.frombuffer(piece, np.uint8)
    except OSError as error:
        raise corrupt_state(path, f"cannot be decompressed: {error}") from None


class _ReadableBlocks(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks, self._held, self.count = iter(blocks), b"", 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._held) < size:
            more = next(self._blocks, b"")
            if not more:
                break
            self._held += more
            self.count += len(more)
        found, self._held = (self._held, b"") if size < 0 else (self._held[:size], self._held[size:])
        return found


def _lz4(data: bytes, path: str) -> ByteSpace:
    blocks, _ = _lz4_blocks(data, path)
    decompressed = np.zeros(sum(block[3] for block in blocks) + PADDING, np.uint8)
    _decompress_blocks(decompressed, data, blocks, path)
    return ByteSpace(decompressed, padded=True)


def _lz4_blocks(data: bytes, path: str, *, partial: bool = False) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """Return for each block where its data begins, its compressed length, method, decompressed length and checksum.

    Also return where the last complete block ends. If the data is ``partial``, more of the next block may follow.
    """
    found, at, end = [], 0, len(data)
    complete = 0
    while at < end:
        if at + _LZ4_HEADER.size > end:
            if partial:
                break
            raise corrupt_state(path, "is truncated in the middle of a compressed block")
        magic, token, packed, length, checksum = _LZ4_HEADER.unpack_from(data, at)
        at += _LZ4_HEADER.size
        method = token & 0xF0
        too_long = length > 1 << (_LZ4_LEVEL_BASE + (token & 0x0F))  # a corrupt length must not allocate memory
        half_empty = (length == 0) != (packed == 0) or (length == 0 and checksum != 0)
        negative = packed < 0 or length < 0
        if magic != _LZ4_MAGIC or method not in (_LZ4_RAW, _LZ4_COMPRESSED) or negative or too_long or half_empty:
            raise corrupt_state(path, f"has a corrupt block header at byte {at - _LZ4_HEADER.size}")
        if at + packed > end:
            if partial:
                break
            raise corrupt_state(path, "is truncated in the middle of a compressed block")
        if length:
            found.append((at, packed, method, length, checksum))
        at += packed
        complete = at
    return found, complete


def _decompress_blocks(into: np.ndarray, data: bytes, blocks: list[tuple[int, int, int, int, int]], path: str) -> None:
    import cramjam  # noqa: PLC0415  not every codec needs it
    import xxhash  # noqa: PLC0415

    source, target, at = memoryview(data), memoryview(into), 0  # type: ignore[arg-type]
    decompress_into, digest = cramjam.lz4.decompress_block_into, xxhash.xxh32_intdigest
    for start, packed, method, length, checksum in blocks:
        part, output = source[start : start + packed], target[at : at + length]
        at += length
        try:
            if method == _LZ4_RAW:
                output[:] = part
            else:
                decompress_into(part, output)
        except (cramjam.DecompressionError, ValueError):
            raise corrupt_state(path, f"has a block at byte {start} that cannot be decompressed") from None
        if digest(output, _LZ4_SEED) & _LZ4_CHECKSUM_MASK != checksum:
            raise corrupt_state(path, f"has a block at byte {start} with a wrong checksum")


def _zstd(data: bytes, path: str) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  not every codec needs it

    most = max(_ZSTD_MOST_BYTES, _ZSTD_MOST_TIMES * len(data))
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as reader:
            found: bytes = reader.read(most)
            more = reader.read(1)
    except OSError as error:
        raise corrupt_state(path, f"cannot be decompressed: {error}") from None
    if more:
        raise corrupt_state(path, f"decompresses to more than {most >> 20:,} MB, which is not plausible")
    return found


def _snappy(data: bytes, path: str) -> bytes:
    """Decompress snappy-java's stream: a 16-byte header, then blocks, each after its length (int32 big-endian)."""
    import cramjam  # noqa: PLC0415  not every codec needs it

    parts, at = [], _SNAPPY_HEADER_BYTES
    try:
        while at < len(data):
            (packed,) = struct.unpack_from(">i", data, at)
            if packed < 0 or at + 4 + packed > len(data):
                raise corrupt_state(path, "is truncated in the middle of a compressed block")
            parts.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + packed])))
            at += 4 + packed
    except (struct.error, cramjam.DecompressionError):
        raise corrupt_state(path, f"has a block at byte {at} that cannot be decompressed") from None
    return b"".join(parts)


def _lzf(data: bytes, path: str) -> bytes:
    """Decompress LZF chunks: ``ZV``, a type (0 raw, 1 compressed), the lengths (int16 big-endian), the data."""
    parts, at = [], 0
    try:
        while at < len(data):
            magic, kind, packed = struct.unpack_from(">2sBH", data, at)
            if magic != _LZF_MAGIC or kind > 1:
                raise corrupt_state(path, f"has a corrupt chunk header at byte {at}")
            begin = at + (7 if kind else 5)
            part = data[begin : begin + packed]
            if len(part) < packed:
                raise corrupt_state(path, "is truncated in the middle of a compressed chunk")
            parts.append(_lzf_chunk(part, struct.unpack_from(">H", data, at + 5)[0]) if kind else part)
            at = begin + packed
    except (struct.error, IndexError, ValueError):
        raise corrupt_state(path, f"has a chunk at byte {at} that cannot be decompressed") from None
    return b"".join(parts)


def _lzf_chunk(data: bytes, length: int) -> bytes:
    """Decompress one chunk: literal runs, and back-references given by their length and distance."""
    out, at = bytearray(), 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        count = control >> 5
        if count == 7:
            count += data[at]
            at += 1
        begin = len(out) - ((control & 31) << 8) - data[at] - 1
        at += 1
        if begin < 0:
            raise ValueError("a back-reference before the start of the chunk")
        count += 2
        # A back-reference may overlap what it produces, which then repeats.
        while count > 0:
            piece = out[begin : begin + count]
            out += piece
            count -= len(piece)
    if len(out) != length:
        raise ValueError("a chunk whose length differs from its header")
    return bytes(out)


_LZ4_BLOCK = 1 << 16
_SNAPPY_BLOCK = 1 << 15
_LZF_CHUNK = (1 << 16) - 1
CODECS = ("lz4", "zstd", "snappy", "lzf")


def compress(data: bytes, codec: str) -> bytes:
    """Return a state file in the format of one of ``CODECS``."""
    return b"".join(compressed([data], codec))


def compressed(parts: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Yield a state file in the format of one of ``CODECS`` piece by piece, from the parts of its contents."""
    match codec:
        case "lz4":
            return _lz4_stream(_in_blocks(parts, _LZ4_BLOCK))
        case "zstd":
            return _zstd_stream(parts)
        case "snappy":
            return _snappy_stream(_in_blocks(parts, _SNAPPY_BLOCK))
        case "lzf":
            return _lzf_stream(_in_blocks(parts, _LZF_CHUNK))
        case other:
            raise ValueError(f"unknown codec {other!r}")


def _in_blocks(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of a size; the last one may be smaller."""
    rest = b""
    for part in parts:
        data = rest + part
        end = len(data) - len(data) % size
        yield from (data[at : at + size] for at in range(0, end, size))
        rest = data[end:]
    if rest:
        yield rest


def _lz4_stream(blocks: Iterable[bytes]) -> Iterator[bytes]:
    import cramjam  # noqa: PLC0415  not every codec needs it
    import xxhash  # noqa: PLC0415

    level = _LZ4_BLOCK.bit_length() - 1 - _LZ4_LEVEL_BASE
    for block in blocks:
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        method, stored = (_LZ4_COMPRESSED, packed) if len(packed) < len(block) else (_LZ4_RAW, block)
        checksum = xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_CHECKSUM_MASK
        yield _LZ4_HEADER.pack(_LZ4_MAGIC, method | level, len(stored), len(block), checksum) + stored
    yield _LZ4_HEADER.pack(_LZ4_MAGIC, _LZ4_RAW | level, 0, 0, 0)


def _zstd_stream(parts: Iterable[bytes]) -> Iterator[bytes]:
    import pyarrow as pa  # noqa: PLC0415  not every codec needs it

    target = io.BytesIO()
    with pa.CompressedOutputStream(pa.PythonFile(_Unclosed(target), mode="w"), "zstd") as stream:
        for part in parts:
            stream.write(part)
            yield target.getvalue()
            target.seek(0)
            target.truncate()
    yield target.getvalue()


class _Unclosed(io.RawIOBase):
    """Writes to a buffer that stays open when the stream is closed."""

    def __init__(self, target: io.BytesIO) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._target.write(data)


def _snappy_stream(blocks: Iterable[bytes]) -> Iterator[bytes]:
    import cramjam  # noqa: PLC0415  not every codec needs it

    yield _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        yield struct.pack(">i", len(packed)) + packed


def _lzf_stream(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        yield struct.pack(">2sBH", _LZF_MAGIC, 0, len(block)) + block
