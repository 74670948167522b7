"""Everything on disk that belongs to one batch: its log files, its input files, its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.layout import SOURCES
from headwater.checkpoint.operator_metadata import version_1_path, version_2_folder
from headwater.checkpoint.source_offsets import log_offset
from headwater.checkpoint.state_versions import Recipe
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import StateVersion, StoreKey, version_written_by


@dataclass(frozen=True)
class StoreState:
    """A store as a batch left it. ``recipe`` is None when that version cannot be rebuilt any more."""

    key: StoreKey
    operator: str | None
    version: StateVersion
    recipe: Recipe | None


@dataclass(frozen=True)
class BatchFiles:
    paths: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]]
    stores: tuple[StoreState, ...]


def files_of(history: History, batch: Batch) -> BatchFiles:
    """Look up what belongs to a batch; what is lost or cannot be read is left out."""
    stores = tuple(_stores(history, batch))
    paths = [*_log_paths(history, batch), *_state_paths(stores)]
    return BatchFiles(tuple(dict.fromkeys(paths)), _inputs(history, batch), stores)


def _stores(history: History, batch: Batch) -> Iterator[StoreState]:
    if batch.status == "planned":
        return
    entry = history.logs.offsets.get(batch.batch_id)
    version = version_written_by(batch.batch_id)
    tree = history.logs.state
    names = {number: history.logs.operator(number, batch.batch_id) for number in tree.operators}
    for key in tree.expected(entry.shuffle_partitions if entry else None):
        about = names[key.operator_id]
        yield StoreState(key, about.operator_name if about else None, version, tree.store(key).recipe(version))


def _log_paths(history: History, batch: Batch) -> Iterator[str]:
    logs = history.logs
    for log in (logs.offsets, logs.commits):
        if batch.batch_id in log.entries:
            yield log.path(batch.batch_id)
    for source in batch.sources:
        end = log_offset(source.end) if source.kind in ("files", "table") else None
        name = None if end is None else history.source_log(source.name).names.holder_of(end)
        if name is not None:
            yield f"{SOURCES}/{source.name}/{name}"
    for operator in logs.state.operators:
        if str(batch.batch_id) in logs.state.names.get(version_2_folder(operator), ()):
            yield f"{version_2_folder(operator)}/{batch.batch_id}"
        elif "metadata" in logs.state.names.get(version_1_path(operator).removesuffix("/metadata"), ()):
            yield version_1_path(operator)


def _state_paths(stores: tuple[StoreState, ...]) -> Iterator[str]:
    for store in stores:
        if store.recipe is not None:
            names = (*((store.recipe.snapshot,) if store.recipe.snapshot else ()), *store.recipe.changes)
            yield from (f"{store.key.folder}/{name}" for name in names)


def _inputs(history: History, batch: Batch) -> dict[str, tuple[str, ...]]:
    found = {}
    for source in batch.sources:
        end = log_offset(source.end) if source.files is not None else None
        if end is None:
            continue
        start = log_offset(source.start) if source.start is not None else -1
        try:
            entries = history.source_log(source.name).entries_between(-1 if start is None else start, end)
        except CheckpointUnreadable:
            entries = None
        if entries is not None:
            found[source.name] = tuple(entry.path for entry in entries)
    return found
