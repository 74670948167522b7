"""Cut back, rebuild or create the compacted logs of file sources and file sinks. Pure: names and entries in, files out.

Spark navigates such a log by the ids of its compacted files: an id is compacted if its successor is a multiple of the
interval. If Spark has cleaned up the compacted file that covers what is kept, it is rebuilt from a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.layout import COMPACT, log_id

DEFAULT_INTERVAL = 10


@dataclass(frozen=True)
class LogCut:
    """The files of a log to set aside, and those to write so that the rest is complete."""

    aside: tuple[str, ...]
    written: Mapping[str, bytes]


def cut_log(names: LogNames, last_kept: int, content_of: Callable[[int, bool], bytes] | None) -> LogCut:
    """Keep everything up to an id; -1 keeps nothing.

    ``content_of(id, compact)`` returns the contents of a file that is needed and missing. It can be None unless
    ``needs_rebuilding``.
    """
    aside = [name for number, name in sorted(names.by_id.items()) if number > last_kept]
    aside += [name for name in names.duplicates if name not in aside and (log_id(name) or 0) > last_kept]
    if content_of is None or not needs_rebuilding(names, last_kept):
        return LogCut(tuple(aside), {})
    compacted = _compactions_to_write(names.compact_ids, last_kept)
    first_plain = compacted[-1] + 1 if compacted else 0
    # Spark derives the interval from the two newest compacted files, so there must not be others.
    aside += [names.by_id[number] for number in names.ids if number < first_plain and number not in compacted]
    aside += [names.by_id[number] for number in compacted if number in names.by_id]
    written = {f"{number}{COMPACT}": content_of(number, True) for number in compacted}
    for number in range(first_plain, last_kept + 1):
        if number not in names.by_id:
            written[str(number)] = content_of(number, False)
    return LogCut(tuple(aside), written)


def empty_log(like: LogNames, last: int, content: bytes) -> dict[str, bytes]:
    """Return a log without entries up to an id, under the file names of another log, which Spark reads alike.

    If the other log does not reach back that far, or is empty, the file names are chosen so that Spark can read them.
    """
    if last < 0:
        return {}
    if like.ids and not needs_rebuilding(like, last):
        return {like.by_id[number]: content for number in like.ids if number <= last}
    compacted = _compactions_to_write(like.compact_ids, last)
    first_plain = compacted[-1] + 1 if compacted else 0
    written = [f"{number}{COMPACT}" for number in compacted] + [str(number) for number in range(first_plain, last + 1)]
    return dict.fromkeys(written, content)


def needs_rebuilding(names: LogNames, last_kept: int) -> bool:
    """Return whether Spark has cleaned up files that are needed for the entries up to an id, or for the interval."""
    return last_kept >= 0 and (bool(names.missing_for(last_kept)) or _loses_interval(names.compact_ids, last_kept))


def _loses_interval(compact_ids: Sequence[int], last_kept: int) -> bool:
    """Return whether a cut leaves a single compacted file, from which Spark could derive another interval.

    It then looks for a compacted file that was never written. Which interval it derives depends on its setting, which
    the log does not record.
    """
    left = [number for number in compact_ids if number <= last_kept]
    if len(left) != 1 or len(compact_ids) == 1:
        return False
    return left[0] < last_kept and left[0] >= interval_of(compact_ids)


def interval_of(compact_ids: Sequence[int], default: int = DEFAULT_INTERVAL) -> int:
    """Return the compaction interval as Spark derives it from the compacted files and its setting."""
    if not compact_ids:
        return default
    if len(compact_ids) > 1:
        return compact_ids[-1] - compact_ids[-2]
    size = compact_ids[0] + 1
    if size > default and default < size // 2:
        return next((part for part in range(default, size // 2 + 1) if size % part == 0), size)
    return size


def is_compaction(compact_ids: Sequence[int], number: int) -> bool:
    """Return whether Spark opens the compacted file of an id that is added to a log with these compacted files."""
    return (number + 1) % interval_of(compact_ids) == 0


def ids_that_spark_reads(compact_ids: Sequence[int], latest: int, default: int) -> range:
    """Return the ids that Spark opens to read everything up to the latest one; the first may be a compacted file."""
    interval = interval_of(compact_ids, default)
    return range(max(0, (latest + 1) // interval * interval - 1), latest + 1)


def with_crc(names: Iterable[str], present: Iterable[str]) -> list[str]:
    """Return each name followed by its Hadoop checksum file, if there is one. Spark fails on a stale checksum."""
    existing = set(present)
    return [found for name in names for found in (name, f".{name}.crc") if found == name or found in existing]


def _compactions_to_write(compact_ids: Sequence[int], last_kept: int) -> tuple[int, ...]:
    """Return the ids of the compacted files of a rebuilt log: the last two, so that Spark derives the same interval.

    If the interval is unknown, a single compacted file at the last id works with any setting.
    """
    if len(compact_ids) == 1 or (not compact_ids and DEFAULT_INTERVAL <= last_kept + 1 < 2 * DEFAULT_INTERVAL):
        return (last_kept,)
    interval = interval_of(compact_ids)
    newest = (last_kept + 1) // interval * interval - 1
    if newest < 0:
        return () if interval == DEFAULT_INTERVAL else (last_kept,)
    return (newest - interval, newest) if newest >= interval else (newest,)
