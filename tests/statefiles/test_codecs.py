"""Compressed streams."""

from __future__ import annotations

import struct

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.codecs import decompress
from headwater.statefiles.refusals import FormatUnknown
from statefiles.encoding import lz4_stream

PATH = "state/0/0/1.delta"


def unpacked(data: bytes) -> bytes:
    space = decompress(data, PATH)
    return space.text(0, space.size)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=5000), st.integers(1, 700))
def test_lz4_comes_back(data: bytes, block: int) -> None:
    """Blocks of any size, stored or compressed, give the bytes that went in."""
    assert unpacked(lz4_stream(data, block)) == data


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=800), st.data())
def test_a_damaged_lz4_byte_never_goes_unseen(data: bytes, choice: st.DataObject) -> None:
    """A flipped bit in the blocks gives the same bytes (a bit of no meaning) or a refusal, never other bytes."""
    stream = bytearray(lz4_stream(data, 200))
    stream[choice.draw(st.integers(0, len(stream) - 22))] ^= 1 << choice.draw(st.integers(0, 7))
    try:
        assert unpacked(bytes(stream)) == data
    except CheckpointUnreadable as refused:
        assert refused.evidence["file"] == PATH


@pytest.mark.parametrize(("packed", "length", "checksum"), [(2, 0, 0), (0, 0, 7), (0, 2, 0)])
def test_a_block_that_says_it_is_empty_and_is_not(packed: int, length: int, checksum: int) -> None:
    """Only a block without bytes and without a checksum is the end of a stream."""
    header = b"LZ4Block" + struct.pack("<BiiI", 0x10, packed, length, checksum)
    with pytest.raises(CheckpointUnreadable, match="damaged block header"):
        decompress(header + b"ab", PATH)


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_torn_lz4_stream_is_refused(cut: int) -> None:
    """A file that ends in the middle says so, by its name."""
    stream = lz4_stream(b"some text " * 100, 300)
    with pytest.raises(CheckpointUnreadable, match=r"1\.delta"):
        decompress(stream[: len(stream) - 21 - cut], PATH)


def test_zstd_and_snappy_come_back() -> None:
    """The other codecs that Spark can be told to use."""
    data = b"some text that repeats " * 400
    snappy = bytes(cramjam.snappy.compress_raw(data))
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(snappy)) + snappy
    assert unpacked(zstandard.compress(data)) == data
    assert unpacked(framed) == data


def test_lzf_comes_back() -> None:
    """Chunks as they are, and chunks of runs and copies, of which one reaches into itself."""
    raw = b"ZV\x00\x00\x05hello"
    packed = b"\x02abc" + bytes([7 << 5, 1, 2]) + bytes([1 << 5, 0])
    expected = b"abc" + b"abcabcabca" + b"aaa"
    assert unpacked(raw + b"ZV\x01" + struct.pack(">HH", len(packed), len(expected)) + packed) == b"hello" + expected
    with pytest.raises(CheckpointUnreadable, match=r"1\.delta"):
        unpacked(b"ZV\x01" + struct.pack(">HH", 2, 9) + b"\x00a")


def test_unknown_compression_is_refused() -> None:
    """Only Spark's reader is asked about these, so the refusal is one that `--engine auto` acts on."""
    with pytest.raises(FormatUnknown, match=r"1\.delta"):
        decompress(b"plain bytes", PATH)
