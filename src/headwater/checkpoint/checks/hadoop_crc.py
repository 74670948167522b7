"""On a local file system Hadoop keeps a ``.NAME.crc`` beside each file: it fits the file, and the file is there."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import COMMITS, OFFSETS, SOURCES, covered_by_hadoop_crc
from headwater.checkpoint.logtext import read_bytes
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\0"


def check(scene: Scene) -> Iterator[Finding]:
    for path in scene.paths():
        covered = covered_by_hadoop_crc(path)
        if covered is None:
            continue
        if not scene.has(covered):
            yield _stale(path, covered)
            continue
        try:
            data, sums = read_bytes(scene.files, covered), read_bytes(scene.files, path)
        except CheckpointUnreadable:
            continue  # went away while we looked, or is reported as unreadable
        problem = mismatch(data, sums)
        if problem:
            yield Finding("error", "crc-mismatch", covered, f"does not fit its checksums in {path}: {problem}")


def _stale(path: str, covered: str) -> Finding:
    in_a_log = covered.split("/", maxsplit=1)[0] in (OFFSETS, COMMITS, SOURCES)
    effect = (
        "Spark fails with a message about concurrent queries when it writes that file anew"
        if in_a_log
        else "it does no harm until that file is written anew"
    )
    message = f"is left over: {covered} is not there; {effect}"
    return Finding("error" if in_a_log else "warning", "stale-crc", path, message, repairable=True)


def mismatch(data: bytes, sums: bytes) -> str | None:
    """Why a file and its Hadoop checksum file do not fit each other; None when they do."""
    if len(sums) < _HEADER.size or not sums.startswith(_MAGIC):
        return "the crc file itself is broken"
    _, chunk = _HEADER.unpack_from(sums)
    expected = (len(sums) - _HEADER.size) // 4
    if not chunk or (len(sums) - _HEADER.size) % 4:
        return "the crc file itself is broken"
    if expected != -(-len(data) // chunk):
        return f"it has {len(data)} bytes, the checksums are for another size"
    for number, wanted in enumerate(struct.unpack_from(f">{expected}I", sums, _HEADER.size)):
        if zlib.crc32(data[number * chunk : (number + 1) * chunk]) != wanted:
            return f"bytes {number * chunk} and following were changed"
    return None
