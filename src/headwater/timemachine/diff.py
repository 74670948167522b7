"""What changed in a state between two batches.

Where a store has a file of changes for each batch between, only the keys in those files are looked at; where it has only
snapshots, those in the tables that the two do not share; else both states are read whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.checkpoint.filetree import FileTree
from headwater.core.ids import StoreKey
from headwater.statefiles.buffers import as_numbers, binary, numbers, texts
from headwater.statefiles.keyfilter import KeyFilter, TheseKeys
from headwater.statefiles.latest import hash_keys, same_keys, same_values
from headwater.statefiles.partition import TargetStore
from headwater.statefiles.reader import StateAnswer, StateReader
from headwater.statefiles.records import Records, one_after_another
from headwater.statefiles.stores import StateTarget, chosen, the_one

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True)
class StateDiff:
    """The keys that differ. ``before`` and ``after`` have a row for each of ``change``, null where there was none."""

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
        names = ("change", "key", "before", "after", "partition_id")
        return pa.table({name: getattr(self, name) for name in names})

    def slice(self, most: int) -> StateDiff:
        """The first so many."""
        parts = (self.change, self.key, self.before, self.after, self.partition_id)
        return StateDiff(self.answer, *(part.slice(0, most) for part in parts))


def diff(reader: StateReader, target: StateTarget, a: int, b: int) -> StateDiff:
    """What a target has at batch ``b`` that it did not have at batch ``a``, key by key."""
    older, newer = reader.stores(target, a), reader.stores(target, b)
    # After a repartition a key may be in another partition, so all of the state is compared with all of it.
    groups = [(older, newer)] if older != newer else [([key], [key]) for key in older]
    sides: list[_Side] = []
    others: list[_Side] = []
    for number, (held, holding) in enumerate(groups):
        keys = _touched(TargetStore(reader, target, held[0]), min(a, b), max(a, b)) if held == holding else None
        before, after = _side(reader, target, held, a, keys, number), _side(reader, target, holding, b, keys, number)
        unlike = _unequal(before.rows, after.rows)
        sides.append(before.take(unlike[0]))
        others.append(after.take(unlike[1]))
    return _paired(reader, target, _joined(sides), _joined(others), b)


def diff_tables(
    files: FileTree, a: int, b: int, *, operator: int | None = None, store: str | None = None, var: str | None = None
) -> pa.Table:
    """The same as one table, for callers who want no more."""
    reader = StateReader(files)
    target = the_one(chosen(reader.targets(b), operator=operator, store=store, var=var))
    return diff(reader, target, a, b).table


def diff_of_answers(before: StateAnswer, after: StateAnswer) -> StateDiff:
    """The same from two states that were read whole by other means, such as Spark's reader."""
    sides = []
    for answer in (before, after):
        found: dict[str, tuple[int, list[str]]] = {}
        for number, row in enumerate(answer.rows()):
            held = found.setdefault(repr((row["key"], _own_key(row["value"]))), (number, []))
            held[1].append(repr(row["value"]))
        sides.append(found)
    old, new = sides
    pairs = [
        (old[key][0] if key in old else -1, held[0])
        for key, held in new.items()
        if key not in old or old[key][1] != held[1]
    ]
    pairs += [(held[0], -1) for key, held in old.items() if key not in new]
    return _laid_out(before, after, np.array(pairs, np.int64).reshape(-1, 2))


def _own_key(value: object) -> object:
    """What of a value tells rows of one key apart: the key within a map, a timer's time."""
    held = value if isinstance(value, dict) else {}
    return held.get("user_map_key", held.get("expiration_timestamp_ms"))


@dataclass(frozen=True)
class _Side:
    """Rows at one of the two batches; ``group`` says within what a key is looked for on the other side."""

    rows: Records
    partition: np.ndarray
    group: np.ndarray

    def take(self, chosen: np.ndarray) -> _Side:
        return _Side(self.rows.take(chosen), self.partition[chosen], self.group[chosen])


