"""A batch as a plain dictionary: what ``log --json`` and ``show --json`` print and the page draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from headwater.checkpoint.history import Batch, BatchFiles, StoreState
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions, log_offset, short_text
from headwater.core.times import iso_from_ms
from headwater.views.words import count, moment, shortened, span


def iso_or_none(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else iso_from_ms(epoch_ms)


def batch_as_dict(batch: Batch) -> dict[str, Any]:
    """One line of ``log --json``."""
    shown: dict[str, Any] = {
        "batch_id": batch.batch_id,
        "status": batch.status,
        "planned_at": iso_or_none(batch.planned_at_ms),
        "committed_at": iso_or_none(batch.committed_at_ms),
        "watermark": iso_or_none(batch.watermark_ms),
        "sources": [source_as_dict(source) for source in batch.sources],
        "can_rewind_to": batch.can_rewind_to,
        "why_not": batch.why_not,
        "duration_ms": batch.duration_ms,
        "state_version": batch.state_version,
    }
    if batch.problem:
        shown["problem"] = batch.problem
    return shown


def source_as_dict(source: SourceRange) -> dict[str, Any]:
    shown = {
        "name": source.name,
        "kind": source.kind,
        "start": source.start,
        "end": source.end,
        "rows": source.rows,
    }
    if source.files is not None:
        shown["files"] = source.files
    return shown


def batch_in_full(batch: Batch, files: BatchFiles) -> dict[str, Any]:
    """What ``show --json`` prints: the same as in the log, and all that belongs to the batch."""
    return batch_as_dict(batch) | {
        "next_watermark": iso_or_none(batch.next_watermark_ms or None),
        "conf": dict(batch.conf),
        "state": [store_as_dict(store) for store in files.stores],
        "files": list(files.paths),
        "input_files": {name: list(paths) for name, paths in files.inputs.items()},
    }


def store_as_dict(store: StoreState) -> dict[str, Any]:
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


COLUMNS = ("BATCH", "STATUS", "PLANNED (UTC)", "TOOK", "ROWS", "READ", "WATERMARK (UTC)", "BEHIND", "STATE", "REWIND")
RIGHT = {"BATCH", "TOOK", "ROWS", "BEHIND"}
_GAP = "  "
# What goes first when the terminal is narrow.
EXPENDABLE = ("WATERMARK (UTC)", "STATE", "TOOK", "BEHIND")


def row(batch: Batch) -> tuple[str, ...]:
    """One batch, a text for each of ``COLUMNS``."""
    return (
        str(batch.batch_id),
        batch.status,
        moment(batch.planned_at_ms),
        span(batch.duration_ms),
        _rows(batch),
        "; ".join(reading(source) for source in batch.sources) or "-",
        moment(batch.watermark_ms),
        span(batch.watermark_lag_ms),
        _state(batch),
        "yes" if batch.can_rewind_to else f"no: {batch.why_not}",
    )


def _rows(batch: Batch) -> str:
    if batch.rows is not None:
        return f"{batch.rows:,}"
    files = [source.files for source in batch.sources if source.files is not None]
    if files and len(files) == len(batch.sources):
        return count(sum(files), "file")
    return "?"


def _state(batch: Batch) -> str:
    if batch.state_version is None:
        return "-"
    if not batch.stores_lacking:
        return f"v{batch.state_version}"
    return f"v{batch.state_version} {batch.stores - batch.stores_lacking}/{batch.stores}"


def reading(source: SourceRange) -> str:
    """What a source gave, in one short piece: ``visits 0:1→3 1:0→2``, ``files 3→4``, ``rate 10→12``."""
    if not source.moved:
        return f"{source.kind} -"
    after = kafka_partitions(source.end) if source.kind == "kafka" else None
    if after is not None:
        return _kafka(kafka_partitions(source.start) or {}, after)
    if source.kind in ("files", "table"):
        start, end = log_offset(source.start), log_offset(source.end)
        return f"{source.kind} {'' if start is None else start}→{end}"
    return f"{source.kind} {short_text(source.start, 24)}→{short_text(source.end, 24)}"


def _kafka(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> str:
    pieces = []
    for topic in dict.fromkeys(topic for topic, _ in after):
        partitions = [place for place in after if place[0] == topic]
        steps = [
            f"{place[1]}:{before.get(place, '…')}→{after[place]}"
            for place in partitions
            if before.get(place) != after[place]
        ]
        if len(steps) > 3:
            steps = [f"{len(steps)} of {len(partitions)} partitions"]
        if steps:
            pieces.append(f"{topic} {' '.join(steps)}")
    return ", ".join(pieces) or "kafka -"


@dataclass(frozen=True)
class Shape:
    """Which columns are shown, and how wide each is. Made from the first rows; later ones may stand out a little."""

    widths: tuple[tuple[int, int], ...]

    def line(self, cells: Sequence[str]) -> str:
        """One row as text; the last column, which may hold a reason, runs on."""
        pieces = []
        for place, size in self.widths:
            name, cell = COLUMNS[place], cells[place]
            fitted = shortened(cell, size) if name == "READ" else cell
            pieces.append(fitted.rjust(size) if name in RIGHT else fitted.ljust(size))
        return _GAP.join(pieces).rstrip()


def shape_of(rows: Sequence[Sequence[str]], room: int | None = None) -> Shape:
    """A shape that fits the rows. With ``room`` what was read is cut, then columns go, until a line without a reason fits."""
    sizes = [max(len(name), *(len(one[place]) for one in rows), 0) for place, name in enumerate(COLUMNS)]
    read = COLUMNS.index("READ")
    sizes[read] = min(sizes[read], 60)
    sizes[-1] = len(COLUMNS[-1])
    shown = list(range(len(COLUMNS)))
    if room is not None:
        sizes[read] = max(min(sizes[read], room - _total(shown, sizes) + sizes[read]), min(sizes[read], 16))
        for name in EXPENDABLE:
            if _total(shown, sizes) > room:
                shown.remove(COLUMNS.index(name))
    return Shape(tuple((place, sizes[place]) for place in shown))


def _total(shown: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(sizes[place] for place in shown) + len(_GAP) * (len(shown) - 1)


def batch_lines(batch: Batch, files: BatchFiles) -> Iterator[str]:
    """What ``show`` prints."""
    yield f"batch {batch.batch_id}, {batch.status}"
    yield from _labelled(_facts(batch))
    for source in batch.sources:
        yield ""
        yield from _source(source, files.inputs.get(source.name, ()))
    if files.stores:
        yield ""
        yield from _state_lines(files.stores)
    if batch.conf:
        yield ""
        yield "configuration"
        yield from _labelled(sorted(batch.conf.items()))
    yield ""
    yield "files"
    shown = [path for path in files.paths if not path.startswith("state/") or "/_metadata/" in path]
    yield from (f"  {path}" for path in shown)
    if len(shown) < len(files.paths):
        yield f"  {count(len(files.paths) - len(shown), 'state file')} (--json names them)"


def _facts(batch: Batch) -> Iterator[tuple[str, str]]:
    yield "planned", f"{moment(batch.planned_at_ms)} UTC"
    if batch.committed_at_ms is not None:
        later = "" if batch.duration_ms is None else f", {span(batch.duration_ms)} later"
        yield "committed", f"{moment(batch.committed_at_ms)} UTC{later}"
    if batch.watermark_ms is not None:
        yield "watermark", f"{moment(batch.watermark_ms)} UTC, {span(batch.watermark_lag_ms)} behind"
    else:
        yield "watermark", "none yet"
    if batch.next_watermark_ms:
        yield "next watermark", f"{moment(batch.next_watermark_ms)} UTC"
    yield "rows", "not known from the offsets" if batch.rows is None else f"{batch.rows:,}"
    yield "rewind", "can be the last batch kept" if batch.can_rewind_to else f"no: {batch.why_not}"
    if batch.problem:
        yield "problem", batch.problem


def _source(source: SourceRange, inputs: tuple[str, ...]) -> Iterator[str]:
    known = "not known" if source.rows is None else f"{source.rows:,}"
    yield f"source {source.name}: {source.kind}, rows {known}"
    after = kafka_partitions(source.end) if source.kind == "kafka" else None
    if after is not None:
        yield from _kafka_lines(kafka_partitions(source.start) or {}, after)
    else:
        yield f"  from {short_text(source.start, 200)}"
        yield f"  to   {short_text(source.end, 200)}"
    if inputs:
        yield f"  {count(len(inputs), 'input file')}"
        yield from (f"    {path}" for path in inputs)


def _kafka_lines(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> Iterator[str]:
    for (topic, partition), end in sorted(after.items()):
        start = before.get((topic, partition))
        known = ("?", "?") if start is None else (str(start), f"{end - start:,}")
        yield f"  {topic} partition {partition}: {known[0]} to {end} ({known[1]})"


def _state_lines(stores: tuple[StoreState, ...]) -> Iterator[str]:
    yield f"state version {stores[0].version}"
    for (number, operator), group in groupby(stores, key=lambda store: (store.key.operator_id, store.operator)):
        yield f"  operator {number}" + (f", {operator}" if operator else "")
        for store in group:
            yield f"    partition {store.key.partition_id}, store {store.key.store_name}: {_recipe(store)}"


def _recipe(store: StoreState) -> str:
    if store.recipe is None:
        return "cannot be rebuilt"
    changes = count(len(store.recipe.changes), "change file")
    if store.recipe.snapshot is None:
        return f"from {changes}"
    return f"from {store.recipe.snapshot}" + (f" and {changes}" if store.recipe.changes else "")


def _labelled(facts: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    held = list(facts)
    width = max((len(label) for label, _ in held), default=0)
    yield from (f"  {label:<{width}}  {text}" for label, text in held)
