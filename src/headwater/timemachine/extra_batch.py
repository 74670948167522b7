"""Plan a batch that reads no input and writes state: how every change of state gets into a checkpoint.

With N the last committed batch, the new batch N+1 repeats the offsets of N and writes version N+2 of every store of
every operator, also of those that stay as they are. Spark continues after it as after any other batch. A file sink gets
an entry without files, because Spark expects one when it compacts the sink's log.

The batch can be undone, rewound to and rewound across like one that Spark wrote.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS, SINK_LOG, hadoop_crc_of
from headwater.checkpoint.lease import live_lease, refuse_if_held
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.migrated import former_path
from headwater.core.current_user import current_user
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId, StoreKey
from headwater.statefiles.codecs import CODECS
from headwater.statefiles.stores import PROVIDER
from headwater.timemachine.change import (
    Change,
    Put,
    Step,
    fingerprint,
    joined_fingerprint,
    new_change_id,
    scratch_of,
    set_aside,
    sink_part,
    staged,
)
from headwater.timemachine.cuts import cut_batch_logs, cut_state, entry_without_files
from headwater.timemachine.edit_plan import ExtraBatch
from headwater.timemachine.new_layout import NewLayout
from headwater.timemachine.staged_files import StagedFiles
from headwater.timemachine.store_files import CODEC, StoreChange, StoreForm, StoreWriter, commit_with, offsets_with

_HDFS, _ROCKSDB = "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"


def plan_extra_batch(
    history: History,
    changes: Mapping[StoreKey, StoreChange],
    *,
    verb: str,
    about: str,
    sink: FileTree | None = None,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
    aside: Sequence[str] = (),
    metadata: Mapping[str, bytes] | None = None,
    records: Mapping[str, bytes] | None = None,
    form: StoreForm | None = None,
    layout: NewLayout | None = None,
    seen: str | None = None,
) -> ExtraBatch:
    """Plan the batch after the last one. Raise ``ChangeRefused`` if its state cannot be written with certainty.

    ``sink`` is the folder of a file sink with a log. ``details`` are recorded in the journal, with who and why. ``aside``
    are further files of the checkpoint to set aside. ``metadata`` are files of the state's metadata to replace or add;
    what they replace stays valid for earlier batches. ``records`` are files of Headwater to replace. ``form`` is the form
    in which the batch stores its state; if it is another one than that of the last batch, all stores have to change.
    ``layout`` changes the sources or the stateful operators. ``seen`` is the fingerprint of the checkpoint from before the
    history was read; by default it is taken now.
    """
    seen = joined_fingerprint(seen or fingerprint(history.files), sink_part(sink))
    files, logs = history.files, history.logs
    last = writable_batch(history, needs_state=layout is None)
    planned, commit = logs.offsets.read(last), logs.commits.read(last)
    added = BatchId(last + 1)
    stores = logs.expected_stores(last) if layout is None or layout.stores is None else layout.stores
    unknown = set(changes) - set(stores)
    if unknown:
        raise ValueError(f"{min(unknown)} is not a store of batch {last}")
    change_id = new_change_id(verb)
    form = form or StoreForm.of(logs, last)
    ids = {key: str(uuid.uuid4()) for key in stores} if form.unique_ids else {}
    large = StagedFiles(scratch_of(change_id))
    writer = StoreWriter(logs, planned, last, form, large)
    offsets = None if layout is None else layout.offsets
    contents: dict[str, bytes | None] = {
        f"{OFFSETS}/{added}": offsets_with(planned, form) if offsets is None else offsets
    }
    for key in stores:
        contents |= writer.files(key, changes.get(key, StoreChange()), ids.get(key))
    contents[f"{COMMITS}/{added}"] = commit_with(commit, ids) if form.unique_ids else commit.text.to_bytes()
    leftovers = dict.fromkeys([*cut_batch_logs(files, added, replan=True), *cut_state(history, added), *aside])
    for path in layout.leaving if layout else ():
        leftovers.pop(path, None)
    logged = entry_without_files(sink, added) if sink is not None else {}
    steps: list[Step] = [set_aside(change_id, "checkpoint", path) for path in leftovers]
    steps += layout.steps(change_id, added) if layout else ()
    steps += _replacing(files, change_id, metadata or {}, added)
    steps += _replacing(files, change_id, records or {})
    steps += [
        staged(change_id, path) if data is None else Put("checkpoint", path, data) for path, data in contents.items()
    ]
    steps += [Put("sink", f"{SINK_LOG}/{name}", data) for name, data in logged.items()]
    change = Change(
        change_id,
        verb,
        about,
        tuple(steps),
        seen,
        sink.location if sink else None,
        to=last,
        details={"added": [added], "replan": True, "by": current_user(), "reason": reason, **(details or {})},
    )
    return ExtraBatch(added, change, large)


def _replacing(
    files: FileTree, change_id: str, contents: Mapping[str, bytes], batch: BatchId | None = None
) -> Iterator[Step]:
    """Yield the steps that replace files. With a batch, their former contents are kept for the batches before it."""
    for path, data in contents.items():
        former = files.read(path) if files.exists(path) else b""
        if former == data:
            continue
        for place in (path, hadoop_crc_of(path)):
            if files.exists(place):
                yield set_aside(change_id, "checkpoint", place)
        if batch is not None:
            yield Put("checkpoint", former_path(batch, path), former)
        yield Put("checkpoint", path, data)


def writable_batch(history: History, *, needs_state: bool = True) -> BatchId:
    """Return the last committed batch. Raise ``ChangeRefused`` if no batch can be added after it."""
    location, last = history.files.location, history.last_committed
    if last is None or (needs_state and not history.logs.state.stores):
        raise ChangeRefused("no-state", "this checkpoint has no state", evidence={"checkpoint": location})
    refuse_uncommitted(history, last)
    batch = history.batch(last)
    if not batch.can_rewind_to:
        raise ChangeRefused(
            "cannot-write-state",
            f"no batch can be added after batch {last}, because it is not complete",
            evidence={"why": batch.why_not or "", "checkpoint": location},
            remedy=f"headwater fsck {location}",
        )
    refuse_unknown_encoding(history.logs, last)
    return last


def refuse_uncommitted(history: History, last: BatchId) -> None:
    """Raise ``ChangeRefused`` if a batch after the last committed one has been planned.

    Raise ``CheckpointBusy`` instead if another process is running on the checkpoint, which may be within that batch.
    """
    newest, location = history.batch_ids[-1], history.files.location
    if newest > last:
        lease = live_lease(history.files)
        if lease is not None and not lease.is_own_change:
            refuse_if_held(history.files, "cannot change the state")
        raise ChangeRefused(
            "uncommitted-batch",
            f"batch {newest} is planned but not committed",
            evidence={"checkpoint": location},
            remedy=f"run the job until it has finished the batch, or discard its plan: headwater rewind {location} "
            f"--to {last} --replan",
        )


def refuse_unknown_encoding(logs: CheckpointLogs, batch: int) -> None:
    """Raise ``ChangeRefused`` if the state of a batch is in a format that can only be read."""
    entry = logs.offsets.get(batch)
    conf = entry.conf if entry else {}
    provider = conf.get(PROVIDER, _HDFS).rpartition(".")[2]
    codec = conf.get(CODEC, "lz4")
    why = None
    if provider not in (_HDFS, _ROCKSDB):
        why = f"the state store is {provider}; only {_HDFS} and {_ROCKSDB} can be written"
    elif codec not in CODECS:
        why = f"the state files are compressed with {codec}; only {', '.join(CODECS)} can be written"
    elif provider == _ROCKSDB and not _reads_changelogs(logs, batch):
        why = (
            "the state was written without changelogs by Spark before 4.0, and Spark before 3.5 cannot read changelogs"
        )
    if why:
        raise ChangeRefused(
            "cannot-write-state", "the state of this checkpoint cannot be written", evidence={"why": why}
        )


def _reads_changelogs(logs: CheckpointLogs, batch: int) -> bool:
    """Return whether the Spark that wrote a RocksDB state is known to read changelogs: it wrote one, or is 4.0 or newer."""
    has_one = any(name.endswith(".changelog") for names in logs.state.names.values() for name in names)
    return has_one or all(logs.operator(operator, batch) is not None for operator in logs.operators(batch))
