"""Batches as dictionaries for ``--json`` and as the text of ``show``; ``batch_table`` has the table of ``log``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headwater.checkpoint.history import Batch, BatchFiles, StoreState
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions, log_offset, short_text
from headwater.checkpoint.table_offsets import table_position
from headwater.checkpoint.watermark_hold import WatermarkHold
from headwater.core.text import count
from headwater.core.times import iso_from_ms
from headwater.views.formatting import format_duration, format_time

if TYPE_CHECKING:
    from headwater.timemachine.journal import Entry

_MAX_SHOWN_PARTITIONS = 3

PartitionOffsets = dict[tuple[str, int], int]


def batch_as_dict(
    batch: Batch, hold: WatermarkHold | None = None, added_by: Entry | None = None, kept: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a batch as ``log --json`` prints it.

    ``added_by`` is the change that added it, if it was not Spark; ``kept`` are the names of its restore points.
    """
    shown: dict[str, Any] = {
        "batch_id": batch.batch_id,
        "status": batch.status,
        "planned_at": _iso_or_none(batch.planned_at_ms),
        "committed_at": _iso_or_none(batch.committed_at_ms),
        "watermark": _iso_or_none(batch.watermark_ms),
        "watermark_hold": hold.as_dict() if hold else None,
        "sources": [_source_as_dict(source) for source in batch.sources],
        "can_rewind_to": batch.can_rewind_to,
        "why_not": batch.why_not,
        "duration_ms": None if added_by else batch.duration_ms,
        "state_version": batch.state_version,
        "kept": list(kept),
    }
    if batch.problem:
        shown["problem"] = batch.problem
    if added_by is not None:
        shown["change"] = _change_as_dict(added_by)
    return shown


def _change_as_dict(entry: Entry) -> dict[str, Any]:
    details = entry.change.details
    return {
        "verb": entry.change.verb,
        "change_id": entry.change.change_id,
        "at": _iso_or_none(entry.done_at_ms),
        "by": details.get("by"),
        "reason": details.get("reason"),
        "rows": details.get("rows"),
    }


def change_text(entry: Entry) -> str:
    """Return who added a batch and why: ``edit by ann@host: double-counted refund``."""
    by, reason = entry.change.details.get("by"), entry.change.details.get("reason")
    return entry.change.verb + (f" by {by}" if by else "") + (f": {reason}" if reason else "")


def batch_in_full(
    batch: Batch, files: BatchFiles, hold: WatermarkHold | None = None, added_by: Entry | None = None
) -> dict[str, Any]:
    """Return a batch as ``show --json`` prints it: the fields of the log, and everything that belongs to the batch."""
    return batch_as_dict(batch, hold, added_by) | {
        "next_watermark": _iso_or_none(batch.next_watermark_ms or None),
        "conf": dict(batch.conf),
        "state": [_store_as_dict(store) for store in files.stores],
        "files": list(files.paths),
        "input_files": {name: list(paths) for name, paths in files.inputs.items()},
    }


