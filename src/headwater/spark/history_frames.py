"""The streams of a seed: history with the columns of the source that it takes the place of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from headwater.core.errors import ChangeRefused, JobRefused
from headwater.jobs.endpoints import Files
from headwater.spark.decoding import parse_schema
from headwater.spark.failures import SPARK_ERRORS, first_sentence
from headwater.spark.reading import read_stream
from headwater.spark.seed_request import SeedRequest, history_source

_LINES = ("json", "csv", None)


def history_frame(
    spark: SparkSession, request: SeedRequest, name: str, wanted: StructType, offset: str | None, empty: Path
) -> DataFrame:
    """Return the history of a source as a stream with the columns of that source.

    ``offset`` is where the source continues. Without history, the stream has one file without rows, in a folder below
    ``empty``, because Spark runs no batch without a file.
    """
    history = history_source(request, name)
    if history is None:
        return _nothing(spark, name, wanted, empty)
    if isinstance(history, Files):
        history = replace(history, schema=_schema(spark, request, history, wanted))
    frame = read_stream(spark, history, name)
    if request.by == "event-time":
        moment = _event_time(request, frame)
        frame = frame.filter(moment.isNull() | (moment < _takeover(request)))
    elif request.offset_columns and offset:
        frame = frame.filter(_is_before(request, frame, json.loads(offset)))
    return _with_columns(frame, wanted, request.history[name])


def later_frame(request: SeedRequest, frame: DataFrame) -> DataFrame:
    """Return a source without the records that the history has, by event time."""
    return frame.filter(_event_time(request, frame) >= _takeover(request))


def _nothing(spark: SparkSession, name: str, wanted: StructType, empty: Path) -> DataFrame:
    folder = empty / (name or "source")
    folder.mkdir()
    (folder / "empty.json").touch()
    return spark.readStream.schema(wanted).json(str(folder))


def _schema(spark: SparkSession, request: SeedRequest, history: Files, wanted: StructType) -> StructType | None:
    """Return the columns to read from lines of text: those of the source, and where each record was in its topic."""
    if history.format not in _LINES:
        return history.schema if isinstance(history.schema, StructType) else None
    known = wanted if history.schema is None else parse_schema(spark, history.decoding)
    extra = [one for one in wanted.fields if one.name not in known.fieldNames()]
    if request.offset_columns:
        partition, offset = request.offset_columns
        extra += [StructField(partition, IntegerType()), StructField(offset, LongType())]
    names = known.fieldNames()
    return StructType([*known.fields, *(one for one in extra if one.name not in names)])


def _event_time(request: SeedRequest, frame: DataFrame) -> Column:
    """Return the event time of each record. Refuse an expression that is not a time."""
    assert request.event_time is not None
    problem = None
    try:
        kind = frame.select(F.expr(request.event_time)).schema.fields[0].dataType
    except SPARK_ERRORS as error:
        problem = first_sentence(error)
    else:
        if not isinstance(kind, TimestampType):
            problem = f"its type is {kind.simpleString()}, not timestamp"
    if problem:
        raise JobRefused(
            "bad-event-time",
            f"{request.event_time!r} is not the event time of a record",
            evidence={"why": problem, "columns": ", ".join(frame.columns)},
            remedy="--event-time COLUMN, or a SQL expression such as timestamp_millis(at)",
        )
    return F.expr(request.event_time)


def _takeover(request: SeedRequest) -> Column:
    return F.timestamp_millis(F.lit(request.time_ms))


def _is_before(request: SeedRequest, frame: DataFrame, position: dict[str, dict[str, int]]) -> Column:
    """Return whether a record of the history is before the position. A partition that the topic lacks is history."""
    assert request.offset_columns is not None
    missing = [name for name in request.offset_columns if name not in frame.columns]
    if missing or len(position) > 1:
        raise ChangeRefused(
            "bad-history",
            f"the history has no column {missing[0]}" if missing else "the source reads several topics",
            evidence={"columns": ", ".join(frame.columns)},
            remedy="--offset-columns PARTITION,OFFSET   (for a single topic)",
        )
    (bounds,) = position.values()
    partition, offset = (F.col(f"`{name}`") for name in request.offset_columns)
    numbers = F.array(*[F.lit(int(number)) for number in bounds])
    limits = F.array(*[F.lit(int(limit)).cast("bigint") for limit in bounds.values()])
    limit = F.try_element_at(F.map_from_arrays(numbers, limits), partition.cast("int"))
    return limit.isNull() | (offset < limit)


def _with_columns(frame: DataFrame, wanted: StructType, history: str) -> DataFrame:
    """Return the columns of the source, with its types. Refuse a history that lacks one."""
    missing = [one.name for one in wanted.fields if one.name not in frame.columns]
    if missing:
        raise ChangeRefused(
            "bad-history",
            f"the history lacks columns of the source: {', '.join(missing)}",
            evidence={"history": history, "columns": ", ".join(frame.columns)},
            remedy="name its format, for example --from 'files:DIR?format=parquet'",
        )
    types = {one.name: one.dataType for one in frame.schema.fields}
    columns = [
        F.col(f"`{one.name}`")
        if types[one.name] == one.dataType
        else F.col(f"`{one.name}`").cast(one.dataType).alias(one.name)
        for one in wanted.fields
    ]
    return frame.select(*columns)
