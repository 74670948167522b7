"""Each ``NAME.crc``, which checkpoint format 2 keeps next to a state file, has its file and matches it."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.checks.unreadable_files import finding_of
from headwater.checkpoint.layout import STATE, covered_by_spark_checksum
from headwater.checkpoint.logtext import integer_field, json_object, read_bytes
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    for path in context.paths():
        covered = covered_by_spark_checksum(path)
        if covered is None or path.split("/")[0] != STATE:
            continue
        if not context.has(covered):
            message = f"is left over, because {covered} does not exist; Spark's maintenance task will remove it"
            yield Finding("warning", "stale-checksum", path, message, repairable=True)
            continue
        try:
            value = json_object(read_bytes(context.files, path).decode("utf-8", "replace"), path)
            expected_size, expected = integer_field(value, "mainFileSize", path), integer_field(value, "value", path)
        except CheckpointUnreadable as error:
            if error.code not in ("missing-file", "unreadable-file"):
                yield finding_of(error, path)
            continue
        try:
            size, checksum = _size_and_crc32c(context, covered)
        except OSError:
            continue  # removed since the listing
        if size != expected_size:
            message = f"has {size} bytes, but its checksum file records {expected_size}"
            yield Finding("error", "checksum-mismatch", covered, message)
        elif value.get("algorithm") == "CRC32C" and checksum != expected % 2**32:
            yield Finding("error", "checksum-mismatch", covered, f"does not match its checksum in {path}")


def _size_and_crc32c(context: CheckContext, path: str) -> tuple[int, int]:
    import google_crc32c  # noqa: PLC0415  only checkpoint format 2 needs it

    size = checksum = 0
    for block in context.files.read_blocks(path):
        size += len(block)
        checksum = google_crc32c.extend(checksum, block)
    return size, checksum
