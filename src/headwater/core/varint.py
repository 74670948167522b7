"""Whole numbers in as few bytes as they need, as Avro and Protobuf write signed ones."""

from __future__ import annotations


def zigzag(number: int) -> bytes:
    """Return a number of 64 bits in zigzag encoding: seven bits per byte, small numbers of either sign in one byte."""
    left = number << 1 if number >= 0 else ~number << 1 | 1
    if left < 0x80:
        return left.to_bytes(1, "little")
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
