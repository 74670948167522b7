"""The checks of ``fsck``: one invariant of a checkpoint per file. A check yields findings and never raises on bad data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.checkpoint.checks import (
    batch_log_gaps,
    commit_without_offsets,
    format_one,
    hadoop_crc,
    interrupted_operation,
    moved_checkpoint,
    offsets_backwards,
    operator_schemas,
    partition_count,
    restore_points,
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
from headwater.core.finding import Finding

Check = Callable[[CheckContext], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    interrupted_operation.check,
    moved_checkpoint.check,
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
    restore_points.check,
    format_one.check,
)


def run_checks(context: CheckContext) -> Iterator[Finding]:
    """Yield the findings of all checks in order, without duplicates."""
    seen = set()
    for check in CHECKS:
        for finding in check(context):
            if finding not in seen:
                seen.add(finding)
                yield finding
