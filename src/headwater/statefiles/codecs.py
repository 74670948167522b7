"""The compressed streams that state files are written in, told apart by their first bytes.

Spark's LZ4 stream is lz4-java's: blocks that each begin with ``LZ4Block``, a token (high nibble 1 raw, 2 compressed),
the compressed and the decompressed length (int32 little-endian) and a checksum; a block of length 0 ends it.
"""

from __future__ import annotations

import struct

import numpy as np

from headwater.statefiles.buffers import PADDING, ByteSpace
from headwater.statefiles.refusals import broken_state, unknown_format

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_SEED = 0x9747B28C
_LZ4_CHECKSUM_MASK = 0x0FFFFFFF
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_LEVEL_BASE = 10  # the token's low nibble is a level: blocks have at most 2^(10 + level) bytes
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A few bytes may stand for any number of others; no state that Spark wrote shrinks to a thousandth.
_ZSTD_MOST_BYTES, _ZSTD_MOST_TIMES = 1 << 30, 1000
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16
_LZF_MAGIC = b"ZV"


def decompress(data: bytes, path: str) -> ByteSpace:
    """The bytes inside a state file; ``path`` is for messages."""
    if data.startswith(_LZ4_MAGIC):
        return _lz4(data, path)
    if data.startswith(_ZSTD_MAGIC):
        return ByteSpace(_zstd(data, path))
    if data.startswith(_SNAPPY_MAGIC):
        return ByteSpace(_snappy(data, path))
    if data.startswith(_LZF_MAGIC):
        return ByteSpace(_lzf(data, path))
    if not data:
        raise broken_state(path, "is empty")
    raise unknown_format(path, f"begins with {data[:8]!r}, which is no known compression")


def _lz4(data: bytes, path: str) -> ByteSpace:
    blocks = list(_lz4_blocks(data, path))
    whole = np.zeros(sum(block[3] for block in blocks) + PADDING, np.uint8)
    _fill(whole, data, blocks, path)
    return ByteSpace(whole, padded=True)


def _lz4_blocks(data: bytes, path: str) -> list[tuple[int, int, int, int, int]]:
    """Where each block's data begins, its compressed length, how it is stored, its length and its checksum."""
    found, at, end = [], 0, len(data)
    while at < end:
        if at + _LZ4_HEADER.size > end:
            raise broken_state(path, "ends in the middle of a compressed block")
        magic, token, packed, length, checksum = _LZ4_HEADER.unpack_from(data, at)
        at += _LZ4_HEADER.size
        method = token & 0xF0
        too_long = length > 1 << (_LZ4_LEVEL_BASE + (token & 0x0F))  # and would be room for the asking
        half_empty = (length == 0) != (packed == 0) or (length == 0 and checksum != 0)
        negative = packed < 0 or length < 0
        if magic != _LZ4_MAGIC or method not in (_LZ4_RAW, _LZ4_COMPRESSED) or negative or too_long or half_empty:
            raise broken_state(path, f"has a damaged block header at byte {at - _LZ4_HEADER.size}")
        if at + packed > end:
            raise broken_state(path, "ends in the middle of a compressed block")
        if length:
            found.append((at, packed, method, length, checksum))
        at += packed
    return found


def _fill(whole: np.ndarray, data: bytes, blocks: list[tuple[int, int, int, int, int]], path: str) -> None:
    import cramjam  # noqa: PLC0415  other codecs do without
    import xxhash  # noqa: PLC0415

    source, target, at = memoryview(data), memoryview(whole), 0  # type: ignore[arg-type]
    unpack, digest = cramjam.lz4.decompress_block_into, xxhash.xxh32_intdigest
    for start, packed, method, length, checksum in blocks:
        part, room = source[start : start + packed], target[at : at + length]
        at += length
        try:
            if method == _LZ4_RAW:
                room[:] = part
            else:
                unpack(part, room)
        except (cramjam.DecompressionError, ValueError):
            raise broken_state(path, f"has a compressed block at byte {start} that does not unpack") from None
        if digest(room, _LZ4_SEED) & _LZ4_CHECKSUM_MASK != checksum:
            raise broken_state(path, f"has a compressed block at byte {start} whose checksum is wrong")


def _zstd(data: bytes, path: str) -> bytes:
    import zstandard  # noqa: PLC0415  other codecs do without

    most = max(_ZSTD_MOST_BYTES, _ZSTD_MOST_TIMES * len(data))
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            found = reader.read(most)
            if reader.read(1):
                raise broken_state(path, f"unpacks to more than {most >> 20:,} MB, which no state needs")
            return found
    except zstandard.ZstdError as error:
        raise broken_state(path, f"does not unpack: {error}") from None


def _snappy(data: bytes, path: str) -> bytes:
    """Snappy-java's stream: a header of 16 bytes, then blocks after their compressed length (int32 big-endian)."""
    import cramjam  # noqa: PLC0415  other codecs do without

    parts, at = [], _SNAPPY_HEADER_BYTES
    try:
        while at < len(data):
            (packed,) = struct.unpack_from(">i", data, at)
            if packed < 0 or at + 4 + packed > len(data):
                raise broken_state(path, "ends in the middle of a compressed block")
            parts.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + packed])))
            at += 4 + packed
    except (struct.error, cramjam.DecompressionError):
        raise broken_state(path, f"has a compressed block at byte {at} that does not unpack") from None
    return b"".join(parts)


def _lzf(data: bytes, path: str) -> bytes:
    """Chunks after ``ZV``, a type (0 raw, 1 compressed) and their lengths (int16 big-endian)."""
    parts, at = [], 0
    try:
        while at < len(data):
            magic, kind, packed = struct.unpack_from(">2sBH", data, at)
            if magic != _LZF_MAGIC or kind > 1:
                raise broken_state(path, f"has a damaged chunk header at byte {at}")
            begin = at + (7 if kind else 5)
            part = data[begin : begin + packed]
            if len(part) < packed:
                raise broken_state(path, "ends in the middle of a compressed chunk")
            parts.append(_lzf_chunk(part, struct.unpack_from(">H", data, at + 5)[0]) if kind else part)
            at = begin + packed
    except (struct.error, IndexError, ValueError):
        raise broken_state(path, f"has a compressed chunk at byte {at} that does not unpack") from None
    return b"".join(parts)


def _lzf_chunk(data: bytes, length: int) -> bytes:
    """Runs of bytes, and copies of what is already there: how many, and how far back."""
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
            raise ValueError("a copy of what is not there")
        count += 2
        # A copy may reach into itself, and then repeats.
        while count > 0:
            piece = out[begin : begin + count]
            out += piece
            count -= len(piece)
    if len(out) != length:
        raise ValueError("a chunk of another length")
    return bytes(out)
