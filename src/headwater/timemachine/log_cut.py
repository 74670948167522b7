"""Cutting back the compacted logs of file sources and file sinks. Pure: names and entries in, files out.

Spark finds its way through such a log by the ids of compacted files: an id whose successor is a multiple of the
interval. When the compacted file that covers what is kept has been cleaned away, it is made again from a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.checkpoint.compactible_log import LogNames
from headwater.checkpoint.layout import COMPACT

DEFAULT_INTERVAL = 10


@dataclass(frozen=True)
class LogCut:
    """Names to set aside, and files to write so that the rest is whole."""

    aside: tuple[str, ...]
    written: Mapping[str, bytes]


def cut_log(names: LogNames, last_kept: int, content_of: Callable[[int, bool], bytes] | None) -> LogCut:
    """Keep everything up to an id (-1: nothing).

    ``content_of(id, compact)`` makes a file that is needed and not there; None when the log still has all it needs,
    or when nobody can tell what was in it: ask ``needs_rebuilding`` first.
    """
    aside = tuple(name for number, name in sorted(names.by_id.items()) if number > last_kept)
    aside += tuple(name for name in names.duplicates if name not in aside and _id(name) > last_kept)
    if content_of is None or last_kept < 0 or not needs_rebuilding(names, last_kept):
        return LogCut(aside, {})
    written: dict[str, bytes] = {}
    start = _compaction_at_or_before(last_kept, interval_of(names))
    if start is not None and not (start in names.by_id and names.is_compact(start)):
        written[f"{start}{COMPACT}"] = content_of(start, True)
    for number in range(0 if start is None else start + 1, last_kept + 1):
        if number not in names.by_id:
            written[str(number)] = content_of(number, False)
    return LogCut(aside, written)


def needs_rebuilding(names: LogNames, last_kept: int) -> bool:
    """Whether files that hold what is kept were cleaned away after a later compaction."""
    return last_kept >= 0 and bool(names.missing_for(last_kept))


def interval_of(names: LogNames) -> int:
    """The compaction interval as Spark derives it from the names that it finds."""
    compact = names.compact_ids
    if not compact:
        return DEFAULT_INTERVAL
    if len(compact) > 1:
        return compact[-1] - compact[-2]
    size = compact[0] + 1
    if size <= DEFAULT_INTERVAL:
        return size
    if size / 2 > DEFAULT_INTERVAL:
        return next(part for part in range(DEFAULT_INTERVAL, size + 1) if size % part == 0)
    return size


def _compaction_at_or_before(number: int, interval: int) -> int | None:
    found = (number + 1) // interval * interval - 1
    return found if found >= 0 else None


def _id(name: str) -> int:
    return int(name.removesuffix(COMPACT))


def with_crc(names: Iterable[str], present: Iterable[str]) -> list[str]:
    """Each name and its Hadoop checksum file, if there is one: a stale one makes Spark fail with a misleading message."""
    held = set(present)
    found: list[str] = []
    for name in names:
        found.append(name)
        if f".{name}.crc" in held:
            found.append(f".{name}.crc")
    return found
