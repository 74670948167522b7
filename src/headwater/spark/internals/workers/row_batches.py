"""Rows of ``transformWithState`` between the JVM and a processor, in batches of many keys.

PySpark converts rows cell by cell, and sends the output rows of each key as a separate Arrow batch.
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

from headwater.spark.internals.workers.state_calls import Key, upcoming_keys

# Large enough to make the cost of a batch negligible, small enough for rows of a megabyte.
INPUT_ROWS = 1_000
OUTPUT_ROWS = 250

# A processor's output for one key, as the worker passes it on. PySpark 4.1 passes the type as Arrow's.
Output = tuple[tuple[Iterator[Row], StructType | pa.StructType]]


class RowBatches(TransformWithStateInPySparkRowSerializer):
    """Converts what the JVM sends into keys with their rows, and a processor's rows into what the JVM expects."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[tuple[Mode, Key | None, Iterator[Row] | None]]:
        """Yield each key with its rows, then the request to handle timers, then the end."""
        batches = ArrowStreamSerializer.load_stream(self, stream)
        for key, rows in groupby(self._keyed_rows(batches), key=itemgetter(0)):
            yield Mode.PROCESS_DATA, key, map(itemgetter(1), rows)
        yield Mode.PROCESS_TIMER, None, None
        yield Mode.COMPLETE, None, None

    def _keyed_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Key, Row]]:
        for batch in batches:
            row_of = Row(*batch.schema.names)
            for start in range(0, batch.num_rows, INPUT_ROWS):
                columns = [column.to_pylist() for column in batch.slice(start, INPUT_ROWS).columns]
                keys = list(zip(*(columns[at] for at in self.key_offsets), strict=True))
                upcoming_keys.clear()
                upcoming_keys.extend(key for key, _ in groupby(keys))
                for key, values in zip(keys, zip(*columns, strict=True), strict=True):
                    yield key, row_of(*values)

    def dump_stream(self, iterator: Iterator[Output], stream: IO[bytes]) -> None:
        """Send the processor's output rows."""
        ArrowStreamUDFSerializer.dump_stream(self, self._batches(iterator), stream)

    def _batches(self, outputs: Iterator[Output]) -> Iterator[tuple[pa.RecordBatch, pa.StructType]]:
        rows: list[dict[str, Any]] = []
        shape = pa.struct([])
        for ((key_rows, schema),) in outputs:
            shape = shape if shape.num_fields else _arrow_type(schema)
            for row in key_rows:
                rows.append(row.asDict(recursive=True))
                if len(rows) >= OUTPUT_ROWS:
                    yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(shape))), shape
                    rows = []
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(shape))), shape


def _arrow_type(schema: StructType | pa.StructType) -> pa.StructType:
    if isinstance(schema, pa.StructType):
        return schema
    return to_arrow_type(schema, timezone="UTC", prefers_large_types=False)
