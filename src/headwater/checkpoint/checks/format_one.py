"""Reports state in checkpoint format 1, which an abandoned task can overwrite."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import STATE
from headwater.checkpoint.operator_metadata import is_operator_metadata
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    stores = context.logs.state.stores
    if stores and not any(store.has_unique_ids for store in stores.values()):
        message = "is in checkpoint format 1, in which an abandoned task on a cluster can still overwrite state"
        if any(is_operator_metadata(path) for path in context.paths()):  # as Spark writes it since 4.0, like format 2
            message += "; RocksDB queries can avoid this with headwater migrate CKPT --checkpoint-format 2"
        yield Finding("info", "format-1", STATE, message)
