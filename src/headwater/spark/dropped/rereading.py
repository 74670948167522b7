"""The raw records of a committed batch, read again from the source by the recorded offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.source_offsets import SourceRange
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.formats.schema import BINARY_FORMATS
from headwater.jobs.endpoints import KAFKA_COLUMNS, Decoding, Delta, Files, Iceberg, Kafka, Source
from headwater.kafka.options import Connection
from headwater.spark.decoding import decode_lines
from headwater.spark.dropped.table_rereading import reread_table
from headwater.spark.dropped.tagging import TAG
from headwater.spark.failures import SPARK_ERRORS, explained, root_cause
from headwater.spark.reading import CONSUMER_OPTIONS, reads_headers

LINE_BREAK = "\r\n|\n|\r"
BYTE_FOR_BYTE = "ISO-8859-1"
GLOB_CHARACTER = re.compile(r"[\\*?{}\[\]]")


@dataclass(frozen=True)
class RawBatch:
    """The records of a batch. ``raw`` has ``value`` and a tag, which holds each record's position, text and bytes.

    ``decoded`` is what the job's function receives, with the tag.
    """

    kind: str
    raw: DataFrame
    decoded: DataFrame
    decodes: bool = True
    """Whether records are decoded, so that some of them can be malformed."""

    @contextmanager
    def cached(self) -> Iterator[None]:
        """Read the source only once, however often the frames are used while the block runs."""
        self.raw.persist()
        try:
            yield
        finally:
            self.raw.unpersist()


def check_rereadable(source: Source) -> None:
    """Refuse a source whose records have no position."""
    match source:
        case Kafka() | Delta() | Iceberg():
            return
        case Files() if (source.format or "json") in {"json", "text", "csv"} and not _option(source, "multiline"):
            return
    what = f"{source.format or 'json'} files" if isinstance(source, Files) else f"a {source.kind} source"
    raise ChangeRefused(
        "cannot-reread",
        f"records from {what} have no position, so they cannot be read again",
        remedy="use a Kafka topic, a Delta or Iceberg table, or a folder of json, csv or text files with one record per line",
    )


def reread(spark: SparkSession, source: Source, history: History, batch: Batch, part: SourceRange) -> RawBatch | None:
    """Return all records that a batch read from a source, with their positions; None if it read nothing from it."""
    check_rereadable(source)
    if not part.moved:
        return None
    if batch.batch_id > 0 and history.logs.offsets.get(batch.batch_id - 1) is None:
        raise ChangeRefused(
            "no-batch",
            f"the log no longer shows where batch {batch.batch_id} started: it has no entry for batch {batch.batch_id - 1}",
            remedy=f"headwater log {history.files.location}",
        )
    with explained(f"cannot read batch {batch.batch_id} again"):
        if isinstance(source, Delta | Iceberg):
            rows = reread_table(spark, source, history.files, part)
            return RawBatch(source.kind, rows.select(F.col(f"{TAG}.value").alias("value"), TAG), rows, decodes=False)
        if isinstance(source, Kafka):
            raw, decoding = _kafka(spark, source, part), source.decoding
        else:
            assert isinstance(source, Files)
            raw = _lines(spark, history, batch, part, source)
            decode = {**source.options, **source.decode} if source.format == "csv" else source.decode
            decoding = Decoding(source.schema, source.format or "json", decode)
    return RawBatch(source.kind, raw, decode_lines(spark, raw, decoding, keep=(TAG,)))


def _kafka(spark: SparkSession, source: Kafka, part: SourceRange) -> DataFrame:
    starts = part.start if isinstance(part.start, dict) else {}
    # A partition that was created during the batch was read from its beginning.
    from_offsets = {
        topic: {number: (starts.get(topic) or {}).get(number, 0) for number in partitions}
        for topic, partitions in part.end.items()
    }
    connection = Connection(source.servers, source.options)
    # Assigned by partition: the topic may have more partitions by now.
    partitions = json.dumps({topic: [int(number) for number in ends] for topic, ends in part.end.items()})
    frame = (
        spark.read.format("kafka")
        .options(**{"kafka.bootstrap.servers": source.servers, **CONSUMER_OPTIONS, **connection.spark_options()})
        .options(assign=partitions, startingOffsets=json.dumps(from_offsets), endingOffsets=json.dumps(part.end))
        .options(includeHeaders=str(reads_headers(source)).lower())
        .load()
    )
    kept = KAFKA_COLUMNS if source.format == "raw" else [name for name, _ in source.kept_columns]
    position = [F.col("topic"), F.col("partition"), F.col("offset")]
    return _tagged(frame, *position, keep=kept, is_binary=source.format in BINARY_FORMATS)


def cannot_reread(batch: Batch, error: Exception, remedy: str) -> ChangeRefused:
    """Return the refusal for an exception of Spark that shows that the source no longer has a batch's records."""
    return ChangeRefused(
        "cannot-reread",
        f"cannot read the records of batch {batch.batch_id} again",
        evidence={"reason": root_cause(error)},
        remedy=remedy,
    )


