"""Whether a stream can be rewound so that a batch is the last one kept, as far as the checkpoint itself tells. Pure.

The next batch then needs the kept batch's commit, two neighbouring offsets files, and, in every store, the state
version that the kept batch left.
"""

from __future__ import annotations

from collections.abc import Collection

from headwater.checkpoint.state_tree import StateTree
from headwater.core.ids import BatchId, StoreKey, version_written_by


def missing_logs(kept: BatchId, offsets: Collection[int], commits: Collection[int], *, stateful: bool) -> str | None:
    """Which log file is lacking to go on after ``kept``, as a sentence; None when all are there."""
    if kept not in commits:
        return f"commits/{kept} is not there" if kept in offsets else f"batch {kept} is not in the logs"
    if kept not in offsets:
        return f"offsets/{kept} is not there"
    if kept == 0 or kept + 1 in offsets or kept - 1 in offsets:
        return None
    # Asynchronous progress tracking leaves gaps on purpose, in stateless queries only: any older neighbour will do.
    if not stateful and min(offsets) < kept:
        return None
    return f"neither offsets/{kept - 1} nor offsets/{kept + 1} is there, and Spark starts from two neighbours"


def missing_state(
    kept: BatchId, tree: StateTree, shuffle_partitions: int | None, *, most: int | None = None
) -> list[tuple[StoreKey, int]]:
    """The stores that cannot give the state as of ``kept``, each with the version whose file it lacks."""
    version = version_written_by(kept)
    lacking = []
    for key in tree.expected(shuffle_partitions):
        missing = tree.store(key).what_lacks(version)
        if missing is not None:
            lacking.append((key, missing))
            if most is not None and len(lacking) >= most:
                break
    return lacking


def state_obstacle(kept: BatchId, lacking: list[tuple[StoreKey, int]]) -> str | None:
    """The first lacking store as a sentence."""
    if not lacking:
        return None
    key, missing = lacking[0]
    version = version_written_by(kept)
    reason = f"state version {version} of {described(key)} cannot be rebuilt"
    if missing != version:
        reason += f": version {missing} is gone"
    others = len(lacking) - 1
    return f"{reason}, nor that of {others} other {'store' if others == 1 else 'stores'}" if others else reason


def described(key: StoreKey) -> str:
    return f"operator {key.operator_id}, store {key.store_name}, partition {key.partition_id}"
