"""At most one batch is planned but not committed."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    done = -1 if context.last_committed is None else context.last_committed
    pending = [number for number in context.logs.offsets.ids if number > done]
    if len(pending) > 1:
        by_now = context.again().last_committed
        pending = [number for number in pending if by_now is None or number > by_now]
    if len(pending) > 1:
        first, last = pending[0], pending[-1]
        message = (
            f"batches {first} to {last} are planned but not committed; Spark would run only batch {last} and skip the "
            "input of the others"
        )
        yield Finding("error", "several-uncommitted", context.logs.offsets.path(last), message)
    elif pending:
        message = f"batch {pending[0]} is planned but not committed; Spark will run it at its next start"
        yield Finding("info", "uncommitted", context.logs.offsets.path(pending[0]), message)
