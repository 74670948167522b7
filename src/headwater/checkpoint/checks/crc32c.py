"""CRC-32C (Castagnoli), which the standard library does not have."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78


def _row(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_row(value) for value in range(256))


def crc32c(data: bytes) -> int:
    """The checksum as an unsigned number of 32 bits."""
    table, value = _TABLE, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
