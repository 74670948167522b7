"""The operations on one store or variable after which it has the rows that are wanted.

A key is found by its bytes, in the partition that its hash names. That an edited key is found there proves both. A key
is added only if the rows that are there already are where their hashes say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import StoreKey
from headwater.core.text import count
from headwater.statefiles.buffers import numbers, one_array, python_rows
from headwater.statefiles.flat_rows import LIST, FlatRows
from headwater.statefiles.key_lookup import ExactKeys
from headwater.statefiles.keyencoder import RowEncoder
from headwater.statefiles.partition import PartitionReader
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import PUT, Records, records_of
from headwater.statefiles.sqltypes import Struct
from headwater.statefiles.statewriter import Operation, delete, put
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.edit_plan import RowChanges
from headwater.timemachine.store_files import prefix_of_new_keys

SAMPLE = 10
_CHECKED_ROWS = 1000
_TTL = "ttlExpirationMs"
_SESSION_START = "sessionStartTime"
ROW_COUNTER = "$rowCounter_"
_AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"

Place = tuple[int, bytes]
"""The partition and the bytes of a key."""


@dataclass(frozen=True)
class Wanted:
    """Rows that a state is to contain, and rows whose keys it is not to contain, as flat tables; None for none.

    With ``complete``, it is to contain nothing else.
    """

    rows: pa.Table | None = None
    removed: pa.Table | None = None
    complete: bool = False


@dataclass(frozen=True)
class RowEdit:
    """The edit of one store or variable as of the last batch.

    ``targets`` are all of the checkpoint. ``read`` are values that were read already, by where they are.
    """

    reader: StateReader
    targets: Sequence[StateTarget]
    batch: int
    original: StateTarget
    wanted: Wanted
    read: Mapping[Place, bytes] = field(default_factory=dict)

    @cached_property
    def flat(self) -> FlatRows:
        return FlatRows.of(self.original)

    @cached_property
    def encoder(self) -> RowEncoder:
        """An encoder of rows as the reader returns them: the elements of lists have nothing between them."""
        decoder = self.reader.decoder(self.flat.target, self.batch)
        return RowEncoder(self.flat.target, replace(decoder.settings, list_delimiter=0), decoder.hdfs)

    @cached_property
    def stores(self) -> dict[int, StoreKey]:
        return {store.partition_id: store for store in self.reader.stores(self.flat.target, self.batch)}

    def plan(self, operations: dict[StoreKey, list[Operation]]) -> RowChanges:
        """Add the operations on each store. Return what they change."""
        rows = self.wanted.rows if self.wanted.rows is not None else self.flat.schema.empty_table()
        places = self.places(rows)
        row_of = {place: number for number, place in enumerate(places)}
        if len(row_of) < len(places):
            raise UsageProblem(
                "duplicate-key",
                f"{count(len(places) - len(row_of), 'row')} would have the key of another row",
                evidence={"key": ", ".join(self.flat.key_names)},
            )
        after = dict(zip(places, self._values(rows, self.encoder), strict=True))
        unwanted = [] if self.wanted.removed is None else self.places(self.wanted.removed)
        before = self._before(None if self.wanted.complete else [*after, *unwanted])
        gone = [place for place in (before if self.wanted.complete else dict.fromkeys(unwanted)) if place not in after]
        gone = [place for place in gone if place in before]
        added = [place for place in after if place not in before]
        changed = [place for place in after if place in before and before[place] != after[place]]
        written = rows.take(numbers(np.array([row_of[place] for place in (*changed, *added)], np.int64)))
        self._refuse_inconsistent(written)
        if not self.wanted.complete:
            self._refuse_broken_expiry(before, after, changed, resized=bool(added or gone))
        if added:
            self._refuse_unproven_partitions()
        self._put(operations, [*changed, *added], written)
        self._delete(operations, gone)
        sample = self._sample(before, after, changed, added, gone)
        return RowChanges(len(added), len(changed), len(gone), len(after) - len(added) - len(changed), sample)

    def places(self, table: pa.Table) -> list[Place]:
        """Return the partition and the bytes of each key."""
        keys = self.flat.keys(table)
        partitions = self.encoder.partitions(keys, len(self.stores))
        return list(zip(partitions.tolist(), self.encoder.keys(keys), strict=True))

    def _values(self, table: pa.Table, encoder: RowEncoder) -> list[bytes]:
        values = self.flat.values(table)
        try:
            return encoder.lists(values) if self.flat.target.is_list else encoder.values(values)
        except ValueError as error:
            raise ChangeRefused(
                "cannot-edit",
                f"{self.original.label} cannot contain one of the values",
                evidence={"why": str(error)},
            ) from None

    def _before(self, places: list[Place] | None) -> dict[Place, bytes]:
        """Return the stored values of some keys, or of all."""
        found = {place: self.read[place] for place in places or () if place in self.read}
        by_partition: dict[int, list[bytes]] = {}
        for partition, key in places or ():
            if (partition, key) not in found:
                by_partition.setdefault(partition, []).append(key)
        for partition in self.stores if places is None else by_partition:
            keys = by_partition.get(partition, [])
            chosen = None if places is None else ExactKeys(_records(keys, [b""] * len(keys)))
            rows = self._read(partition, chosen)
            found |= {(partition, rows.key(each)): rows.value(each) for each in range(len(rows))}
        return found

    def _read(self, partition: int, keys: ExactKeys | None) -> Records:
        rows = self._partition(partition).rows(self.batch, keys)
        return self.reader.one_row_per_key(self.flat.target, rows, self.batch)

    def _partition(self, partition: int, target: StateTarget | None = None) -> PartitionReader:
        return self.reader.partition(target or self.flat.target, self.stores[partition])

    def _put(self, operations: dict[StoreKey, list[Operation]], places: list[Place], rows: pa.Table) -> None:
        stored = replace(self.encoder, settings=self.reader.settings(self.batch))
        prefixes = {partition: self._prefix(partition) for partition, _ in places}
        for (partition, key), value in zip(places, self._values(rows, stored), strict=True):
            operations.setdefault(self.stores[partition], []).append(put(prefixes[partition] + key, value))
        if self._counter is None or not places:
            return
        sizes = np.diff(one_array(rows[LIST]).offsets.to_numpy())
        counts = pa.StructArray.from_arrays([numbers(sizes.astype(np.int64))], ["count"])
        encoder = replace(self.encoder, target=self._counter)
        for (partition, key), value in zip(places, encoder.values(counts), strict=True):
            prefix = self._prefix(partition, self._counter)
            operations[self.stores[partition]].append(put(prefix + key, value))

    def _delete(self, operations: dict[StoreKey, list[Operation]], places: list[Place]) -> None:
        for partition, key in places:
            found = operations.setdefault(self.stores[partition], [])
            found.append(delete(self._prefix(partition) + key))
            if self._counter is not None:
                found.append(delete(self._prefix(partition, self._counter) + key))

    def _prefix(self, partition: int, target: StateTarget | None = None) -> bytes:
        return prefix_of_new_keys(self._partition(partition, target), self.batch, "cannot-edit", self.original.label)

    @cached_property
    def _counter(self) -> StateTarget | None:
        """The hidden family in which newer versions of Spark count the elements of each list.

        Lists with a time-to-live are counted in another family. Their schemas name this one, too.
        """
        if self.original.kind != "list" or self._expires:
            return None
        name = f"{ROW_COUNTER}{self.original.var}"
        own = (target for target in self.targets if target.operator_id == self.original.operator_id)
        return next((target for target in own if target.family == name), None)

    @property
    def _expires(self) -> bool:
        return self.original.var is not None and _TTL in self.original.schema.value.names

    def _refuse_inconsistent(self, rows: pa.Table) -> None:
        """Raise ``ChangeRefused`` if a value contradicts its key: some operators repeat the key in the value."""
        for key_name, column in self._repeated_columns(rows):
            wrong = pc.any(pc.invert(_same(rows[key_name], column)), min_count=0).as_py()
            if wrong:
                raise ChangeRefused(
                    "key-mismatch",
                    f"the value of a row would contradict its key in {key_name}",
                    evidence={"state": self.original.label, "why": "this operator repeats the key in the value"},
                    remedy=f"set {key_name} and its copy in the value to the same value",
                )

    def _repeated_columns(self, rows: pa.Table) -> Iterable[tuple[str, pa.ChunkedArray]]:
        entry = self.reader.logs.offsets.get(self.batch)
        first_format = (entry.conf if entry else {}).get(_AGGREGATION_FORMAT) == "1"
        session = self.original.schema.key.names[-1:] == [_SESSION_START]
        if not (session or (first_format and self.original.operator_name == "stateStoreSave")):
            return
        values = dict(zip((one.name for one in self.flat.value_fields), self.flat.value_names, strict=True))
        for one, name in zip(self.flat.key_fields, self.flat.key_names, strict=True):
            if session and one.name == _SESSION_START:
                for other in self.flat.value_fields:
                    if isinstance(other.type, Struct) and other.type.names == ["start", "end"]:
                        yield name, pc.struct_field(rows[values[other.name]], 0)
            elif one.name in values:
                yield name, rows[values[one.name]]

    def _refuse_broken_expiry(
        self, before: dict[Place, bytes], after: dict[Place, bytes], changed: list[Place], *, resized: bool
    ) -> None:
        """Raise ``ChangeRefused`` if an edit would contradict the index by which Spark expires rows."""
        if not self._expires:
            return
        keys = [key for _, key in changed]
        times = [_expiry(self._table(keys, [found[place] for place in changed])) for found in (before, after)]
        if resized or times[0] != times[1]:
            raise ChangeRefused(
                "cannot-edit",
                f"rows of {self.original.label} can be changed, but not added, removed or given another expiry",
                evidence={"why": f"it has a time-to-live, and Spark keeps an index of every {_TTL}"},
                remedy="remove a key with everything that belongs to it: --key FIELD=VALUE --delete, without --var",
            )

    def _refuse_unproven_partitions(self) -> None:
        """Raise ``ChangeRefused`` if rows are not in the partitions that their hashes name."""
        decoder = self.reader.decoder(self.flat.target, self.batch)
        checked = 0
        for partition in self.stores:
            rows = self._partition(partition).rows(self.batch)
            keys = decoder.keys(rows.take(np.arange(min(len(rows), _CHECKED_ROWS))))
            if bool((self.encoder.partitions(keys, len(self.stores)) != partition).any()):
                raise ChangeRefused(
                    "cannot-edit",
                    f"no rows can be added to {self.original.label}",
                    evidence={"why": f"rows of partition {partition} belong to another partition by their hash"},
                )
            checked += len(keys)
            if checked >= _CHECKED_ROWS:
                return

    def _table(self, keys: list[bytes], values: list[bytes]) -> pa.Table:
        return self.flat.table(self.reader, _records(keys, values), self.batch)

    def _sample(
        self,
        before: dict[Place, bytes],
        after: dict[Place, bytes],
        changed: list[Place],
        added: list[Place],
        gone: list[Place],
    ) -> tuple[tuple[dict[str, Any] | None, dict[str, Any] | None], ...]:
        shown = [*changed[:SAMPLE], *added[:SAMPLE], *gone[:SAMPLE]][:SAMPLE]
        pairs = []
        for place in shown:
            old, new = (
                python_rows(self._table([place[1]], [found[place]]))[0] if place in found else None
                for found in (before, after)
            )
            pairs.append((old, new))
        return tuple(pairs)


def _records(keys: list[bytes], values: list[bytes]) -> Records:
    return records_of(keys, values, np.full(len(keys), PUT, np.uint8), np.arange(len(keys)))


def _same(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    """Return which values are equal; two nulls are."""
    left, right = one_array(first), one_array(second)
    if pa.types.is_nested(left.type):
        return pa.array(
            [one == other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)], pa.bool_()
        )
    both_null = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))


def _expiry(table: pa.Table) -> list[Any]:
    if LIST in table.column_names:
        return [[element[_TTL] for element in elements] for elements in table[LIST].to_pylist()]
    found: list[Any] = table[_TTL].to_pylist()
    return found
