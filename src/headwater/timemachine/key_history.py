"""The value of a key after each batch whose state can be rebuilt.

Each batch's own changes are applied to the previous value. A state is rebuilt only for the first batch, and where a
store has no file of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.core.ids import BatchId, StoreKey
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.buffers import numbers, one_array
from headwater.statefiles.columns import RowDecoder
from headwater.statefiles.key_lookup import KeyFilter, MatchingKeys, key_fields
from headwater.statefiles.live_rows import live_rows
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records, concat_ranked
from headwater.statefiles.stores import StateTarget, StoreSettings

# The row of a key after each batch that has one, by stored key: records, the index in them, and the partition, which a
# repartition changes.
_Found = dict[bytes, dict[int, tuple[Records, int, int]]]


@dataclass(frozen=True)
class KeyHistory:
    """For each key that matches, a row per batch in order; ``value`` is null if the key was not there."""

    answer: StateAnswer
    batch_id: pa.Array
    key: pa.Array
    value: pa.Array
    partition_id: pa.Array
    changed: np.ndarray

    def __len__(self) -> int:
        return len(self.batch_id)

    def changes_only(self) -> KeyHistory:
        """Return the history without batches that left the key unchanged."""
        chosen = numbers(np.flatnonzero(self.changed))
        parts = (self.batch_id, self.key, self.value, self.partition_id)
        batch_id, key, value, partition_id = (part.take(chosen) for part in parts)
        return KeyHistory(self.answer, batch_id, key, value, partition_id, self.changed[self.changed])


def key_history(
    reader: StateReader, target: StateTarget, wanted: Mapping[str, str], batches: list[BatchId] | None = None
) -> KeyHistory:
    """Return the history of all keys in which the given fields have the given values, written as text.

    ``batches`` are by default all whose state can be rebuilt. Those in which a migration has not yet given the state its
    present fields or its present kind of store are left out.
    """
    batches = batches_in_one_form(reader, target, reader.readable(target.operator_id) if batches is None else batches)
    fields = key_fields(target, wanted)
    found: _Found = {}
    for key in sorted({key for batch in batches for key in reader.stores(target, batch)}):
        for batch, rows in rows_by_batch(reader, target, key, lambda decoder: MatchingKeys(fields, decoder), batches):
            for number in range(len(rows)):
                found.setdefault(rows.key(number), {})[batch] = (rows, number, key.partition_id)
    return _assemble(reader, target, found, batches)


def batches_in_one_form(reader: StateReader, target: StateTarget, batches: Iterable[int]) -> list[BatchId]:
    """Return the batches whose state has the fields that a target is given with, in the newest one's kind of store."""
    same = reader.in_same_form(target, batches)
    hdfs = reader.decoder(target, same[-1]).hdfs if same else False
    return [batch for batch in same if reader.decoder(target, batch).hdfs == hdfs]


def rows_by_batch(
    reader: StateReader,
    target: StateTarget,
    key: StoreKey,
    filter_for: Callable[[RowDecoder], KeyFilter],
    batches: Sequence[BatchId],
) -> Iterator[tuple[int, Records]]:
    """Yield the rows of one store that a filter selects after each batch: the same object if nothing has changed."""
    store = reader.partition(target, key)
    filters: dict[StoreSettings, KeyFilter] = {}
    live: Records | None = None
    before: int | None = None
    for batch in batches:
        if key not in reader.stores(target, batch):
            live = None
            continue
        settings = reader.settings(batch)
        if settings not in filters:
            filters[settings] = filter_for(reader.decoder(target, batch))
        follows = live is not None and before == batch - 1 and not reader.is_repartitioned(batch)
        changes = store.changes(batch, filters[settings]) if follows else None
        if changes is None or live is None:
            live = store.rows(batch, filters[settings])
        elif len(changes):
            live = live_rows(concat_ranked([live, changes]))
        before = batch
        yield batch, reader.one_row_per_key(target, live, batch)


def _assemble(reader: StateReader, target: StateTarget, found: _Found, batches: list[BatchId]) -> KeyHistory:
    """Decode every distinct value once, then return a row for each key and batch."""
    pieces: list[Records] = []
    partitions: list[int] = []
    rows: list[tuple[int, int, int | None]] = []
    changed: list[bool] = []
    for by_batch in found.values():
        previous: tuple[bytes, int] | None = None
        any_row, last = len(pieces), None
        for number_of_batch, batch in enumerate(batches):
            value = None
            if batch in by_batch:
                records, number, partition = by_batch[batch]
                value = records.value(number)
                if previous != (value, partition):
                    previous = (value, partition)
                    pieces.append(records.take(np.array([number])))
                    partitions.append(partition)
            rows.append((batch, any_row, None if value is None else len(pieces) - 1))
            changed.append(number_of_batch == 0 or value != last)
            last = value
    newest = batches[-1] if batches else 0
    answer = reader.answer_per_key(target, concat_ranked(pieces), np.array(partitions, np.int32), newest)
    keyed = answer.keyed().combine_chunks()
    key_rows = numbers(np.array([row[1] for row in rows], np.int64))
    places = np.array([row[1] if row[2] is None else row[2] for row in rows], np.int64)
    is_there = np.array([row[2] is not None for row in rows], bool)
    value_rows = numbers(np.array([row[2] or 0 for row in rows], np.int64), is_there)
    return KeyHistory(
        answer,
        numbers(np.array([row[0] for row in rows], np.int64)),
        one_array(keyed["key"]).take(key_rows),
        one_array(keyed["value"]).take(value_rows),
        one_array(keyed["partition_id"]).take(numbers(places)),
        np.array(changed, bool),
    )
