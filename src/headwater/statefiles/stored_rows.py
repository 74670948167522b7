"""The rows of a store as bytes, in all of its column families: to be copied, and to be written with row checksums.

If ``rowChecksum.enabled`` is set, Spark writes a CRC-32C of key and value before every value, and one of the key before
a key that a change deletes. RocksDB also writes the length of the value, and does both for each element of a list. Rows
are without these everywhere but in the files.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from headwater.core.ids import StoreKey
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import DELETE, PUT
from headwater.statefiles.statewriter import Operation
from headwater.statefiles.stores import StateTarget

Row = tuple[bytes, bytes]
_CHECKSUM_BYTES, _SIZE_BYTES, _FAMILY_BYTES = 4, 4, 2


def stored_rows(reader: StateReader, target: StateTarget, store: StoreKey, batch: int) -> Iterator[Row]:
    """Yield all rows of a store, keys with the id of their family. ``target`` is anything that the store contains.

    The parts of a list that grew by merges are joined. Row checksums are left out.
    """
    settings = reader.settings(batch)
    # The reader leaves the checksums of lists to those who know where an element ends.
    every = replace(target, family=None, kind="list" if settings.row_checksums else target.kind)
    rows = reader.partition(every, store).rows(batch)
    delimiter = b"," * settings.list_delimiter
    hdfs = reader.decoder(target, batch).hdfs
    lists = list_prefixes(reader, target, store, batch) if settings.row_checksums else ()

    def plain(key: bytes, parts: list[bytes]) -> Row:
        value = delimiter.join(parts)
        if not settings.row_checksums:
            return key, value
        if hdfs:
            return key, value[_CHECKSUM_BYTES:]
        if key[:_FAMILY_BYTES] not in lists:
            return key, value[_CHECKSUM_BYTES + _SIZE_BYTES :]
        return key, delimiter.join(_elements(value, settings.list_delimiter, _CHECKSUM_BYTES + _SIZE_BYTES))

    current: bytes | None = None
    parts: list[bytes] = []
    for key, value in rows.pairs():
        if key == current:
            parts.append(value)
            continue
        if current is not None:
            yield plain(current, parts)
        current, parts = key, [value]
    if current is not None:
        yield plain(current, parts)


def list_prefixes(reader: StateReader, target: StateTarget, store: StoreKey, batch: int) -> frozenset[bytes]:
    """Return the ids that precede the keys of those column families of a store that contain lists."""
    lists = [
        one
        for one in reader.targets(batch)
        if one.is_list and one.operator_id == target.operator_id and one.folder_store == target.folder_store
    ]
    return frozenset(reader.partition(one, store).key_prefix(batch) for one in lists if one.kind != "side")


def with_row_checksums(
    operations: Iterable[Operation], *, hdfs: bool, lists: Collection[bytes] = (), delimiter: int = 0
) -> Iterator[Operation]:
    """Yield puts and deletions with their checksums. ``lists`` are the ids before keys whose values are lists."""
    import google_crc32c  # noqa: PLC0415  few checkpoints need it

    def checked(key: bytes, value: bytes) -> bytes:
        checksum = struct.pack("<I", google_crc32c.value(key + value))
        return checksum + value if hdfs else checksum + struct.pack("<i", len(value)) + value

    for kind, key, value in operations:
        if kind == DELETE:
            yield kind, struct.pack("<I", google_crc32c.value(key)) + key, b""
        elif kind != PUT:
            raise ValueError("a merge cannot be written with row checksums")
        elif key[:_FAMILY_BYTES] in lists:
            elements = (checked(key, element) for element in _elements(value, delimiter, 0))
            yield kind, key, (b"," * delimiter).join(elements)
        else:
            yield kind, key, checked(key, value)


def _elements(value: bytes, delimiter: int, header: int) -> Iterator[bytes]:
    """Yield the elements of a list, each after its length and without the header before that."""
    at = 0
    while at < len(value):
        begin = at + header
        (size,) = struct.unpack_from("<i", value, begin)
        at = begin + _SIZE_BYTES + size
        yield value[begin:at]
        at += delimiter
