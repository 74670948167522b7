"""Plan a batch that reads no input and writes state: how every change of state gets into a checkpoint.

With N the last committed batch, the new batch N+1 repeats the offsets of N and writes version N+2 of every store of
every operator, also of those that stay as they are. Spark continues after it as after any other batch. A file sink gets
an entry without files, because Spark expects one when it compacts the sink's log.

The batch can be undone, rewound to and rewound across like one that Spark wrote.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS, SINK_LOG, hadoop_crc_of
from headwater.checkpoint.log_entries import JOIN_STORES, CommitEntry, OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.migrated import former_path
from headwater.checkpoint.state_folder import StoreFiles
from headwater.core.current_user import current_user
from headwater.core.errors import ChangeRefused
from headwater.core.ids import DEFAULT_STORE, BatchId, StoreKey, version_written_by
from headwater.statefiles.codecs import CODECS, decompress
from headwater.statefiles.records import PUT, changelog_header
from headwater.statefiles.statewriter import Operation, changelog_file, plain_file
from headwater.statefiles.stores import StoreSettings, find_targets
from headwater.timemachine.change import Change, Put, Step, fingerprint, new_change_id, scratch_of, set_aside, staged
from headwater.timemachine.cuts import cut_batch_logs, cut_state, entry_without_files
from headwater.timemachine.edit_plan import ExtraBatch
from headwater.timemachine.new_layout import NewLayout

_CONF = "spark.sql.streaming.stateStore."
_HDFS, _ROCKSDB = "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"
# Larger files are written next to the journal before the change begins, and not stored in it.
_LARGEST_PUT = 64 * 1024


@dataclass(frozen=True)
class StoreChange:
    """What a batch does to one store: operations on keys, which include the id of their column family.

    If ``complete``, the puts are all that the store contains afterwards. On an HDFS-backed store it is then written as
    a snapshot, so that Spark reads no older version. On RocksDB the operations have to delete the keys that vanish, unless
    ``snapshot``: the puts are then written as a snapshot on any store.
    """

    operations: Sequence[Operation] = ()
    complete: bool = False
    snapshot: bool = False
    origin: StoreKey | None = None
    """The store whose rows these are, if a migration moves them. It names the column families of a snapshot."""
    is_new: bool = False
    """Whether the store belongs to an operator that did not exist before, so that older files in its place do not count."""


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
    layout: NewLayout | None = None,
) -> ExtraBatch:
    """Plan the batch after the last one. Raise ``ChangeRefused`` if its state cannot be written with certainty.

    ``sink`` is the folder of a file sink with a log. ``details`` are recorded in the journal, with who and why. ``aside``
    are further files of the checkpoint to set aside. ``metadata`` are files of the state's metadata to replace or add;
    what they replace stays valid for earlier batches. ``records`` are files of Headwater to replace. ``layout`` changes the
    sources or the stateful operators.
    """
    files, logs = history.files, history.logs
    last = writable_batch(history, needs_state=layout is None)
    planned, commit = logs.offsets.read(last), logs.commits.read(last)
    added = BatchId(last + 1)
    stores = logs.expected_stores(last) if layout is None or layout.stores is None else layout.stores
    unknown = set(changes) - set(stores)
    if unknown:
        raise ValueError(f"{min(unknown)} is not a store of batch {last}")
    change_id = new_change_id(verb)
    ids = {key: str(uuid.uuid4()) for key in stores} if commit.state_unique_ids is not None else {}
    writer = _StoreWriter(logs, planned, last)
    contents = {
        f"{OFFSETS}/{added}": planned.text.to_bytes() if layout is None or layout.offsets is None else layout.offsets,
        **{
            path: data
            for key in stores
            for path, data in writer.files(key, changes.get(key, StoreChange()), ids.get(key)).items()
        },
        f"{COMMITS}/{added}": commit.text.to_bytes() if commit.state_unique_ids is None else _with_ids(commit, ids),
    }
    leftovers = dict.fromkeys([*cut_batch_logs(files, added, replan=True), *cut_state(history, added), *aside])
    logged = entry_without_files(sink, added) if sink is not None else {}
    steps: list[Step] = [set_aside(change_id, "checkpoint", path) for path in leftovers]
    steps += layout.steps(change_id, added) if layout else ()
    steps += _replacing(files, change_id, metadata or {}, added)
    steps += _replacing(files, change_id, records or {})
    scratch: dict[str, bytes] = {}
    for path, data in contents.items():
        if len(data) <= _LARGEST_PUT:
            steps.append(Put("checkpoint", path, data))
        else:
            steps.append(staged(change_id, path))
            scratch[f"{scratch_of(change_id)}/{path}"] = data
    steps += [Put("sink", f"{SINK_LOG}/{name}", data) for name, data in logged.items()]
    change = Change(
        change_id,
        verb,
        about,
        tuple(steps),
        fingerprint(files, sink),
        sink.location if sink else None,
        to=last,
        details={"added": [added], "replan": True, "by": current_user(), "reason": reason, **(details or {})},
    )
    return ExtraBatch(added, change, scratch)


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
    newest = history.batch_ids[-1]
    if newest > last:
        raise ChangeRefused(
            "uncommitted-batch",
            f"batch {newest} is planned but not committed",
            evidence={"checkpoint": location},
            remedy=f"run the job until it has finished the batch, or discard its plan: headwater rewind {location} "
            f"--to {last} --replan",
        )
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


def refuse_unknown_encoding(logs: CheckpointLogs, batch: int) -> None:
    """Raise ``ChangeRefused`` if the state of a batch is in a format that can only be read."""
    entry = logs.offsets.get(batch)
    conf = entry.conf if entry else {}
    settings = StoreSettings.of(entry)
    provider = conf.get(f"{_CONF}providerClass", _HDFS).rpartition(".")[2]
    codec = conf.get(f"{_CONF}compression.codec", "lz4")
    why = None
    if provider not in (_HDFS, _ROCKSDB):
        why = f"the state store is {provider}; only {_HDFS} and {_ROCKSDB} can be written"
    elif settings.avro and any(target.family is not None for target in find_targets(logs, batch)):
        why = "the state is encoded in Avro, which can be read but not written"
    elif settings.row_checksums:
        why = "every row of the state has a checksum, which can be read but not written"
    elif codec not in CODECS:
        why = f"the state files are compressed with {codec}; only {', '.join(CODECS)} can be written"
    elif provider == _ROCKSDB and not _reads_changelogs(logs, batch):
        why = "it was written by a Spark before 4.0 without changelogs, and versions before 3.5 cannot read one"
    if why:
        raise ChangeRefused(
            "cannot-write-state", "the state of this checkpoint cannot be written", evidence={"why": why}
        )


def _reads_changelogs(logs: CheckpointLogs, batch: int) -> bool:
    """Return whether the Spark that wrote a RocksDB state is known to read changelogs: it wrote one, or is 4.0 or newer."""
    has_one = any(name.endswith(".changelog") for names in logs.state.names.values() for name in names)
    return has_one or all(logs.operator(operator, batch) is not None for operator in logs.operators(batch))


@dataclass(frozen=True)
class _StoreWriter:
    """Writes the next version of stores, in the form that the last batch used."""

    logs: CheckpointLogs
    planned: OffsetEntry
    last: BatchId

    @property
    def codec(self) -> str:
        return self.planned.conf.get(f"{_CONF}compression.codec", "lz4")

    def files(self, key: StoreKey, change: StoreChange, unique_id: str | None) -> dict[str, bytes]:
        """Return the contents of the files of a store's next version, by path."""
        version = version_written_by(BatchId(self.last + 1))
        origin = change.origin or key
        store = StoreFiles() if change.is_new else self.logs.state.store(origin)
        if self._is_hdfs_backed:
            suffix = "snapshot" if change.complete or change.snapshot else "delta"
            return {f"{key.folder}/{version}.{suffix}": plain_file(change.operations, self.codec)}
        stem = str(version) if unique_id is None else f"{version}_{unique_id}"
        if change.snapshot:
            return self._snapshot(key, origin, store, stem, change)
        lineage = None if unique_id is None else self._lineage(key, store)
        data = changelog_file(change.operations, self.codec, families=self._has_families(key), lineage=lineage)
        return {f"{key.folder}/{stem}.changelog": data}

    def _snapshot(
        self, key: StoreKey, origin: StoreKey, store: StoreFiles, stem: str, change: StoreChange
    ) -> dict[str, bytes]:
        from headwater.statefiles.rocksdb_writer import snapshot_files, snapshot_metadata  # noqa: PLC0415  rarely needed

        newest = max(store.snapshots, default=None)
        like = None
        if newest is not None:
            like = snapshot_metadata(self.logs.files, f"{origin.folder}/{store.snapshots[newest][0].name}")
        elif not change.is_new and self._has_families(origin):
            raise ChangeRefused(
                "cannot-write-state",
                "the state of this checkpoint cannot be written as a snapshot",
                evidence={"why": f"no snapshot of {origin} names its column families yet"},
                remedy="run the job for another batch, then try again",
            )
        rows = ((row_key, value) for kind, row_key, value in change.operations if kind == PUT)
        return {f"{key.folder}/{path}": data for path, data in snapshot_files(stem, rows, like).items()}

    def _lineage(self, key: StoreKey, store: StoreFiles) -> list[tuple[int, str]]:
        """Return the versions between the last snapshot and the new version, as the new changelog has to name them."""
        version = version_written_by(self.last)
        commit = self.logs.commits.read(self.last)
        unique_id = commit.unique_id(key)
        if unique_id is None:
            raise ChangeRefused(
                "cannot-write-state",
                "the last commit does not name the state files of all stores",
                evidence={"store": key, "file": self.logs.commits.path(self.last)},
            )
        snapshot = f"{version}_{unique_id}.zip"
        if any(file.name == snapshot for file in store.snapshots.get(version, ())):
            return [(version, unique_id)]
        path = f"{key.folder}/{version}_{unique_id}.changelog"
        header = changelog_header(decompress(self.logs.files.read(path), path), path)
        return [*header.lineage, (version, unique_id)]

    @cached_property
    def _is_hdfs_backed(self) -> bool:
        """Whether the state store is HDFS-backed. A checkpoint has one kind of store."""
        return any(name.endswith((".delta", ".snapshot")) for names in self.logs.state.names.values() for name in names)

    def _has_families(self, key: StoreKey) -> bool:
        return (key.operator_id, key.store_name) in self._stores_with_families

    @cached_property
    def _stores_with_families(self) -> set[tuple[int, str]]:
        targets = find_targets(self.logs, self.last)
        return {(target.operator_id, target.folder_store) for target in targets if target.family is not None}


def _with_ids(commit: CommitEntry, ids: Mapping[StoreKey, str]) -> bytes:
    """Return a commit with the ids of the new state files in place of the old ones."""
    version, first, *rest = commit.text.lines
    value: dict[str, Any] = json.loads(first)
    value["stateUniqueIds"] = {str(one): _ids_of_operator(one, ids) for one in sorted({key.operator_id for key in ids})}
    lines = (version, json.dumps(value, separators=(",", ":")), *rest)
    return replace(commit.text, lines=lines).to_bytes()


def _ids_of_operator(operator: int, ids: Mapping[StoreKey, str]) -> list[list[str]]:
    """Return the ids of each partition, those of a join in the order of its stores."""
    found: dict[int, dict[str, str]] = {}
    for key, unique_id in ids.items():
        if key.operator_id == operator:
            found.setdefault(key.partition_id, {})[key.store_name] = unique_id
    names = (DEFAULT_STORE,) if DEFAULT_STORE in found[0] else JOIN_STORES
    return [[found[number][name] for name in names] for number in sorted(found)]
