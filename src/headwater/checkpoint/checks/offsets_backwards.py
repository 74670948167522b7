"""Offsets never go backward from one batch to the next, and the sources stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.source_offsets import kind_of, offset_value, step_between
from headwater.core.finding import Finding
from headwater.core.text import count


def check(context: CheckContext) -> Iterator[Finding]:
    read = [(number, entry) for number in context.logs.offsets.ids if (entry := context.logs.offsets.get(number))]
    for (_, before), (number, after) in pairwise(read):
        path = context.logs.offsets.path(number)
        if before.version == after.version == 1 and len(before.sources) != len(after.sources):
            message = f"has {count(len(after.sources), 'source')}, but the previous batch had {len(before.sources)}"
            yield Finding("warning", "sources-changed", path, message)
        yield from _steps(context, before, after, path)


def _steps(context: CheckContext, before: OffsetEntry, after: OffsetEntry, path: str) -> Iterator[Finding]:
    earlier = {source.name: source.text for source in before.sources}
    for source in after.sources:
        first = earlier.get(source.name)
        if first is None or first == source.text:
            continue
        if source.text is None:
            message = f"has no offset for source {source.name}, which had one in the previous batch"
            yield Finding("error", "offsets-backwards", path, message)
            continue
        value = offset_value(source.text)
        step, what = step_between(kind_of(value, context.logs.hint(source.name, value)), offset_value(first), value)
        if step == "backward":
            message = f"goes backward in source {source.name}: {what}; rows would be read twice"
            yield Finding("error", "offsets-backwards", path, message)
