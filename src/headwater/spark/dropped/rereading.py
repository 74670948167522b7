"""The raw records of a committed batch, read again from the source by the batch's own offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.source_offsets import SourceRange, log_offset
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.jobs.endpoints import Decoding, Files, Kafka, Source
from headwater.spark.decoding import decode_lines
from headwater.spark.dropped.tagging import TAG
from headwater.spark.failures import explained
from headwater.spark.reading import CONSUMER

LINE_BREAK = "\r\n|\n|\r"
BYTE_FOR_BYTE = "ISO-8859-1"


@dataclass(frozen=True)
class RawBatch:
    """``raw`` has ``value`` and a tag: where each record lies, and its text. ``decoded`` is what the job's function gets."""

    kind: str
    raw: DataFrame
    decoded: DataFrame

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the block runs the source is read once, however often the frames are used."""
        self.raw.persist()
        try:
            yield
        finally:
            self.raw.unpersist()


def check_rereadable(source: Source) -> None:
    """Refuse a source whose records have no position."""
    match source:
        case Kafka():
            return
        case Files() if (source.format or "json") in {"json", "text", "csv"} and not _option(source, "multiline"):
            return
    what = f"{source.format or 'json'} files" if isinstance(source, Files) else f"a {source.kind} source"
    raise ChangeRefused(
        "cannot-reread",
        f"records of {what} have no position by which they could be found again",
        remedy="Kafka topics and folders of json, csv or text files with one record a line can be read again",
    )


def reread(spark: SparkSession, source: Source, history: History, batch: Batch) -> RawBatch | None:
    """All records of a batch with their positions; None for a batch that read nothing."""
    check_rereadable(source)
    if not any(part.moved for part in batch.sources):
        return None
    if len(batch.sources) != 1:
        raise ChangeRefused("several-sources", "records can be followed in queries with one source only")
    if batch.batch_id > 0 and history.logs.offsets.get(batch.batch_id - 1) is None:
        raise ChangeRefused(
            "no-batch",
            f"the log no longer tells where batch {batch.batch_id} began: batch {batch.batch_id - 1} is not in it",
            remedy=f"headwater log {history.files.location}",
        )
    part = batch.sources[0]
    with explained(f"batch {batch.batch_id} cannot be read again"):
        if isinstance(source, Kafka):
            raw, decoding = _kafka(spark, source, part), source.decoding
        else:
            assert isinstance(source, Files)
            raw = _lines(spark, history, part, source)
            decoding = Decoding(source.schema, source.format or "json", source.decode)
    return RawBatch(source.kind, raw, decode_lines(spark, raw, decoding, keep=(TAG,)))


def _kafka(spark: SparkSession, source: Kafka, part: SourceRange) -> DataFrame:
    starts = part.start if isinstance(part.start, dict) else {}
    # A partition that came into being during the batch was read from its beginning.
    full = {
        topic: {number: (starts.get(topic) or {}).get(number, 0) for number in partitions}
        for topic, partitions in part.end.items()
    }
    secured = {name: value for name, value in source.options.items() if name.startswith("kafka.")}
    # By partition and not by topic: the topic may have more of them by now.
    partitions = json.dumps({topic: [int(number) for number in held] for topic, held in part.end.items()})
    frame = (
        spark.read.format("kafka")
        .options(**{"kafka.bootstrap.servers": source.servers, **CONSUMER, **secured})
        .options(assign=partitions, startingOffsets=json.dumps(full), endingOffsets=json.dumps(part.end))
        .load()
    )
    return _tagged(frame, F.col("topic"), F.col("partition"), F.col("offset"))


def _lines(spark: SparkSession, history: History, part: SourceRange, source: Files) -> DataFrame:
    start, end = log_offset(part.start) if part.start is not None else -1, log_offset(part.end)
    entries = history.source_log(part.name).entries_between(-1 if start is None else start, end or 0)
    if entries is None:
        raise CheckpointUnreadable("source-log-gone", "the source's log no longer tells which files these were")
    whole = spark.read.text([entry.path for entry in entries], wholetext=True)
    line_break = re.escape(_option(source, "linesep").encode().decode(BYTE_FOR_BYTE)) or LINE_BREAK
    # Spark's text functions would mend what is no UTF-8, and the job has seen it as it is.
    text = F.decode(F.col("value").cast("binary"), BYTE_FOR_BYTE)
    # What follows the last line break is no line, as Spark's own reader of lines has it.
    lines_of = F.split(F.regexp_replace(text, rf"({line_break})\z", ""), line_break)
    held = whole.where("value <> ''").select(
        F.col("_metadata.file_path").alias("path"),
        F.transform(lines_of, lambda line: F.encode(line, BYTE_FOR_BYTE).cast("string")).alias("lines"),
    )
    first = F.array_position(F.transform("lines", _has_text), F.lit(True))
    lines = held.select("path", first.alias("first"), F.posexplode("lines").alias("place", "value"))
    if source.format == "csv":
        # Spark's reader passes over lines without text, and takes the first one with text for the header.
        lines = lines.where(_has_text(F.col("value")))
        if _option(source, "header").lower() == "true":
            lines = lines.where(F.col("place") >= F.col("first"))
    return _tagged(lines, F.col("path"), (F.col("place") + 1).alias("line"))


def _tagged(frame: DataFrame, *position: Column) -> DataFrame:
    """The text rides along in the tag: whoever is left over in the end need not be looked up again."""
    return frame.select("value", F.struct(*position, F.col("value").cast("string").alias("value")).alias(TAG))


def _has_text(line: Column) -> Column:
    return line.rlike(r"[^\x00-\x20]")


def _option(source: Files, name: str) -> str:
    """A reader's option, whatever the case of its name; ``false`` counts as not given."""
    chosen = {key.lower(): value for key, value in {**source.options, **source.decode}.items()}
    value = chosen.get(name, "")
    return "" if value.lower() == "false" else value
