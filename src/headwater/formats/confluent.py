"""Confluent's wire format: a zero byte, the id of the writer's schema and, for Protobuf, which message of it follows."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.varint import zigzag
from headwater.formats.schema import MalformedRecord

MAGIC = 0
HEADER_BYTES = 5
MAX_NESTED_MESSAGES = 64
MAX_LONG_BYTES = 10


def split_header(data: bytes) -> tuple[int, int]:
    """Return the schema's id, and the position at which the record itself starts."""
    if len(data) < HEADER_BYTES:
        raise MalformedRecord(f"{len(data)} bytes are too short for the header of a schema registry, which has 5")
    if data[0] != MAGIC:
        raise MalformedRecord(f"the first byte is {data[0]:#04x}, not the zero byte of a schema registry's header")
    return int.from_bytes(data[1:HEADER_BYTES], "big"), HEADER_BYTES


def header(schema_id: int) -> bytes:
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big")


def split_message_path(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return which message of a Protobuf schema follows, as indexes from the file inwards, and where it starts."""
    count, position = read_long(data, position)
    if not 0 <= count <= MAX_NESTED_MESSAGES:
        raise MalformedRecord(f"the header names {count} message indexes")
    if count == 0:  # short for the first message of the file
        return (0,), position
    path = []
    for _ in range(count):
        index, position = read_long(data, position)
        path.append(index)
    return tuple(path), position


def message_path(path: Sequence[int]) -> bytes:
    """Return the indexes of a message in the form that ``split_message_path`` reads."""
    if tuple(path) == (0,):
        return b"\0"
    return b"".join(zigzag(number) for number in (len(path), *path))


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint of at most 64 bits, and the position after it."""
    number = shift = 0
    while True:
        if position >= len(data):
            raise MalformedRecord("the record ends in the middle of a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * MAX_LONG_BYTES:
            raise MalformedRecord("a number has more than 64 bits")
    if number >> 64:
        raise MalformedRecord("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), position
