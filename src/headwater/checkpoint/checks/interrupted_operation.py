"""No change by Headwater was interrupted."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import CASCADE_FILE, PENDING_FILE
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    if context.files.exists(PENDING_FILE):
        message = "records an interrupted change; do not start the query before the change is finished or undone"
        yield Finding("error", "interrupted-operation", PENDING_FILE, message, repairable=True)
    elif context.files.exists(CASCADE_FILE):
        message = "records an interrupted rewind of several streams; run headwater rewind with --resume or --abort"
        yield Finding("error", "interrupted-operation", CASCADE_FILE, message)
