"""Decompression of state files."""

from __future__ import annotations

import struct

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.codecs import decompress
from headwater.statefiles.refusals import UnknownFormat
from statefiles.encoding import lz4_stream

PATH = "state/0/0/1.delta"


def decompressed(data: bytes) -> bytes:
    space = decompress(data, PATH)
    return space.text(0, space.size)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=5000), st.integers(1, 700))
def test_lz4_round_trip(data: bytes, block: int) -> None:
    """Blocks of any size, stored or compressed, decompress to the original bytes."""
    assert decompressed(lz4_stream(data, block)) == data


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=800), st.data())
def test_a_corrupt_lz4_byte_is_detected(data: bytes, choice: st.DataObject) -> None:
    """A flipped bit leads to the same bytes (if the bit has no meaning) or to an error, never to other bytes."""
    stream = bytearray(lz4_stream(data, 200))
    stream[choice.draw(st.integers(0, len(stream) - 22))] ^= 1 << choice.draw(st.integers(0, 7))
    try:
        assert decompressed(bytes(stream)) == data
    except CheckpointUnreadable as refused:
        assert refused.evidence["file"] == PATH


@pytest.mark.parametrize(("packed", "length", "checksum"), [(2, 0, 0), (0, 0, 7), (0, 2, 0)])
def test_an_inconsistent_empty_block_is_refused(packed: int, length: int, checksum: int) -> None:
    """Only a block without data and without a checksum ends a stream."""
    header = b"LZ4Block" + struct.pack("<BiiI", 0x10, packed, length, checksum)
    with pytest.raises(CheckpointUnreadable, match="corrupt block header"):
        decompress(header + b"ab", PATH)


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_truncated_lz4_stream_is_refused(cut: int) -> None:
    """The error names the truncated file."""
    stream = lz4_stream(b"some text " * 100, 300)
    with pytest.raises(CheckpointUnreadable, match=r"1\.delta"):
        decompress(stream[: len(stream) - 21 - cut], PATH)


def test_zstd_and_snappy_round_trip() -> None:
    """The other codecs that Spark can be configured with are decompressed too."""
    data = b"some text that repeats " * 400
    snappy = bytes(cramjam.snappy.compress_raw(data))
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(snappy)) + snappy
    assert decompressed(zstandard.compress(data)) == data
    assert decompressed(framed) == data


def test_lzf_round_trip() -> None:
    """Raw chunks and compressed ones are decompressed, including an overlapping back-reference."""
    raw = b"ZV\x00\x00\x05hello"
    packed = b"\x02abc" + bytes([7 << 5, 1, 2]) + bytes([1 << 5, 0])
    expected = b"abc" + b"abcabcabca" + b"aaa"
    assert (
        decompressed(raw + b"ZV\x01" + struct.pack(">HH", len(packed), len(expected)) + packed) == b"hello" + expected
    )
    with pytest.raises(CheckpointUnreadable, match=r"1\.delta"):
        decompressed(b"ZV\x01" + struct.pack(">HH", 2, 9) + b"\x00a")


def test_unknown_compression_is_refused() -> None:
    """An unknown codec raises the error that makes `--engine auto` fall back to Spark's reader."""
    with pytest.raises(UnknownFormat, match=r"1\.delta"):
        decompress(b"plain bytes", PATH)
