"""Plan to change the number of state partitions. ``spark.repartition`` carries it out: Spark rewrites the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.timemachine.extra_batch import refuse_uncommitted
from headwater.timemachine.journal import refuse_if_pending

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class RepartitionPlan:
    """A repartition that was planned. It adds batch ``batch_id``, which reads no input, to the checkpoint."""

    files: FileTree = field(repr=False, compare=False)
    batch_id: int
    before: int
    partitions: int

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"batch_id": self.batch_id, "before": self.before, "partitions": self.partitions}


def plan_repartition(files: FileTree, partitions: int) -> RepartitionPlan:
    """Plan a repartition of the state. Raise ``ChangeRefused`` for what Spark cannot repartition."""
    if partitions < 1:
        raise UsageProblem("bad-option", f"the state cannot have {partitions} partitions", remedy="1 or more")
    refuse_if_pending(files)
    history = History(files)
    last = history.last_committed
    if last is None or not history.logs.state.stores:
        raise ChangeRefused(
            "no-state", "this checkpoint has no state to repartition", evidence={"checkpoint": files.location}
        )
    refuse_uncommitted(history, last)
    entry = history.logs.offsets.get(last)
    provider = (entry.conf if entry else {}).get(_PROVIDER, "")
    if "RocksDB" not in provider:
        raise ChangeRefused(
            "state-store",
            "Spark can repartition RocksDB state only",
            evidence={"state store": provider.rpartition(".")[2] or "HDFSBackedStateStoreProvider"},
            remedy=f"headwater migrate {files.location} --store rocksdb-changelog",
        )
    before = (entry.shuffle_partitions if entry else None) or 0
    if before == partitions:
        raise ChangeRefused("nothing-to-do", f"the state already has {partitions} partitions")
    return RepartitionPlan(files, last + 1, before, partitions)
