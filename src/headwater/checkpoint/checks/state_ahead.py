"""No store holds a version that no batch in the logs can have written.

Such leftovers (of a rewind by hand, mostly) are dangerous in format 1: Spark takes the highest snapshot up to the version
it wants, and one from before the rewind wins over what was written since.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.core.finding import Finding
from headwater.core.ids import BatchId, version_written_by


def check(scene: Scene) -> Iterator[Finding]:
    newest = max((-1 if last is None else last) for last in (scene.last_committed, scene.last_planned))
    limit = version_written_by(BatchId(newest))
    for key, store in scene.logs.state.stores.items():
        changes = sorted(version for version in store.changes if version > limit)
        snapshots = sorted(version for version in store.snapshots if version > limit)
        if not changes and not snapshots:
            continue
        first, last = min(changes + snapshots), max(changes + snapshots)
        which = f"version {first}" if first == last else f"versions {first} to {last}"
        message = f"holds {which}, newer than batch {newest} can have written"
        if store.has_unique_ids:
            yield Finding("info", "state-ahead", key.folder, f"{message}; format 2 does not read them")
        elif snapshots:
            message += f"; snapshot {snapshots[0]} would be taken for the truth when the stream gets there"
            yield Finding("error", "state-ahead", key.folder, message)
        else:
            yield Finding("warning", "state-ahead", key.folder, message)