def _path_pattern(uri: str) -> str:
    """Return the path that matches only the file of a source's log, which names its files by URIs."""
    return GLOB_CHARACTER.sub(r"\\\g<0>", unquote(uri))


def _lines(spark: SparkSession, history: History, batch: Batch, part: SourceRange, source: Files) -> DataFrame:
    entries = history.input_files(part.name, part.start, part.end)
    if entries is None:
        raise CheckpointUnreadable("source-log-gone", "the source's log no longer lists the files of this batch")
    try:
        contents = spark.read.text([_path_pattern(entry.path) for entry in entries], wholetext=True)
    except SPARK_ERRORS as error:
        remedy = "put the input file back, or look at other batches with --batch"
        raise cannot_reread(batch, error, remedy) from error
    line_break = re.escape(_option(source, "linesep").encode().decode(BYTE_FOR_BYTE)) or LINE_BREAK
    # Spark's string functions replace invalid UTF-8, which the job received unchanged.
    text = F.decode(F.col("value").cast("binary"), BYTE_FOR_BYTE)
    # Like Spark's own reader: what follows the last line break is not a line.
    split_lines = F.split(F.regexp_replace(text, rf"({line_break})\z", ""), line_break)
    files = contents.where("value <> ''").select(
        F.col("_metadata.file_path").alias("path"),
        F.transform(split_lines, lambda line: F.encode(line, BYTE_FOR_BYTE).cast("string")).alias("lines"),
    )
    comment = _option(source, "comment") if source.format == "csv" else ""
    is_skipped = partial(_is_blank_or_comment, comment=comment)
    first = F.array_position(F.transform("lines", lambda line: ~is_skipped(line)), F.lit(True))
    lines = files.select("path", first.alias("first"), F.posexplode("lines").alias("place", "value"))
    if source.format == "csv":
        # Spark's reader skips blank lines and comments, and takes the first other line as the header.
        lines = lines.where(~is_skipped(F.col("value")))
        if _option(source, "header").lower() == "true":
            lines = lines.where(F.col("place") >= F.col("first"))
    return _tagged(lines, F.col("path"), (F.col("place") + 1).alias("line"))


def _tagged(frame: DataFrame, *position: Column, keep: Sequence[str] = (), is_binary: bool = False) -> DataFrame:
    """Add the tag. It includes the value, so that a record found later need not be read once more.

    The value is text, or bytes if it has a binary format or is not UTF-8.
    """
    value = F.col("value")
    is_text = F.lit(False) if is_binary else F.is_valid_utf8(value.cast("string"))
    text, octets = F.when(is_text, value.cast("string")), F.when(~is_text, value.cast("binary"))
    tag = F.struct(*position, text.alias("value"), octets.alias("bytes"))
    return frame.select(*dict.fromkeys(["value", *keep]), tag.alias(TAG))


def _is_blank_or_comment(line: Column, comment: str) -> Column:
    is_blank = ~line.rlike(r"[^\x00-\x20]")
    return is_blank | line.startswith(comment) if comment else is_blank


def _option(source: Files, name: str) -> str:
    """Return a reader's option, whatever the case of its name; empty if it is missing or ``false``."""
    chosen = {key.lower(): value for key, value in {**source.options, **source.decode}.items()}
    value = chosen.get(name, "")
    return "" if value.lower() == "false" else value
