"""Cutting back the compacted logs of file sources and file sinks. Pure: names and entries in, files out.

Spark finds its way through such a log by the ids of compacted files: an id whose successor is a multiple of the
interval. When the compacted file that covers what is kept has been cleaned away, it is made again from a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    aside = [name for number, name in sorted(names.by_id.items()) if number > last_kept]
    aside += [name for name in names.duplicates if name not in aside and _id(name) > last_kept]
    if content_of is None or not needs_rebuilding(names, last_kept):
        return LogCut(tuple(aside), {})
    compacted = _compactions_to_write(names.compact_ids, last_kept)
    first_plain = compacted[-1] + 1 if compacted else 0
    # Spark takes the distance between the two newest compacted files for the interval: others must not be there.
    aside += [names.by_id[number] for number in names.ids if number < first_plain and number not in compacted]
    aside += [names.by_id[number] for number in compacted if number in names.by_id]
    written = {f"{number}{COMPACT}": content_of(number, True) for number in compacted}
    for number in range(first_plain, last_kept + 1):
        if number not in names.by_id:
            written[str(number)] = content_of(number, False)
    return LogCut(tuple(aside), written)


def empty_log(like: LogNames, last: int, content: bytes) -> dict[str, bytes]:
    """A log that holds nothing up to an id, with the names that another one has: Spark reads them with the same setting.

    Where the other one does not reach back that far, or there is none, the names are such that Spark finds its way.
    """
    if last < 0:
        return {}
    if like.ids and not like.missing_for(last):
        return {like.by_id[number]: content for number in like.ids if number <= last}
    compacted = _compactions_to_write(like.compact_ids, last)
    first_plain = compacted[-1] + 1 if compacted else 0
    written = [f"{number}{COMPACT}" for number in compacted] + [str(number) for number in range(first_plain, last + 1)]
    return dict.fromkeys(written, content)


def needs_rebuilding(names: LogNames, last_kept: int) -> bool:
    """Whether files that hold what is kept were cleaned away after a later compaction."""
    return last_kept >= 0 and bool(names.missing_for(last_kept))


def interval_of(compact_ids: Sequence[int], default: int = DEFAULT_INTERVAL) -> int:
    """The compaction interval as Spark derives it from the compacted files that it finds, and its setting."""
    if not compact_ids:
        return default
    if len(compact_ids) > 1:
        return compact_ids[-1] - compact_ids[-2]
    size = compact_ids[0] + 1
    if size > default and default < size // 2:
        return next((part for part in range(default, size // 2 + 1) if size % part == 0), size)
    return size


def ids_that_spark_reads(compact_ids: Sequence[int], latest: int, default: int) -> range:
    """The ids that Spark opens for everything up to the latest one; the first as a compacted file, if it is one."""
    interval = interval_of(compact_ids, default)
    return range(max(0, (latest + 1) // interval * interval - 1), latest + 1)


def _compactions_to_write(compact_ids: Sequence[int], last_kept: int) -> tuple[int, ...]:
    """The ids of the compacted files of a rebuilt log: the two that Spark would have, so that it keeps its interval.

    Where the interval cannot be known, one compacted file at the very last id is found with any setting.
    """
    if len(compact_ids) == 1 or (not compact_ids and DEFAULT_INTERVAL <= last_kept + 1 < 2 * DEFAULT_INTERVAL):
        return (last_kept,)
    interval = interval_of(compact_ids)
    newest = (last_kept + 1) // interval * interval - 1
    if newest < 0:
        return () if interval == DEFAULT_INTERVAL else (last_kept,)
    return (newest - interval, newest) if newest >= interval else (newest,)


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
