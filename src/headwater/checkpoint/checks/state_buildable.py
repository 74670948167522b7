"""The state that the last commit stands for can be built in every store, and older ones without holes."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.state_folder import described
from headwater.core.finding import Finding
from headwater.core.ids import BatchId, StoreKey, version_written_by


def check(scene: Scene) -> Iterator[Finding]:
    last = scene.last_committed
    if last is None:
        return
    for key in scene.stores_of(last):
        yield from _newest(scene, key, last)
        yield from _holes(scene, key, last)


def _newest(scene: Scene, key: StoreKey, last: int) -> Iterator[Finding]:
    version = version_written_by(BatchId(last))
    store = scene.logs.state.store(key)
    lacking = store.what_lacks(version)
    if lacking is None:
        return
    reason = "its file is not there" if lacking == version else f"the file of version {lacking} is not there"
    if store.changes.get(lacking) or store.snapshots.get(lacking):
        reason = f"the file of version {lacking} that the commit names is not there"
    nearest = store.nearest_buildable(version)
    found = "no version can be rebuilt" if nearest is None else f"the newest that can be rebuilt is {nearest}"
    message = (
        f"version {version} of {described(key)} cannot be rebuilt: {reason}; {found}; Spark will fail at its next start"
    )
    yield Finding("error", "state-missing", key.folder, message)


def _holes(scene: Scene, key: StoreKey, last: int) -> Iterator[Finding]:
    store = scene.logs.state.store(key)
    seen_good = False
    for batch in scene.committed:
        version = version_written_by(BatchId(batch))
        if store.can_build(version):
            seen_good = True
        elif seen_good and batch != last:
            message = (
                f"version {version} of {described(key)} cannot be rebuilt, older ones can; no rewind to batch {batch}"
            )
            yield Finding("warning", "state-hole", key.folder, message)
