"""The checks of ``fsck``: one invariant of a checkpoint per file. A check yields findings and never raises on bad data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from headwater.checkpoint.checks import (
    batch_log_gaps,
    commit_without_offsets,
    format_one,
    hadoop_crc,
    interrupted_operation,
    offsets_backwards,
    operator_schemas,
    partition_count,
    rocksdb_snapshots,
    sink_log,
    source_logs,
    spark_checksums,
    state_ahead,
    state_buildable,
    temporary_files,
    uncommitted_batches,
    unreadable_files,
    watermark_backwards,
)
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import FILES, sink_of
from headwater.core.errors import UsageProblem, redact
from headwater.core.finding import Finding

Check = Callable[[CheckContext], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    interrupted_operation.check,
    unreadable_files.check,
    batch_log_gaps.check,
    uncommitted_batches.check,
    commit_without_offsets.check,
    offsets_backwards.check,
    watermark_backwards.check,
    source_logs.check,
    sink_log.check,
    partition_count.check,
    state_buildable.check,
    state_ahead.check,
    rocksdb_snapshots.check,
    operator_schemas.check,
    hadoop_crc.check,
    spark_checksums.check,
    temporary_files.check,
    format_one.check,
)


def fsck(files: FileTree, sink: str | None = None) -> list[Finding]:
    """Return the findings about a checkpoint and its file sink.

    ``sink`` is the sink as ``files:DIR``, by default the one that ``headwater run`` recorded.
    """
    if sink is not None and not sink.startswith(FILES):
        raise UsageProblem(
            "not-a-file-sink",
            f"only a file sink can be checked, and {redact(sink)!r} is not one",
            remedy="headwater fsck CKPT --sink files:DIR",
        )
    return list(run_checks(CheckContext(files, time.time_ns() // 1_000_000, sink_of(files, sink))))


def run_checks(context: CheckContext) -> Iterator[Finding]:
    """Yield the findings of all checks in order, without duplicates."""
    seen = set()
    for check in CHECKS:
        for finding in check(context):
            if finding not in seen:
                seen.add(finding)
                yield finding
