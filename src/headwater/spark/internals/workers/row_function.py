"""The function that runs a processor on PySpark 4.3, with rows in batches of many keys.

PySpark's own converts rows itself. What it works with is in its closure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getclosurevars
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowBatchTransformer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode
from pyspark.util import PythonEvalType

from headwater.spark.internals.workers.row_conversion import record_batches, rows_by_key

NEEDED = {"udf", "key_offsets", "return_type", "stateful_processor_api_client"}


def with_row_batches(read_udfs: Callable[..., Any]) -> Callable[..., Any]:
    """Return PySpark's ``read_udfs`` with another function for processors on rows."""

    def read(serializer: Any, infos: Any, eval_type: int, *more: Any) -> Any:
        function, *rest = read_udfs(serializer, infos, eval_type, *more)
        if eval_type == PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF:
            function = _in_batches(function)
        return (function, *rest)

    return read


def _in_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    found = getclosurevars(function).nonlocals
    if not found.keys() >= NEEDED:
        return function
    udf, client = found["udf"], found["stateful_processor_api_client"]
    shape = to_arrow_type(found["return_type"], timezone="UTC", prefers_large_types=False)

    def outputs(data: Iterator[pa.RecordBatch]) -> Iterator[Iterator[Row]]:
        for key, rows in rows_by_key(data, found["key_offsets"]):
            yield udf(client, Mode.PROCESS_DATA, key, rows)
        yield udf(client, Mode.PROCESS_TIMER, None, iter([]))
        yield udf(client, Mode.COMPLETE, None, iter([]))

    def run(_: int, data: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(ArrowBatchTransformer.wrap_struct, record_batches(outputs(data), shape))

    return run