def _side(
    reader: StateReader, target: StateTarget, stores: list[StoreKey], batch: int, keys: KeyFilter | None, group: int
) -> _Side:
    parts = [reader.whole_values(target, TargetStore(reader, target, key).rows(batch, keys), batch) for key in stores]
    numbers = [np.full(len(part), key.partition_id, np.int32) for part, key in zip(parts, stores, strict=True)]
    rows = one_after_another(parts)
    return _Side(rows, np.concatenate([*numbers, np.zeros(0, np.int32)]), np.full(len(rows), group))


def _joined(sides: list[_Side]) -> _Side:
    nothing = np.zeros(0, np.int32)
    return _Side(
        one_after_another([side.rows for side in sides]),
        np.concatenate([*(side.partition for side in sides), nothing]),
        np.concatenate([*(side.group for side in sides), nothing.astype(np.int64)]),
    )


def _touched(store: TargetStore, older: int, newer: int) -> KeyFilter | None:
    """The keys that the batches after ``older`` and up to ``newer`` wrote; None when that cannot be told."""
    found = []
    for batch in range(older + 1, newer + 1):
        changes = store.changes(batch)
        if changes is None:
            return _in_tables_of_one(store, older, newer)
        found.append(changes)
    whole = one_after_another(found)
    return None if whole.has_ranges else TheseKeys(whole)


def written_since(store: TargetStore, older: int, newer: int) -> Records:
    """The rows as of ``newer``, at least all that batches after ``older`` wrote."""
    return store.rows(newer, _touched(store, older, newer))


def _in_tables_of_one(store: TargetStore, older: int, newer: int) -> KeyFilter | None:
    tables = [store.tables(batch) for batch in (older, newer)]
    if tables[0] is None or tables[1] is None:
        return None
    apart = sorted(tables[0] ^ tables[1])
    return TheseKeys(store.table_records(apart, newer))


def _unequal(before: Records, after: Records) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of each side are not the same on the other."""
    both = one_after_another([before, after])
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
    old = reader.whole_answer(target, before.rows, before.partition, batch)
    new = reader.whole_answer(target, after.rows, after.partition, batch)
    return _laid_out(old, new, _matched(before, after))


def _laid_out(old: StateAnswer, new: StateAnswer, rows: np.ndarray) -> StateDiff:
    old_keyed, new_keyed = old.keyed(), new.keyed()
    change = np.where(rows[:, 1] < 0, REMOVED, np.where(rows[:, 0] < 0, ADDED, CHANGED))
    return StateDiff(
        new,
        texts(change.tolist()),
        _first_of(new_keyed["key"], old_keyed["key"], rows),
        _only(old_keyed["value"]).take(_indices(rows[:, 0])),
        _only(new_keyed["value"]).take(_indices(rows[:, 1])),
        _first_of(new_keyed["partition_id"], old_keyed["partition_id"], rows),
    )


def _matched(before: _Side, after: _Side) -> np.ndarray:
    """Pairs of row numbers, -1 for none: the changed and added in their order, then the removed."""
    older = np.full(len(after.rows), -1, np.int64)
    for group in np.unique(after.group).tolist():
        held, wanted = np.flatnonzero(before.group == group), np.flatnonzero(after.group == group)
        found = pc.index_in(_key_bytes(after.rows.take(wanted)), _key_bytes(before.rows.take(held)))
        place = as_numbers(found.fill_null(-1), "<i4")
        older[wanted[place >= 0]] = held[place[place >= 0]]
    removed = np.setdiff1d(np.arange(len(before.rows)), older)
    newer = np.concatenate([np.arange(len(after.rows)), np.full(len(removed), -1)])
    return np.stack([np.concatenate([older, removed]), newer], axis=1)


def _key_bytes(rows: Records) -> pa.Array:
    return binary(pa.binary(), rows.keys, rows.key_start, rows.key_length, None)


def _indices(rows: np.ndarray) -> pa.Array:
    return numbers(np.maximum(rows, 0), rows >= 0)


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _first_of(newer: pa.ChunkedArray, older: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """The newer side's value, or the older side's where the newer has none."""
    both = pa.concat_arrays([_only(newer), _only(older)])
    return both.take(numbers(np.where(rows[:, 1] >= 0, rows[:, 1], rows[:, 0] + len(newer))))
