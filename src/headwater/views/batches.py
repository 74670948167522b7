"""A batch as a plain dictionary: what ``log --json`` and ``show --json`` print and the page draws."""

from __future__ import annotations

from typing import Any

from headwater.checkpoint.batch_files import BatchFiles, StoreState
from headwater.checkpoint.history import Batch
from headwater.checkpoint.source_offsets import SourceRange
from headwater.core.times import iso_from_ms


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
