"""A key's value through all batches whose state can be rebuilt.

Each batch's own changes are applied to what was there before; a state is rebuilt only for the first batch, and where a
store has no file of changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.core.ids import BatchId, StoreKey
from headwater.statefiles.buffers import numbers
from headwater.statefiles.columns import decode_all_keys
from headwater.statefiles.keyfilter import FieldValue, KeysWith, field_values, leaves
from headwater.statefiles.latest import surviving
from headwater.statefiles.partition import TargetStore
from headwater.statefiles.reader import StateAnswer, StateReader, StoreSettings
from headwater.statefiles.records import Records, one_after_another
from headwater.statefiles.sqltypes import Struct
from headwater.statefiles.stores import StateTarget


@dataclass(frozen=True)
class KeyHistory:
    """For each key that fits, a row for each batch in order: ``value`` is null where the key was not there."""

    answer: StateAnswer
    batch_id: pa.Array
    key: pa.Array
    value: pa.Array
    partition_id: pa.Array
    changed: np.ndarray

    def __len__(self) -> int:
        return len(self.batch_id)

    def changes_only(self) -> KeyHistory:
        """Without the batches after which a key is as it was after the one before."""
        chosen = numbers(np.flatnonzero(self.changed))
        parts = (self.batch_id, self.key, self.value, self.partition_id)
        batch_id, key, value, partition_id = (part.take(chosen) for part in parts)
        return KeyHistory(self.answer, batch_id, key, value, partition_id, self.changed[self.changed])


def key_history(
    reader: StateReader, target: StateTarget, asked: Mapping[str, str], batches: list[BatchId] | None = None
) -> KeyHistory:
    """``asked`` has some or all fields of the key, as texts. Batches are all that can be rebuilt, unless given."""
    batches = reader.readable(target.operator_id) if batches is None else batches
    fields = key_fields(target, asked)
    found: dict[tuple[int, bytes], dict[int, tuple[Records, int]]] = {}
    for key in sorted({key for batch in batches for key in reader.stores(target, batch)}):
        for batch, rows in _through(reader, target, key, fields, batches):
            for number in range(len(rows)):
                found.setdefault((key.partition_id, rows.key(number)), {})[batch] = (rows, number)
    return _laid_out(reader, target, found, batches)


def key_fields(target: StateTarget, asked: Mapping[str, str]) -> list[FieldValue]:
    """The fields that a user names. A map's grouping key is meant first, and its own key as ``user_map_key.x``."""
    key = target.schema.key
    if target.kind not in ("map", "timers"):
        return field_values(key, asked)
    grouping = key.fields[0].type
    assert isinstance(grouping, Struct)
    inner = {name: text for name, text in asked.items() if not name.startswith("user_map_key.")}
    outer = {f"userKey.{name.partition('.')[2]}": text for name, text in asked.items() if name not in inner}
    found = [FieldValue((0, *field.path), field.type, field.value) for field in field_values(grouping, inner)]
    return found + field_values(key, outer)


def fits(target: StateTarget, asked: Mapping[str, str]) -> bool:
    """Whether a target's key has the fields that are asked for."""
    try:
        key_fields(target, asked)
    except UsageProblem as problem:
        if problem.code == "no-key-field":
            return False
        raise
    return True


def fitting(targets: list[StateTarget], asked: Mapping[str, str]) -> list[StateTarget]:
    """The targets whose keys have the fields that are asked for; refused when there is none."""
    found = [target for target in targets if fits(target, asked)]
    if found:
        return found
    raise UsageProblem(
        "no-key-field",
        f"no key has the field{'s' if len(asked) > 1 else ''} {', '.join(asked)}",
        evidence={"key fields": ", ".join(known_fields(targets)) or "none"},
    )


def known_fields(targets: list[StateTarget]) -> list[str]:
    names: dict[str, None] = {}
    for target in targets:
        key = target.schema.key
        grouping = key.fields[0].type if target.kind in ("map", "timers") else key
        names |= dict.fromkeys(leaves(grouping) if isinstance(grouping, Struct) else [])
    return list(names)


def _through(
    reader: StateReader, target: StateTarget, key: StoreKey, fields: list[FieldValue], batches: list[BatchId]
) -> Iterator[tuple[int, Records]]:
    store = TargetStore(reader, target, key)
    filters: dict[StoreSettings, KeysWith] = {}
    standing: Records | None = None
    before: int | None = None
    for batch in batches:
        if key not in reader.stores(target, batch):
            standing = None
            continue
        settings = reader.settings(batch)
        wanted = filters.setdefault(settings, _filter(reader, target, fields, settings))
        changes = store.changes(batch, wanted) if standing is not None and before == batch - 1 else None
        if changes is None or standing is None:
            standing = store.rows(batch, wanted)
        elif len(changes):
            standing = surviving(one_after_another([standing, changes]))
        before = batch
        yield batch, reader.whole_values(target, standing, batch)


def keys_with(reader: StateReader, target: StateTarget, asked: Mapping[str, str], batch: int) -> KeysWith:
    """A filter for the keys that a user names by some or all of their fields."""
    return _filter(reader, target, key_fields(target, asked), reader.settings(batch))


def _filter(reader: StateReader, target: StateTarget, fields: list[FieldValue], settings: StoreSettings) -> KeysWith:
    hdfs = reader.is_hdfs(target)
    avro = settings.avro and target.family is not None
    plain_rows = not avro and (hdfs or target.schema.encoding.layout == "whole")
    row_start = (0 if hdfs else 1) if plain_rows else None
    return KeysWith(
        fields,
        lambda records: decode_all_keys(target, records, settings, hdfs=hdfs),
        row_start,
        target.schema.key,
    )


def _laid_out(
    reader: StateReader,
    target: StateTarget,
    found: dict[tuple[int, bytes], dict[int, tuple[Records, int]]],
    batches: list[BatchId],
) -> KeyHistory:
    """Every value decoded once, then a row for each key and batch."""
    pieces: list[Records] = []
    partitions: list[int] = []
    rows: list[tuple[int, int, int | None]] = []
    for (partition, _), by_batch in found.items():
        previous: tuple[bytes, int] | None = None
        any_row = len(pieces)
        for batch in batches:
            held = by_batch.get(batch)
            if held is None:
                rows.append((batch, any_row, None))
                continue
            value = held[0].value(held[1])
            if previous is None or previous[0] != value:
                previous = (value, len(pieces))
                pieces.append(held[0].take(np.array([held[1]])))
                partitions.append(partition)
            rows.append((batch, any_row, previous[1]))
    newest = batches[-1] if batches else 0
    answer = reader.whole_answer(target, one_after_another(pieces), np.array(partitions, np.int32), newest)
    keyed = answer.keyed().combine_chunks()
    key_rows, value_rows = (
        numbers(np.array([row[1] for row in rows], np.int64)),
        numbers(
            np.array([row[2] or 0 for row in rows], np.int64), np.array([row[2] is not None for row in rows], bool)
        ),
    )
    before = [(None, None), *((row[1], row[2]) for row in rows)]
    changed = [row[1:] != previous for row, previous in zip(rows, before, strict=False)]
    return KeyHistory(
        answer,
        numbers(np.array([row[0] for row in rows], np.int64)),
        _whole(keyed["key"]).take(key_rows),
        _whole(keyed["value"]).take(value_rows),
        _whole(keyed["partition_id"]).take(key_rows),
        np.array(changed, bool),
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
