"""What an added batch changes besides state: the places of sources and stateful operators in a checkpoint.

The files that leave stay available to earlier batches under ``_headwater/migrated``. See ``earlier_layout`` for the way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.checkpoint.migrated import LayoutChange, former_path, layout_path
from headwater.core.ids import StoreKey
from headwater.timemachine.change import Link, Put, Step, set_aside


@dataclass(frozen=True)
class NewLayout:
    """``leaving`` are the files that leave their places, and ``placed`` the new paths of some of them.

    ``written`` are other files at such places. ``offsets`` are the offsets of the added batch, and ``stores`` the stores
    that it has; None if they are those of the batch before it.
    """

    change: LayoutChange
    leaving: tuple[str, ...] = ()
    placed: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, bytes] = field(default_factory=dict)
    offsets: bytes | None = None
    stores: tuple[StoreKey, ...] | None = None

    def steps(self, change_id: str, batch: int) -> Iterator[Step]:
        """Yield the steps: every file is kept for earlier batches before it leaves, and then linked from there."""
        for path in self.leaving:
            yield Link("checkpoint", path, former_path(batch, path))
        for path in self.leaving:
            yield set_aside(change_id, "checkpoint", path)
        for path, origin in self.placed.items():
            yield Link("checkpoint", former_path(batch, origin), path)
        for path in self.written.keys() - set(self.leaving):
            yield Put("checkpoint", former_path(batch, path), b"")
        for path, data in self.written.items():
            yield Put("checkpoint", path, data)
        yield Put("checkpoint", layout_path(batch), self.change.to_bytes())
