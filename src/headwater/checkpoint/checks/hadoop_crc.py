"""Each ``.NAME.crc``, which Hadoop keeps next to a file on a local file system, has its file and matches it."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.checks.rocksdb_snapshots import files_in_use
from headwater.checkpoint.layout import (
    COMMITS,
    LOG_FOLDER,
    OFFSETS,
    SOURCES,
    SST_FOLDER,
    covered_by_hadoop_crc,
    parent_and_name,
)
from headwater.checkpoint.logtext import read_bytes
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding
from headwater.core.ids import StoreKey
from headwater.core.text import count

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\0"


def check(context: CheckContext) -> Iterator[Finding]:
    in_use = _FilesInUse(context)
    for path in context.paths():
        covered = covered_by_hadoop_crc(path)
        if covered is None:
            continue
        if not context.has(covered):
            yield _stale(path, covered)
            continue
        try:
            problem = mismatch(context.files.read_blocks(covered), read_bytes(context.files, path))
        except (OSError, CheckpointUnreadable):
            continue  # removed since the listing, or reported as unreadable
        if problem:
            message = f"does not match its checksums in {path}: {problem}"
            if in_use.may_include(covered):
                yield Finding("error", "crc-mismatch", covered, message)
            else:
                message += "; an upload was interrupted, and no snapshot uses this file"
                yield Finding("info", "crc-mismatch", covered, message)


class _FilesInUse:
    """Tells the table files of RocksDB that a snapshot uses from those that a killed job left half uploaded."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._stores = {key.folder: key for key in context.logs.present_state.stores}
        self._known: dict[StoreKey, frozenset[str] | None] = {}

    def may_include(self, path: str) -> bool:
        folder, _, kind = parent_and_name(path)[0].rpartition("/")
        key = self._stores.get(folder) if kind in (SST_FOLDER, LOG_FOLDER) else None
        if key is None:
            return True
        if key not in self._known:
            self._known[key] = files_in_use(self._context, key)
        used = self._known[key]
        return used is None or path in used


def _stale(path: str, covered: str) -> Finding:
    in_a_log = covered.split("/", maxsplit=1)[0] in (OFFSETS, COMMITS, SOURCES)
    effect = (
        "Spark will fail with a message about concurrent queries when it writes that file again"
        if in_a_log
        else "harmless until that file is written again"
    )
    message = f"is left over, because {covered} does not exist: {effect}"
    return Finding("error" if in_a_log else "warning", "stale-crc", path, message, repairable=True)


def mismatch(blocks: Iterable[bytes], sums: bytes) -> str | None:
    """Return why a file, given in blocks, and its Hadoop checksum file do not match; None if they do."""
    if len(sums) < _HEADER.size or not sums.startswith(_MAGIC) or (len(sums) - _HEADER.size) % 4:
        return "the checksum file is corrupt"
    _, chunk_size = _HEADER.unpack_from(sums)
    if not chunk_size:
        return "the checksum file is corrupt"
    expected = array("I", sums[_HEADER.size :])
    if sys.byteorder == "little":
        expected.byteswap()
    size, first_mismatch = 0, None
    for start, length, found in _chunk_sums(blocks, chunk_size):
        number = start // chunk_size
        if first_mismatch is None and number < len(expected) and found != expected[number]:
            first_mismatch = start
        size = start + length
    if len(expected) != -(-size // chunk_size):
        return f"it has {count(size, 'byte')}, but the checksums are for a different size"
    return None if first_mismatch is None else f"the contents differ starting at byte {first_mismatch}"


def _chunk_sums(blocks: Iterable[bytes], chunk_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the position, length and CRC-32 of each chunk of a file; chunks may span blocks."""
    start, length, crc = 0, 0, 0
    for block in blocks:
        view, position = memoryview(block), 0
        while position < len(view):
            piece = view[position : position + chunk_size - length]
            crc = zlib.crc32(piece, crc)
            length += len(piece)
            position += len(piece)
            if length == chunk_size:
                yield start, length, crc
                start, length, crc = start + length, 0, 0
    if length:
        yield start, length, crc
