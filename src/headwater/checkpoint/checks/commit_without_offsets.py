"""Every committed batch has its offsets."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    without = [number for number in context.logs.commits.ids if number not in context.logs.offsets.entries]
    logs = context.again().logs if without else context.logs
    planned = logs.offsets.ids
    for number in without:
        if number in logs.offsets.entries:
            continue
        path = context.logs.commits.path(number)
        if planned and number < planned[0]:
            message = f"has no offsets: the offset log starts at {planned[0]}, because a purge was interrupted"
            message += "; this is harmless" if len(planned) > 1 else ""
            yield Finding("info", "commit-without-offsets", path, message)
        else:
            message = f"marks batch {number} as committed, but offsets/{number} is missing"
            yield Finding("error", "commit-without-offsets", path, message)
