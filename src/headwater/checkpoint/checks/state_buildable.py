"""The state as of the last commit can be rebuilt in every store, and that of older batches without holes."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.core.finding import Finding
from headwater.core.ids import BatchId, StoreKey, version_written_by


def check(context: CheckContext) -> Iterator[Finding]:
    last = context.last_committed
    if last is None:
        return
    for key in context.stores_of(last):
        yield from _newest(context, key, last)
        yield from _holes(context, key, last)


def _newest(context: CheckContext, key: StoreKey, last: int) -> Iterator[Finding]:
    version = version_written_by(BatchId(last))
    store = context.logs.state.store(key)
    missing = store.missing_version(version)
    if missing is None:
        return
    reason = "its file is missing" if missing == version else f"the file of version {missing} is missing"
    if store.changes.get(missing) or store.snapshots.get(missing):
        reason = f"the file that the commit names for version {missing} is missing"
    nearest = store.nearest_buildable(version)
    found = "no version can be rebuilt" if nearest is None else f"the newest version that can be rebuilt is {nearest}"
    message = f"version {version} of {key} cannot be rebuilt: {reason}; {found}; Spark will fail at its next start"
    yield Finding("error", "state-missing", key.folder, message)


def _holes(context: CheckContext, key: StoreKey, last: int) -> Iterator[Finding]:
    store = context.logs.state.store(key)
    older_can = False
    for batch in context.committed:
        version = version_written_by(BatchId(batch))
        if store.can_build(version):
            older_can = True
        elif older_can and batch != last and key in context.stores_of(batch):
            message = (
                f"version {version} of {key} cannot be rebuilt, although older versions can: the stream cannot be "
                f"rewound to batch {batch}"
            )
            yield Finding("warning", "state-hole", key.folder, message)
