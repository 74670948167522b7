"""The raw records of a committed batch, read again from the source by the batch's own offsets."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.source_offsets import SourceRange, log_offset
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.jobs.endpoints import Decoding, Files, Kafka, Source
from headwater.spark.decoding import decode_lines
from headwater.spark.failures import explained
from headwater.spark.lateness import TAG

LINE_BREAK = "\r\n|\n|\r"


@dataclass(frozen=True)
class RawBatch:
    """``raw`` has ``value`` and a tag that says where each record lies; ``decoded`` what the job's function gets of it."""

    kind: str
    raw: DataFrame
    decoded: DataFrame


def reread(spark: SparkSession, source: Source, history: History, batch: Batch) -> RawBatch | None:
    """All records of a batch with their positions; None for a batch that read nothing."""
    if not any(part.moved for part in batch.sources):
        return None
    if len(batch.sources) != 1:
        raise ChangeRefused("several-sources", "records can be followed in queries with one source only")
    part = batch.sources[0]
    with explained(f"batch {batch.batch_id} cannot be read again"):
        match source:
            case Kafka():
                raw, decoding = _kafka(spark, source, part), source.decoding
            case Files() if (source.format or "json") in {"json", "text", "csv"}:
                raw = _lines(spark, history, part, skip_header=_has_header(source))
                decoding = Decoding(source.schema, source.format or "json", source.decode)
            case _:
                raise ChangeRefused(
                    "cannot-reread",
                    f"records of a {source.kind} source have no position by which they could be found again",
                    remedy="Kafka topics and folders of json, csv or text files can be read again",
                )
    return RawBatch(source.kind, raw, decode_lines(spark, raw, decoding, keep=(TAG,)))


def _kafka(spark: SparkSession, source: Kafka, part: SourceRange) -> DataFrame:
    starts = part.start if isinstance(part.start, dict) else {}
    # A partition that came into being during the batch was read from its beginning.
    full = {
        topic: {number: (starts.get(topic) or {}).get(number, 0) for number in partitions}
        for topic, partitions in part.end.items()
    }
    secured = {name: value for name, value in source.options.items() if name.startswith("kafka.")}
    frame = (
        spark.read.format("kafka")
        .options(**{"kafka.bootstrap.servers": source.servers, **secured})
        .options(subscribe=",".join(part.end), startingOffsets=json.dumps(full), endingOffsets=json.dumps(part.end))
        .load()
    )
    return frame.select("value", F.struct("topic", "partition", "offset").alias(TAG))


def _lines(spark: SparkSession, history: History, part: SourceRange, *, skip_header: bool) -> DataFrame:
    start, end = log_offset(part.start) if part.start is not None else -1, log_offset(part.end)
    entries = history.source_log(part.name).entries_between(-1 if start is None else start, end or 0)
    if entries is None:
        raise CheckpointUnreadable("source-log-gone", "the source's log no longer tells which files these were")
    whole = spark.read.text([entry.path for entry in entries], wholetext=True)
    # What follows the last line break is no line, as Spark's own reader of lines has it.
    text = F.regexp_replace("value", rf"({LINE_BREAK})\z", "")
    lines = whole.where("value <> ''").select(
        F.col("_metadata.file_path").alias("path"), F.posexplode(F.split(text, LINE_BREAK)).alias("place", "value")
    )
    if skip_header:
        lines = lines.where("place > 0")
    return lines.select("value", F.struct("path", (F.col("place") + 1).alias("line")).alias(TAG))


def _has_header(source: Files) -> bool:
    chosen = {name.lower(): value.lower() for name, value in {**source.options, **source.decode}.items()}
    return source.format == "csv" and chosen.get("header") == "true"
