"""The keys whose state differs between two batches.

If a store has a file of changes for each batch in between, only the keys in those files are compared. If it has only
snapshots, only the keys in the tables that the two do not share are compared. Otherwise both states are read completely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.errors import UsageProblem
from headwater.core.ids import StoreKey
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.buffers import as_numbers, binary, numbers, one_array, texts
from headwater.statefiles.key_lookup import ExactKeys, KeyFilter
from headwater.statefiles.live_rows import hash_keys, same_keys, same_values
from headwater.statefiles.partition import PartitionReader
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records, concat_ranked
from headwater.statefiles.stores import StateTarget

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True)
class StateDiff:
    """The keys that differ. ``before`` and ``after`` have a row for each key, null if the key was not there."""

    answer: StateAnswer
    change: pa.Array
    key: pa.Array
    before: pa.Array
    after: pa.Array
    partition_id: pa.Array

    def __len__(self) -> int:
        return len(self.change)

    @property
    def table(self) -> pa.Table:
        """The difference as one table."""
        names = ("change", "key", "before", "after", "partition_id")
        return pa.table({name: getattr(self, name) for name in names})

    def slice(self, most: int) -> StateDiff:
        """Return the first keys, at most so many."""
        parts = (self.change, self.key, self.before, self.after, self.partition_id)
        return StateDiff(self.answer, *(part.slice(0, most) for part in parts))


def diff(reader: StateReader, target: StateTarget, a: int, b: int) -> StateDiff:
    """Return the keys of a target that differ between batches ``a`` and ``b``."""
    _refuse_migrated(reader, target, a, b)
    if reader.decoder(target, a).hdfs != reader.decoder(target, b).hdfs:  # the same rows have other bytes
        return diff_of_answers(reader.answer(target, a), reader.answer(target, b))
    older, newer = reader.stores(target, a), reader.stores(target, b)
    # After a repartition a key may be in another partition, so the complete states are compared.
    first, last = min(a, b), max(a, b)
    is_moved = older != newer or any(reader.is_repartitioned(batch) for batch in range(first + 1, last + 1))
    groups = [(older, newer)] if is_moved else [([key], [key]) for key in older]
    sides: list[_Side] = []
    others: list[_Side] = []
    for number, (before_stores, after_stores) in enumerate(groups):
        keys = None if is_moved else _touched(reader.partition(target, before_stores[0]), first, last)
        before = _side(reader, target, before_stores, a, keys, number)
        after = _side(reader, target, after_stores, b, keys, number)
        differing = _differing(before.rows, after.rows)
        sides.append(before.take(differing[0]))
        others.append(after.take(differing[1]))
    return _paired(reader, target, _joined(sides), _joined(others), b)


def _refuse_migrated(reader: StateReader, target: StateTarget, a: int, b: int) -> None:
    if len(reader.in_same_form(target, (a, b))) == 2:
        return
    between = [number for number in reader.logs.former.paths if min(a, b) < number <= max(a, b)]
    raise UsageProblem(
        "migrated-between",
        f"the state has different fields after batch {a} and after batch {b}",
        evidence={"state": target.label, "migrated in batch": ", ".join(map(str, between))},
        remedy="compare two batches before the migration, or two after it",
    )


def diff_of_answers(before: StateAnswer, after: StateAnswer) -> StateDiff:
    """Return the keys that differ between two complete states, such as those read by Spark."""
    old, new = _values_by_key(before), _values_by_key(after)
    pairs = [
        (old[key][0] if key in old else -1, row)
        for key, (row, values) in new.items()
        if key not in old or old[key][1] != values
    ]
    pairs += [(row, -1) for key, (row, _) in old.items() if key not in new]
    return _assemble(before, after, np.array(pairs, np.int64).reshape(-1, 2))


def _values_by_key(answer: StateAnswer) -> dict[str, tuple[int, list[str]]]:
    """Return the first row and the values of each key, as text."""
    found: dict[str, tuple[int, list[str]]] = {}
    for number, row in enumerate(answer.rows()):
        _, values = found.setdefault(repr((row["key"], _own_key(row["value"]))), (number, []))
        values.append(repr(row["value"]))
    return found


def _own_key(value: object) -> object:
    """Return the part of a value that distinguishes rows of one key: the key within a map, or the time of a timer."""
    fields = value if isinstance(value, dict) else {}
    return fields.get("user_map_key", fields.get("expiration_timestamp_ms"))


@dataclass(frozen=True)
class _Side:
    """Rows as of one of the two batches; keys are matched within the same ``group`` of the other side."""

    rows: Records
    partition: np.ndarray
    group: np.ndarray

    def take(self, chosen: np.ndarray) -> _Side:
        return _Side(self.rows.take(chosen), self.partition[chosen], self.group[chosen])


def _side(
    reader: StateReader, target: StateTarget, stores: list[StoreKey], batch: int, keys: KeyFilter | None, group: int
) -> _Side:
    parts = [reader.one_row_per_key(target, reader.partition(target, key).rows(batch, keys), batch) for key in stores]
    numbers = [np.full(len(part), key.partition_id, np.int32) for part, key in zip(parts, stores, strict=True)]
    rows = concat_ranked(parts)
    return _Side(rows, np.concatenate([*numbers, np.zeros(0, np.int32)]), np.full(len(rows), group))


def _joined(sides: list[_Side]) -> _Side:
    nothing = np.zeros(0, np.int32)
    return _Side(
        concat_ranked([side.rows for side in sides]),
        np.concatenate([*(side.partition for side in sides), nothing]),
        np.concatenate([*(side.group for side in sides), nothing.astype(np.int64)]),
    )


def _touched(store: PartitionReader, older: int, newer: int) -> KeyFilter | None:
    """Return a filter for the keys that batches after ``older`` up to ``newer`` wrote; None if they are unknown."""
    found = []
    for batch in range(older + 1, newer + 1):
        changes = store.changes(batch)
        if changes is None:
            return _in_unshared_tables(store, older, newer)
        found.append(changes)
    written = concat_ranked(found)
    return None if written.has_ranges else ExactKeys(written)


def written_since(store: PartitionReader, older: int, newer: int) -> Records:
    """Return rows as of ``newer``, including at least all that batches after ``older`` wrote."""
    return store.rows(newer, _touched(store, older, newer))


def _in_unshared_tables(store: PartitionReader, older: int, newer: int) -> KeyFilter | None:
    before, after = store.tables(older), store.tables(newer)
    if before is None or after is None:
        return None
    return ExactKeys(store.table_records(sorted(before ^ after), newer))


def _differing(before: Records, after: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of each side have no identical row on the other."""
    both = concat_ranked([before, after])
    kept = np.ones(len(both), bool)
    if len(before) and len(after):
        hashes = hash_keys(both.keys, both.key_start, both.key_length)
        order = np.lexsort((np.arange(len(both)), hashes))
        first, second = order[:-1], order[1:]
        pairs = (hashes[first] == hashes[second]) & (first < len(before)) & (second >= len(before))
        first, second = first[pairs], second[pairs]
        equal = same_keys(both, first, second) & same_values(both, first, second)
        kept[first[equal]] = kept[second[equal]] = False
    return kept[: len(before)], kept[len(before) :]


