"""Rows of a processor from and to Arrow batches of many keys. PySpark converts them cell by cell, and key by key."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from headwater.spark.internals.workers.state_client import Key, upcoming_keys

# Large enough to make the cost of a batch negligible, small enough for rows of a megabyte.
INPUT_ROWS = 4_000
INPUT_BYTES = 4_000_000
OUTPUT_ROWS = 1_000


def rows_by_key(batches: Iterable[pa.RecordBatch], key_offsets: list[int]) -> Iterator[tuple[Key, Iterator[Row]]]:
    """Yield each key with its rows."""
    row = itemgetter(1)
    for key, rows in groupby(_keyed_rows(batches, key_offsets), key=itemgetter(0)):
        yield key, map(row, rows)


def _keyed_rows(batches: Iterable[pa.RecordBatch], key_offsets: list[int]) -> Iterator[tuple[Key, Row]]:
    """Yield each row with its key, and let the client know the keys that follow."""
    for batch in batches:
        as_row = partial(tuple.__new__, _row_class(batch.schema.names))
        step = max(1, min(INPUT_ROWS, INPUT_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, step):
            columns = [_values(column) for column in batch.slice(start, step).columns]
            keys = list(zip(*(columns[at] for at in key_offsets), strict=True))
            upcoming_keys.clear()
            upcoming_keys.extend(key for key, _ in groupby(keys))
            yield from zip(keys, map(as_row, zip(*columns, strict=True)), strict=True)


def _row_class(names: list[str]) -> type[Row]:
    """Return a class of rows whose fields are found as fast as those of named tuples; ``Row`` searches for names."""
    fields = {
        name: _field(at)
        for at, name in reversed(list(enumerate(names)))
        if not hasattr(Row, name) and not name.startswith("__")
    }
    return type("Row", (Row,), {**fields, "__fields__": Row(*names)})


@cache
def _field(position: int) -> Any:
    """Return the attribute for a position of a tuple, as the standard library implements it."""
    names = [f"field{at}" for at in range(position + 1)]
    with_fields: Any = namedtuple("Fields", names)  # type: ignore[misc]  # the number of fields varies
    return vars(with_fields)[names[position]]


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        values: list[Any] = column.to_pylist()
        return values
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _record_batch(rows: list[Row], shape: pa.StructType) -> pa.RecordBatch:
    """Return rows as one Arrow batch."""
    schema = pa.schema(list(shape))
    names = schema.names
    if rows and not any(map(pa.types.is_nested, schema.types)) and _have_fields(rows, names):
        columns = map(pa.array, zip(*rows, strict=True), schema.types)
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)
    return pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in rows], schema=schema)


def _have_fields(rows: list[Row], names: list[str]) -> bool:
    for row in rows:
        fields = getattr(row, "__fields__", None)
        if fields != names and (fields is None or list(fields) != names):
            return False
    return True


def record_batches(outputs: Iterable[Iterable[Row]], shape: pa.StructType) -> Iterator[pa.RecordBatch]:
    """Yield the output rows of many keys as Arrow batches, the last of which may be empty."""
    rows: list[Row] = []
    for key_rows in outputs:
        for row in key_rows:
            rows.append(row)
            if len(rows) >= OUTPUT_ROWS:
                yield _record_batch(rows, shape)
                rows = []
    yield _record_batch(rows, shape)
