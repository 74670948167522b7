"""Whether the state is in checkpoint format 1, which a stale task can overwrite."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import STATE
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    stores = scene.logs.state.stores
    if stores and not any(store.has_unique_ids for store in stores.values()):
        message = (
            "is in checkpoint format 1: a task that a cluster gave up on can still overwrite state; RocksDB queries "
            "can avoid this with spark.sql.streaming.stateStore.checkpointFormatVersion=2 from their first batch on"
        )
        yield Finding("info", "format-1", STATE, message)
