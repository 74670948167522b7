"""Identifiers of batches, state versions and state stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

BatchId = NewType("BatchId", int)
StateVersion = NewType("StateVersion", int)

DEFAULT_STORE = "default"


def version_written_by(batch: BatchId) -> StateVersion:
    """Return the state version that a batch writes: its id plus one."""
    return StateVersion(batch + 1)


def batch_that_wrote(version: StateVersion) -> BatchId:
    """Return the batch that wrote a state version."""
    return BatchId(version - 1)


@dataclass(frozen=True, order=True)
class StoreKey:
    """A state store on disk: operator, partition and the store's name."""

    operator_id: int
    partition_id: int
    store_name: str = DEFAULT_STORE

    @property
    def folder(self) -> str:
        """The store's folder, relative to the checkpoint. The default store uses the folder of its partition."""
        base = f"state/{self.operator_id}/{self.partition_id}"
        return base if self.store_name == DEFAULT_STORE else f"{base}/{self.store_name}"

    def __str__(self) -> str:
        return f"operator {self.operator_id}, store {self.store_name}, partition {self.partition_id}"


@dataclass(frozen=True)
class StoreRef:
    """A reference to state stores or variables, as in ``--operator``, ``--store`` and ``--var``; None matches any."""

    operator: int | None = None
    store: str | None = None
    var: str | None = None


ANY_STORE = StoreRef()
