"""Checkpoint format 2 keeps a checksum of its own (``NAME.crc``, JSON) beside each state file."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.crc32c import crc32c
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import STATE, covered_by_spark_checksum
from headwater.checkpoint.logtext import json_object, read_bytes, whole_number
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding

# Plain Python takes about a second for 10 MB; larger files are held against their size alone.
MOST_BYTES = 4_000_000


def check(scene: Scene) -> Iterator[Finding]:
    for path in scene.paths():
        covered = covered_by_spark_checksum(path)
        if covered is None or path.split("/")[0] != STATE:
            continue
        if not scene.has(covered):
            message = f"is left over: {covered} is not there; Spark's maintenance removes it in time"
            yield Finding("warning", "stale-checksum", path, message, repairable=True)
            continue
        try:
            data, about = read_bytes(scene.files, covered), read_bytes(scene.files, path)
        except CheckpointUnreadable:
            continue
        yield from _held_against(data, about, covered, path)


def _held_against(data: bytes, about: bytes, covered: str, path: str) -> Iterator[Finding]:
    try:
        value = json_object(about.decode("utf-8", "replace"), path)
        size, wanted = whole_number(value, "mainFileSize", path), whole_number(value, "value", path)
    except CheckpointUnreadable as error:
        yield Finding("error", error.code, path, error.problem.removeprefix(f"{path} "))
        return
    if size != len(data):
        message = f"has {len(data)} bytes, {size} by its checksum file"
        yield Finding("error", "checksum-mismatch", covered, message)
    elif value.get("algorithm") == "CRC32C" and len(data) <= MOST_BYTES and crc32c(data) != wanted % 2**32:
        yield Finding("error", "checksum-mismatch", covered, f"does not fit its checksum in {path}")
