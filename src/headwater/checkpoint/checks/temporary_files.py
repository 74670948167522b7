"""No partially written file was left behind."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import is_temporary, join
from headwater.core.finding import Finding

FRESH_MS = 10 * 60 * 1000


def check(context: CheckContext) -> Iterator[Finding]:
    for folder, names in context.tree.items():
        for name in filter(is_temporary, names):
            path = join(folder, name)
            entry = context.entry(path)
            if entry is None:  # the query has renamed it in the meantime
                continue
            age = None if entry.modified_ms is None else context.now_ms - entry.modified_ms
            if age is not None and age < FRESH_MS:
                message = "is being written, or was left by a query that stopped within the last ten minutes"
                yield Finding("info", "temporary-file", path, message)
            else:
                message = "was left partially written by an interrupted write; nothing reads it"
                yield Finding("warning", "temporary-file", path, message, repairable=True)
