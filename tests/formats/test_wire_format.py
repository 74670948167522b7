"""The header that a schema registry puts in front of each record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.formats.confluent import header, message_path, read_long, split_header, split_message_path
from headwater.formats.schema import MalformedRecord


@given(st.integers(0, 2**32 - 1), st.binary(max_size=20))
def test_header_round_trip(schema_id: int, record: bytes) -> None:
    """The id that a header was made from comes back, and the record follows it."""
    data = header(schema_id) + record
    assert split_header(data) == (schema_id, 5)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_message_path_round_trip(path: list[int]) -> None:
    """The indexes of a message come back, whatever follows them."""
    data = message_path(path) + b"rest"
    assert split_message_path(data, 0) == (tuple(path), len(data) - 4)


def test_first_message_takes_one_byte() -> None:
    """The first message of a file is a single zero byte, as Confluent's clients write it."""
    assert message_path([0]) == b"\x00"
    assert message_path([1, 0]) == b"\x04\x02\x00"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x", b'{"id": 1}'])
def test_malformed_headers(data: bytes) -> None:
    """Records that are too short or do not start with a zero byte are malformed."""
    with pytest.raises(MalformedRecord, match=r"too short|first byte"):
        split_header(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff" * 20, b"\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xc8\x01", b"\x04\x00"]
)
def test_malformed_message_paths(data: bytes) -> None:
    """Truncated, negative, huge and endless numbers of message indexes are malformed."""
    with pytest.raises(MalformedRecord):
        split_message_path(data, 0)


def test_longest_number() -> None:
    """Ten bytes hold every 64-bit number; one bit more is malformed."""
    assert read_long(b"\xff" * 9 + b"\x01", 0) == (-(2**63), 10)
    with pytest.raises(MalformedRecord, match="64 bits"):
        read_long(b"\xff" * 9 + b"\x02", 0)