def _paired(reader: StateReader, target: StateTarget, before: _Side, after: _Side, batch: int) -> StateDiff:
    old = reader.answer_per_key(target, before.rows, before.partition, batch)
    new = reader.answer_per_key(target, after.rows, after.partition, batch)
    return _assemble(old, new, _matched(before, after))


def _assemble(old: StateAnswer, new: StateAnswer, rows: np.ndarray) -> StateDiff:
    old_keyed, new_keyed = old.keyed(), new.keyed()
    change = np.where(rows[:, 1] < 0, REMOVED, np.where(rows[:, 0] < 0, ADDED, CHANGED))
    return StateDiff(
        new,
        texts(change.tolist()),
        _first_of(new_keyed["key"], old_keyed["key"], rows),
        one_array(old_keyed["value"]).take(_indices(rows[:, 0])),
        one_array(new_keyed["value"]).take(_indices(rows[:, 1])),
        _first_of(new_keyed["partition_id"], old_keyed["partition_id"], rows),
    )


def _matched(before: _Side, after: _Side) -> np.ndarray:
    """Return pairs of row numbers, -1 for none: changed and added keys in their order, then removed ones."""
    older = np.full(len(after.rows), -1, np.int64)
    for group in np.unique(after.group).tolist():
        candidates, wanted = np.flatnonzero(before.group == group), np.flatnonzero(after.group == group)
        found = pc.index_in(_key_bytes(after.rows.take(wanted)), _key_bytes(before.rows.take(candidates)))
        place = as_numbers(found.fill_null(-1), "<i4")
        older[wanted[place >= 0]] = candidates[place[place >= 0]]
    removed = np.setdiff1d(np.arange(len(before.rows)), older)
    newer = np.concatenate([np.arange(len(after.rows)), np.full(len(removed), -1)])
    return np.stack([np.concatenate([older, removed]), newer], axis=1)


def _key_bytes(rows: Records) -> pa.Array:
    return binary(pa.binary(), rows.keys, rows.key_start, rows.key_length, None)


def _indices(rows: np.ndarray) -> pa.Array:
    return numbers(np.maximum(rows, 0), rows >= 0)


def _first_of(newer: pa.ChunkedArray, older: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """Return the newer side's value, or the older side's if the newer one has none."""
    both = pa.concat_arrays([one_array(newer), one_array(older)])
    return both.take(numbers(np.where(rows[:, 1] >= 0, rows[:, 1], rows[:, 0] + len(newer))))