def _iso_or_none(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else iso_from_ms(epoch_ms)


def _source_as_dict(source: SourceRange) -> dict[str, Any]:
    shown = {
        "name": source.name,
        "kind": source.kind,
        "start": source.start,
        "end": source.end,
        "rows": source.rows,
        "label": source.label,
        "description": source.description,
        "lag": source.lag,
    }
    if source.files is not None:
        shown["files"] = source.files
    return shown


def _store_as_dict(store: StoreState) -> dict[str, Any]:
    return {
        "operator_id": store.key.operator_id,
        "operator": store.operator,
        "store": store.key.store_name,
        "partition_id": store.key.partition_id,
        "version": store.version,
        "rebuildable": store.recipe is not None,
        "snapshot": store.recipe.snapshot if store.recipe else None,
        "changes": list(store.recipe.changes) if store.recipe else [],
    }


def offset_ranges(sources: Sequence[SourceRange]) -> str:
    """Return the offsets that a batch read from all of its sources, in short; a dash without sources."""
    if len(sources) == 1:
        return offset_range(sources[0])
    return "; ".join(offset_range(source, tag) for source, tag in zip(sources, _tags(sources), strict=True)) or "-"


def _tags(sources: Sequence[SourceRange]) -> list[str]:
    """Return a short text for each of several sources: its name, its topic or folder, or else its number."""
    tags = [source.given_name or _short_description(source) for source in sources]
    return [tag if tag and tags.count(tag) == 1 else source.label for tag, source in zip(tags, sources, strict=True)]


def _short_description(source: SourceRange) -> str:
    kind, _, rest = (source.description or "").partition(" ")
    return rest if kind == "kafka" else " ".join(filter(None, [kind, rest.rpartition("/")[2]]))


def offset_range(source: SourceRange, tag: str | None = None) -> str:
    """Return the offsets that a batch read from a source: ``visits 0:1→3 1:0→2``, ``files 3→4`` or ``rate 10→12``.

    ``tag`` replaces the topic or the kind, in order to distinguish several sources.
    """
    if not source.moved:
        return f"{tag or source.kind} -"
    after = kafka_partitions(source.end) if source.kind == "kafka" else None
    if after is not None:
        return _kafka_range(kafka_partitions(source.start) or {}, after, tag)
    if source.kind in ("files", "table"):
        start, end = log_offset(source.start), log_offset(source.end)
        return f"{tag or source.kind} {'' if start is None else start}→{end}"
    return f"{tag or source.kind} {short_text(source.start, 24)}→{short_text(source.end, 24)}"


def _kafka_range(before: PartitionOffsets, after: PartitionOffsets, tag: str | None) -> str:
    topics = list(dict.fromkeys(topic for topic, _ in after))
    found = []
    for topic in topics:
        partitions = [partition for partition in after if partition[0] == topic]
        ranges = [
            f"{partition[1]}:{before.get(partition, '…')}→{after[partition]}"
            for partition in partitions
            if before.get(partition) != after[partition]
        ]
        if len(ranges) > _MAX_SHOWN_PARTITIONS:
            ranges = [f"{len(ranges)} of {len(partitions)} partitions"]
        if ranges:
            found.append(f"{tag if tag and len(topics) == 1 else topic} {' '.join(ranges)}")
    return ", ".join(found) or f"{tag or 'kafka'} -"


def batch_lines(
    batch: Batch, files: BatchFiles, hold: WatermarkHold | None = None, added_by: Entry | None = None
) -> Iterator[str]:
    """Yield the lines that ``show`` prints."""
    yield f"batch {batch.batch_id}, {batch.status}"
    if added_by is not None:
        yield f"  added by {change_text(added_by)}"
    yield from _labeled(batch_facts(batch, hold))
    for source in batch.sources:
        yield ""
        yield from _source_lines(source, files.inputs.get(source.name, ()))
    if files.stores:
        yield ""
        yield from _store_lines(files.stores)
    if batch.conf:
        yield ""
        yield "configuration"
        yield from _labeled(sorted(batch.conf.items()))
    yield ""
    yield "files"
    shown = [path for path in files.paths if not path.startswith("state/") or "/_metadata/" in path]
    yield from (f"  {path}" for path in shown)
    if len(shown) < len(files.paths):
        yield f"  {count(len(files.paths) - len(shown), 'state file')} (--json lists them)"


def batch_facts(batch: Batch, hold: WatermarkHold | None = None) -> Iterator[tuple[str, str]]:
    """Yield labeled texts about a batch: its times, watermark and rows, and whether it can be rewound to."""
    yield "planned", f"{format_time(batch.planned_at_ms)} UTC"
    if batch.committed_at_ms is not None:
        took = "" if batch.duration_ms is None else f", took {format_duration(batch.duration_ms)}"
        yield "committed", f"{format_time(batch.committed_at_ms)} UTC{took}"
    if batch.watermark_ms is not None:
        yield "watermark", f"{format_time(batch.watermark_ms)} UTC, lag {format_duration(batch.watermark_lag_ms)}"
    else:
        yield "watermark", "none yet"
    if batch.next_watermark_ms:
        yield "next watermark", f"{format_time(batch.next_watermark_ms)} UTC"
    if hold is not None:
        yield "unchanged", f"since batch {hold.since_batch}{hold.because}"
    yield "rows", "unknown: the offsets do not show it" if batch.rows is None else f"{batch.rows:,}"
    yield "rewind", "yes" if batch.can_rewind_to else f"no: {batch.why_not}"
    if batch.problem:
        yield "problem", batch.problem


def _source_lines(source: SourceRange, inputs: tuple[str, ...]) -> Iterator[str]:
    rows = "unknown" if source.rows is None else f"{source.rows:,}"
    lag = "" if source.lag is None else f", unread {source.lag:,}"
    named = "" if source.given_name in (None, source.name) else f" ({source.given_name})"
    yield f"source {source.name}{named}: {source.description or source.kind}, rows {rows}{lag}"
    after = kafka_partitions(source.end) if source.kind == "kafka" else None
    if after is not None:
        yield from _partition_lines(kafka_partitions(source.start) or {}, after)
    elif source.kind in ("delta", "iceberg"):
        yield f"  from {_table_text(source.start)}"
        yield f"  to   {_table_text(source.end)}"
    else:
        yield f"  from {short_text(source.start, 200)}"
        yield f"  to   {short_text(source.end, 200)}"
    if inputs:
        yield f"  {count(len(inputs), 'input file')}"
        yield from (f"    {path}" for path in inputs)


def _table_text(value: Any) -> str:
    position = table_position(value)
    return position.sentence if position else "the start" if value is None else short_text(value, 200)


def _partition_lines(before: PartitionOffsets, after: PartitionOffsets) -> Iterator[str]:
    for (topic, partition), end in sorted(after.items()):
        start = before.get((topic, partition))
        shown_start, rows = ("?", "?") if start is None else (str(start), f"{end - start:,}")
        yield f"  {topic} partition {partition}: {shown_start} to {end} ({rows})"


def _store_lines(stores: tuple[StoreState, ...]) -> Iterator[str]:
    yield f"state version {stores[0].version}"
    for (number, operator), group in groupby(stores, key=lambda store: (store.key.operator_id, store.operator)):
        yield f"  operator {number}" + (f", {operator}" if operator else "")
        for store in group:
            yield f"    partition {store.key.partition_id}, store {store.key.store_name}: {_recipe_text(store)}"


def _recipe_text(store: StoreState) -> str:
    if store.recipe is None:
        return "cannot be rebuilt"
    changes = count(len(store.recipe.changes), "change file")
    if store.recipe.snapshot is None:
        return f"from {changes}"
    return f"from {store.recipe.snapshot}" + (f" and {changes}" if store.recipe.changes else "")


def _labeled(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = list(facts)
    width = max((len(label) for label, _ in listed), default=0)
    yield from (f"  {label:<{width}}  {text}" for label, text in listed)
