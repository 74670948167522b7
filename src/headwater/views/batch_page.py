"""One batch whole, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from headwater.checkpoint.batch_files import BatchFiles, StoreState
from headwater.checkpoint.history import Batch
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions, short_text
from headwater.views.words import count, moment, span


def lines(batch: Batch, files: BatchFiles) -> Iterator[str]:
    """What ``show`` prints."""
    yield f"batch {batch.batch_id}, {batch.status}"
    yield from _labelled(_facts(batch))
    for source in batch.sources:
        yield ""
        yield from _source(source, files.inputs.get(source.name, ()))
    if files.stores:
        yield ""
        yield from _state(files.stores)
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


def _state(stores: tuple[StoreState, ...]) -> Iterator[str]:
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
