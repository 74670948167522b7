"""Batch ids are consecutive in ``offsets/`` and in ``commits/``, and each batch has one file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import COMMITS, OFFSETS, batch_id
from headwater.core.finding import Finding
from headwater.core.text import batch_span


def check(context: CheckContext) -> Iterator[Finding]:
    asynchronous = _looks_asynchronous(context)
    for folder, ids in ((OFFSETS, context.logs.offsets.ids), (COMMITS, context.logs.commits.ids)):
        for before, after in pairwise(ids):
            if after != before + 1:
                yield _gap(folder, before, after, at_the_end=after == ids[-1], asynchronous=asynchronous)
        yield from _duplicates(context, folder)
    yield from _lone(context)


def _lone(context: CheckContext) -> Iterator[Finding]:
    """Yield a finding if the newest offsets are the only ones, although they are not those of the first batch."""
    ids = context.logs.offsets.ids
    if len(ids) != 1 or ids[0] == 0:
        return
    before = ids[0] - 1
    message = "is missing; Spark needs the last two offset files and will not start"
    # Asynchronous progress tracking skips batches in both logs, and has no state.
    if context.logs.state.stores or before in context.logs.commits.entries:
        yield Finding("error", "offsets-gap", f"{OFFSETS}/{before}", message)
    else:
        message += ", unless the query uses asynchronous progress tracking"
        yield Finding("warning", "offsets-gap", f"{OFFSETS}/{before}", message)


def _looks_asynchronous(context: CheckContext) -> bool:
    """Return whether both logs have the same gaps, as with asynchronous progress tracking of a stateless query."""
    done = context.last_committed
    planned = [number for number in context.logs.offsets.ids if done is not None and number <= done]
    # A purge removes offsets first, and may be interrupted after that.
    commits = [number for number in context.logs.commits.ids if not planned or number >= planned[0]]
    return not context.logs.state.stores and bool(planned) and planned == commits


def _gap(folder: str, before: int, after: int, *, at_the_end: bool, asynchronous: bool) -> Finding:
    missing = batch_span(before + 1, after - 1)
    message = f"{missing} {'is' if after == before + 2 else 'are'} missing between {before} and {after}"
    code, path = f"{folder}-gap", f"{folder}/{before + 1}"
    if asynchronous:
        effect = "such gaps are normal with asynchronous progress tracking, which the query must keep using"
        return Finding("info", code, path, f"{message}; {effect}")
    if folder == OFFSETS and at_the_end:
        return Finding("error", code, path, f"{message}; Spark needs the last two offset files and will not start")
    return Finding("warning", code, path, f"{message}; the stream cannot be rewound into the gap")


def _duplicates(context: CheckContext, folder: str) -> Iterator[Finding]:
    first: dict[int, str] = {}
    for name in sorted(context.tree.get(folder, ()), key=len):
        number = batch_id(name)
        if number is None:
            continue
        if number in first:
            message = f"is a second file for batch {number}, in addition to {folder}/{first[number]}"
            yield Finding("error", f"{folder}-duplicate", f"{folder}/{name}", message)
        first.setdefault(number, name)
