"""History, differences and searches across a repartition, whose files of changes have all rows of a store.

Spark cannot repartition here, so its files are written as PySpark 4.2 does: a snapshot, and with changelogs one of those
too, for every partition, each from an empty store.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.ids import StoreKey
from headwater.statefiles.keyencoder import RowEncoder, storage_target
from headwater.statefiles.reader import StateReader
from headwater.statefiles.statewriter import Operation, put
from headwater.timemachine.bisect import first_by_changes
from headwater.timemachine.diff import diff
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.key_history import key_history
from headwater.timemachine.row_edits import Wanted
from headwater.timemachine.staged_files import StagedFiles
from headwater.timemachine.store_files import StoreChange, StoreForm, StoreWriter

PARTITIONS = "spark.sql.shuffle.partitions"
BOTH_FORMS = pytest.mark.parametrize("with_changelog", [False, True])


def repartition(files: MemoryTree, partitions: int, *, with_changelog: bool) -> int:
    """Add a batch in which the state has another number of partitions; return the batch."""
    history = History(files)
    last = history.last_committed
    assert last is not None
    reader = StateReader(files)
    (target,) = reader.targets(last)
    decoder = reader.decoder(target, last)
    encoder = RowEncoder(storage_target(target), decoder.settings, decoder.hdfs)
    rows: dict[int, list[Operation]] = {number: [] for number in range(partitions)}
    for key in reader.stores(target, last):
        stored = reader.partition(target, key).rows(last)
        places = encoder.partitions(decoder.keys(stored), partitions).tolist()
        for (row_key, value), place in zip(stored.pairs(), places, strict=True):
            rows[place].append(put(row_key, value))
    planned, staged = history.logs.offsets.read(last), StagedFiles("staged")
    writer = StoreWriter(history.logs, planned, last, StoreForm.of(history.logs, last), staged)
    written: dict[str, bytes | None] = {}
    for number, operations in rows.items():
        change = StoreChange(tuple(operations), snapshot=True, is_new=True)
        written |= writer.files(StoreKey(0, number), change, None)
        if with_changelog:
            written |= writer.files(StoreKey(0, number), replace(change, snapshot=False), None)
    for path, data in written.items():
        files.write(path, staged[f"staged/{path}"] if data is None else data)
    version, first, *others = planned.text.lines
    settings = json.loads(first)
    settings["conf"][PARTITIONS] = str(partitions)
    lines = (version, json.dumps(settings), *others)
    files.write(f"{OFFSETS}/{last + 1}", replace(planned.text, lines=lines).to_bytes())
    files.write(f"{COMMITS}/{last + 1}", history.logs.commits.read(last).text.to_bytes())
    return last + 1


def users(files: MemoryTree) -> list[str]:
    reader = StateReader(files)
    (target,) = reader.targets(reader.latest())
    return sorted({str(row["key"]["user"]) for row in reader.answer(target, reader.latest()).rows()})


@BOTH_FORMS
def test_the_history_of_a_key_goes_on_in_its_new_partition(with_changelog: bool) -> None:
    """Each key has one history, with the value that the state of each batch has, and no change at the repartition."""
    files = as_memory_files("aggregation-changelog")
    added = repartition(files, 4, with_changelog=with_changelog)
    plan_extra_batch(History(files), {}, verb="edit", about="a later batch").apply(files, None)
    reader = StateReader(files)
    (target,) = reader.targets(added)
    moved = 0
    for user in users(files):
        found = key_history(reader, target, {"user": user})
        rows = list(
            zip(
                found.batch_id.to_pylist(),
                found.key.to_pylist(),
                found.value.to_pylist(),
                found.partition_id.to_pylist(),
                found.changed.tolist(),
                strict=True,
            )
        )
        assert len({(batch, json.dumps(key, default=str)) for batch, key, *_ in rows}) == len(rows)
        for batch, key, value, partition, changed in rows:
            state = [row for row in reader.answer(target, batch).rows() if row["key"] == key]
            assert [row["value"] for row in state] == ([] if value is None else [value])
            assert not state or state[0]["partition_id"] == partition
            assert not (changed and batch >= added)
        moved += len({partition for _, _, value, partition, _ in rows if value is not None}) > 1
    assert moved


@BOTH_FORMS
def test_a_difference_across_two_repartitions(with_changelog: bool) -> None:
    """A key that was removed in between is found, and no other."""
    start = as_memory_files("aggregation-changelog")
    repartition(start, 3, with_changelog=with_changelog)
    editor = StateEditor(start)
    (target,) = editor.targets
    for number in range(editor.rows(target).num_rows):
        files = MemoryTree(dict(start.contents))
        editor = StateEditor(files)
        (target,) = editor.targets
        editor.plan({target: Wanted(removed=editor.rows(target).slice(number, 1))}).apply()
        last = repartition(files, 2, with_changelog=with_changelog)
        reader = StateReader(files)
        (target,) = reader.targets(last)
        assert diff(reader, target, 9, last).change.to_pylist() == ["removed"]


@BOTH_FORMS
def test_bisect_across_a_repartition(with_changelog: bool) -> None:
    """All rows of the batch are tested: each of them was written."""
    files = as_memory_files("aggregation-changelog")
    added = repartition(files, 4, with_changelog=with_changelog)
    reader = StateReader(files)
    (target,) = reader.targets(added)
    batches = reader.readable(0)
    assert first_by_changes(reader, target, batches, lambda _: False).first_batch is None
    partitions = first_by_changes(
        reader, target, batches, lambda answer: any(row["partition_id"] == 3 for row in answer.rows())
    )
    assert partitions.first_batch == added
