"""Every stateful operator has as many partitions on disk as the configuration says."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import STATE
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.state_folder import MOST_PARTITIONS
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding

_EMPTY_KEY = b'{"type":"struct","fields":[]}'


def check(scene: Scene) -> Iterator[Finding]:
    last = scene.last_committed
    entry = None if last is None else scene.logs.offsets.get(last)
    wanted = entry.shuffle_partitions if entry else None
    if last is None or wanted is None or wanted > MOST_PARTITIONS:
        return
    for operator in scene.logs.state.operators:
        found = scene.logs.state.partitions[operator]
        missing = sorted(set(range(wanted)) - found)
        if missing and not (found == {0} and _is_never_spread(scene, operator, last)):
            message = (
                f"has {len(found)} partitions, the configuration says {wanted}; partition {missing[0]} has no state"
            )
            yield Finding("error", "partition-count", f"{STATE}/{operator}", message)
        extra = sorted(found - set(range(wanted)))
        if extra:
            message = f"has {len(found)} partitions, the configuration says {wanted}; from {extra[0]} on they are no longer used"
            yield Finding("warning", "partition-count", f"{STATE}/{operator}", message)


def _is_never_spread(scene: Scene, operator: int, batch: int) -> bool:
    """A limit, or a total without a key, runs in one partition whatever the configuration says."""
    about = scene.logs.operator(operator, batch)
    if about is not None and about.operator_name == "globalLimit":
        return True
    try:
        return _EMPTY_KEY in read_bytes(scene.files, f"{STATE}/{operator}/0/_metadata/schema")
    except CheckpointUnreadable:
        return about is None  # Spark before 3.1 wrote no schema: nothing speaks against it
