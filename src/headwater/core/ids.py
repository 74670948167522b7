"""What a batch, a state version and a state store are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

BatchId = NewType("BatchId", int)
StateVersion = NewType("StateVersion", int)

DEFAULT_STORE = "default"


def version_written_by(batch: BatchId) -> StateVersion:
    """The state version that a batch leaves behind. The only place that knows of the +1."""
    return StateVersion(batch + 1)


def batch_that_wrote(version: StateVersion) -> BatchId:
    return BatchId(version - 1)


@dataclass(frozen=True, order=True)
class StoreKey:
    """One state store on disk: an operator's partition, and the store's name within it."""

    operator_id: int
    partition_id: int
    store_name: str = DEFAULT_STORE

    @property
    def folder(self) -> str:
        """The store's folder, relative to the checkpoint; the default store has none of its own."""
        base = f"state/{self.operator_id}/{self.partition_id}"
        return base if self.store_name == DEFAULT_STORE else f"{base}/{self.store_name}"
