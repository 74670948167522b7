"""No store has a version that no batch in the logs can have written.

Such versions are usually left over from a rewind by hand. They are dangerous in format 1: Spark loads the newest
snapshot up to the version that it needs, and an old snapshot replaces what was written since.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.core.finding import Finding
from headwater.core.ids import BatchId, version_written_by


def check(context: CheckContext) -> Iterator[Finding]:
    stores = context.logs.state.stores
    newest = BatchId(context.newest)
    if any(version > version_written_by(newest) for store in stores.values() for version in store.versions):
        newest = BatchId(context.again().newest)
    limit = version_written_by(newest)
    for key, store in stores.items():
        changes = sorted(version for version in store.changes if version > limit)
        snapshots = sorted(version for version in store.snapshots if version > limit)
        if not changes and not snapshots:
            continue
        first, last = min(changes + snapshots), max(changes + snapshots)
        which = f"version {first}, which is" if first == last else f"versions {first} to {last}, which are"
        message = f"has {which} newer than batch {newest} can have written"
        if store.has_unique_ids:
            yield Finding("info", "state-ahead", key.folder, f"{message}; format 2 ignores such files")
        elif snapshots:
            message += f"; Spark will load snapshot {snapshots[0]} when the stream reaches that version"
            yield Finding("error", "state-ahead", key.folder, message)
        else:
            yield Finding("warning", "state-ahead", key.folder, message)
