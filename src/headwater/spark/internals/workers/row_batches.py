"""The serializer of ``transformWithState`` on PySpark 4.1 and 4.2, with rows in batches of many keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import IO

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

from headwater.spark.internals.workers.row_conversion import record_batches, rows_by_key
from headwater.spark.internals.workers.state_client import Key

# A processor's output for one key, as the worker passes it on. PySpark 4.1 passes the type as Arrow's.
Output = tuple[tuple[Iterator[Row], StructType | pa.StructType]]


class RowBatches(TransformWithStateInPySparkRowSerializer):
    """Converts what the JVM sends into keys with their rows, and a processor's rows into what the JVM expects."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[tuple[Mode, Key | None, Iterator[Row] | None]]:
        """Yield each key with its rows, then the request to handle timers, then the end."""
        for key, rows in rows_by_key(ArrowStreamSerializer.load_stream(self, stream), self.key_offsets):
            yield Mode.PROCESS_DATA, key, rows
        yield Mode.PROCESS_TIMER, None, None
        yield Mode.COMPLETE, None, None

    def dump_stream(self, iterator: Iterator[Output], stream: IO[bytes]) -> None:
        """Send the processor's output rows."""
        first = next(iterator)
        shape = _arrow_type(first[0][1])
        outputs = (rows for ((rows, _),) in chain([first], iterator))
        batches = ((batch, shape) for batch in record_batches(outputs, shape))
        ArrowStreamUDFSerializer.dump_stream(self, batches, stream)


def _arrow_type(schema: StructType | pa.StructType) -> pa.StructType:
    if isinstance(schema, pa.StructType):
        return schema
    return to_arrow_type(schema, timezone="UTC", prefers_large_types=False)
