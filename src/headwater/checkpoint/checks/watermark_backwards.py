"""The watermark never goes backward, neither from batch to batch nor from a batch to its commit.

A repartition or an edit of state adds a batch without input. Its plan is a copy of that of the batch before, including
the watermark and the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.core.finding import Finding
from headwater.core.times import iso_from_ms


def check(context: CheckContext) -> Iterator[Finding]:
    highest, seen_in = 0, ""
    for path, watermark in _watermarks(context):
        if watermark < highest:
            message = (
                f"has the watermark {iso_from_ms(watermark)}, but {seen_in} already had {iso_from_ms(highest)}; "
                "closed windows could reopen"
            )
            yield Finding("error", "watermark-backwards", path, message)
        if watermark >= highest:
            highest, seen_in = watermark, path


def _watermarks(context: CheckContext) -> Iterator[tuple[str, int]]:
    for number in context.logs.batch_ids:
        planned, done = context.logs.offsets.get(number), context.logs.commits.get(number)
        if planned and planned.watermark_ms is not None and not _is_copy(context, number, planned):
            yield context.logs.offsets.path(number), planned.watermark_ms
        # Spark before 2.4 wrote no watermark into commits, and writes 0 for a query without one.
        if done and done.next_watermark_ms:
            yield context.logs.commits.path(number), done.next_watermark_ms


def _is_copy(context: CheckContext, number: int, planned: OffsetEntry) -> bool:
    before = context.logs.offsets.get(number - 1)
    return before is not None and (before.sources, before.timestamp_ms) == (planned.sources, planned.timestamp_ms)
