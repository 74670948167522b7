"""Rows of ``transformWithState`` on their way between the JVM and a processor, many keys at a time.

PySpark converts rows cell by cell, and sends the rows that come out for a key as an Arrow batch of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import IO, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import (
    ArrowStreamSerializer,
    ArrowStreamUDFSerializer,
    TransformWithStateInPySparkRowSerializer,
)
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode
from pyspark.sql.types import StructType

from headwater.spark.internals.workers.state_calls import Key, coming_keys

# Large enough that a batch costs nothing for each row, small enough for rows of a megabyte.
ROWS_IN = 1_000
ROWS_OUT = 250

# A processor's answer for one key, as the worker passes it on.
Answer = tuple[tuple[Iterator[Row], StructType]]


class RowBatches(TransformWithStateInPySparkRowSerializer):
    """What the JVM sends as keys with their rows, and a processor's rows as what the JVM expects."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[tuple[Mode, Key | None, Iterator[Row] | None]]:
        """Each key with its rows, then the turn of the timers, then the end."""
        batches = ArrowStreamSerializer.load_stream(self, stream)
        for key, rows in groupby(self._keyed_rows(batches), key=itemgetter(0)):
            yield Mode.PROCESS_DATA, key, map(itemgetter(1), rows)
        yield Mode.PROCESS_TIMER, None, None
        yield Mode.COMPLETE, None, None

    def _keyed_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Key, Row]]:
        for batch in batches:
            row_of = Row(*batch.schema.names)
            for start in range(0, batch.num_rows, ROWS_IN):
                columns = [column.to_pylist() for column in batch.slice(start, ROWS_IN).columns]
                keys = list(zip(*(columns[at] for at in self.key_offsets), strict=True))
                coming_keys.clear()
                coming_keys.extend(key for key, _ in groupby(keys))
                for key, values in zip(keys, zip(*columns, strict=True), strict=True):
                    yield key, row_of(*values)

    def dump_stream(self, iterator: Iterator[Answer], stream: IO[bytes]) -> None:
        """Send the rows that come out."""
        ArrowStreamUDFSerializer.dump_stream(self, self._batches(iterator), stream)

    def _batches(self, answers: Iterator[Answer]) -> Iterator[tuple[pa.RecordBatch, pa.StructType]]:
        rows: list[dict[str, Any]] = []
        shape = pa.struct([])
        for ((rows_of_a_key, schema),) in answers:
            shape = shape if shape.num_fields else to_arrow_type(schema, timezone="UTC", prefers_large_types=False)
            for row in rows_of_a_key:
                rows.append(row.asDict(recursive=True))
                if len(rows) >= ROWS_OUT:
                    yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(shape))), shape
                    rows = []
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(shape))), shape
