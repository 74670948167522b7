"""Plan to keep the state in another store: HDFS-backed or RocksDB, with changelogs or without, in checkpoint format 1 or 2.

The rows stay as they are. A batch that reads no input writes all of them as a snapshot in the new form, its offsets name
the other store, and its commit names the files of format 2. Spark takes these from the last batch when it starts.
Earlier batches keep their files, so that they can be read and rewound to. Nothing here uses Spark, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.record import sink_of
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import StoreKey
from headwater.migration.store_migration_plan import StoredForm, StoreMigrationPlan
from headwater.statefiles.keyencoder import RowEncoder, storage_target
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records
from headwater.statefiles.statewriter import Operation, put
from headwater.statefiles.stored_rows import stored_rows
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.change import fingerprint
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.edit import UNKNOWN_SINK
from headwater.timemachine.extra_batch import plan_extra_batch, writable_batch
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.store_files import StoreChange, StoreForm

STORE_NAMES = ("hdfs", "rocksdb", "rocksdb-changelog")
_VERSION = b"\0"


def plan_store_migration(
    files: FileTree,
    *,
    store: str | None = None,
    checkpoint_format: int | None = None,
    reason: str | None = None,
    sink: str | None = None,
) -> StoreMigrationPlan:
    """Plan to keep the state in another store or checkpoint format. Raise ``ChangeRefused`` for what Spark cannot read."""
    seen = fingerprint(files)
    refuse_if_pending(files)
    history = History(files)
    last = writable_batch(history)
    reader = StateReader(files)
    before = stored_form(history, last)
    after = _wanted(before, store, checkpoint_format)
    targets = [one for one in reader.targets(last) if one.kind != "side"]
    if after == before:
        raise ChangeRefused(
            "nothing-to-do",
            f"the state of this checkpoint is already stored as asked: {before.text}",
            evidence={"checkpoint": files.location},
        )
    _refuse_unsupported(before, after, targets, files.location)
    sink_files = sink_of(files, sink)
    sink_files = sink_files if sink_files is not None and has_sink_log(sink_files) else None
    stores = ConvertedStores(reader, last, targets, hdfs=after.form.hdfs)
    only_adds_changelogs = after.form == before.form and after.changelog
    batch = plan_extra_batch(
        history,
        {} if only_adds_changelogs else stores,
        verb="migrate",
        about=f"migrate the state from {before.text} to {after.text}",
        sink=sink_files,
        reason=reason,
        details={"before": before.as_dict(), "after": after.as_dict()},
        form=after.form,
        seen=seen,
    )
    known_sink = sink is not None or history.logs.job.sink is not None
    warnings = () if known_sink else (UNKNOWN_SINK,)
    signs = tuple(signs_of_life(history))
    return StoreMigrationPlan(files, sink_files, before, after, stores.rows, batch, reason, warnings, signs)


def stored_form(history: History, batch: int) -> StoredForm:
    """Return the form of a batch's state. Changelogs are on if there is one for its version or a later one."""
    form = StoreForm.of(history.logs, batch)
    if form.hdfs:
        return StoredForm(form)
    changelogs = any(version > batch for store in history.logs.state.stores.values() for version in store.changes)
    return StoredForm(form, changelogs)


def _wanted(before: StoredForm, store: str | None, checkpoint_format: int | None) -> StoredForm:
    if store is not None and store not in STORE_NAMES:
        raise UsageProblem("bad-option", f"{store} is not a state store", remedy=f"--store {'|'.join(STORE_NAMES)}")
    if checkpoint_format not in (None, 1, 2):
        raise UsageProblem(
            "bad-option", f"there is no checkpoint format {checkpoint_format}", remedy="--checkpoint-format 2"
        )
    chosen = store or before.store
    unique_ids = before.form.unique_ids if checkpoint_format is None else checkpoint_format == 2
    form = StoreForm(chosen == "hdfs", unique_ids)
    return StoredForm(form, None if form.hdfs else chosen == "rocksdb-changelog")


def _refuse_unsupported(before: StoredForm, after: StoredForm, targets: list[StateTarget], location: str) -> None:
    with_families = next((one for one in targets if one.family is not None), None)
    why = remedy = None
    if before.form.unique_ids and not after.form.unique_ids:
        why = "Spark cannot continue in format 1 next to the files of format 2"
        remedy = f"rewind to a batch before the change of the format: headwater log {location}"
    elif after.form.hdfs and before.form.unique_ids:
        why = "HDFS-backed stores have no checkpoint format 2, and Spark cannot list their folders next to its files"
    elif after.form.hdfs and after.form.unique_ids:
        why, remedy = (
            "HDFS-backed stores have no checkpoint format 2",
            "--store rocksdb-changelog --checkpoint-format 2",
        )
    elif after.form.hdfs and with_families is not None:
        why = f"{with_families.label} needs RocksDB: Spark has no HDFS-backed store with column families"
    elif any(one.kind == "raw" for one in targets) and before.form.hdfs != after.form.hdfs:
        why = "a store has no schema file, so that its keys are only known as bytes"
    if why is not None:
        raise ChangeRefused(
            "cannot-migrate",
            f"the state cannot be migrated to {after.text}",
            evidence={"why": why, "checkpoint": location},
            remedy=remedy,
        )


class ConvertedStores(Mapping[StoreKey, StoreChange]):
    """All rows of all stores in another form, computed when asked for, so that one part of a store is in memory.

    ``rows`` is complete when all stores have been read.
    """

    def __init__(self, reader: StateReader, batch: int, targets: list[StateTarget], *, hdfs: bool) -> None:
        self.rows = 0
        self._reader, self._batch, self._hdfs = reader, batch, hdfs
        self._targets = {(one.operator_id, one.folder_store): one for one in targets}
        self._keys = reader.logs.expected_stores(batch)

    def __getitem__(self, key: StoreKey) -> StoreChange:
        if key not in self._keys:
            raise KeyError(key)
        target = self._targets.get((key.operator_id, key.store_name))
        if target is None:
            raise ChangeRefused(
                "cannot-migrate",
                f"{key} cannot be migrated",
                evidence={"why": "the metadata of its operator does not name it"},
            )
        return StoreChange(self._operations(key, target), complete=True, snapshot=True)

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _operations(self, key: StoreKey, target: StateTarget) -> Iterator[Operation]:
        if target.family is not None:  # always RocksDB
            for row in stored_rows(self._reader, target, key, self._batch):
                self.rows += 1
                yield put(*row)
            return
        store = self._reader.partition(target, key)
        large = store.large_parts(self._batch)
        for records in [store.rows(self._batch)] if large is None else (part() for part in large):
            for row in self._rows(target, records):
                self.rows += 1
                yield put(*row)

    def _rows(self, target: StateTarget, records: Records) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of records in the new form. RocksDB has a version byte before each row."""
        was_hdfs = self._reader.decoder(target, self._batch).hdfs
        if was_hdfs == self._hdfs:
            yield from records.pairs()
            return
        keys: Iterator[bytes] | None = None
        if target.schema.encoding.layout != "row":
            storage = storage_target(target)
            encoder = RowEncoder(storage, self._reader.settings(self._batch), self._hdfs)
            keys = iter(encoder.keys(self._reader.decoder(storage, self._batch).keys(records)))
        for stored, value in records.pairs():
            other = next(keys) if keys else _VERSION + stored if was_hdfs else stored[1:]
            yield other, _VERSION + value if was_hdfs else value[1:]
