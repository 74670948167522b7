"""The rows that a batch read from a Delta or Iceberg table, read again: each with its data file and its number there.

Iceberg numbers the rows of a file. Delta does not, so they are counted in the order in which Spark reads them.
"""

from __future__ import annotations

import re
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.source_offsets import SourceRange
from headwater.checkpoint.table_offsets import delta_position, iceberg_position
from headwater.core.errors import ChangeRefused
from headwater.jobs.endpoints import Delta, Iceberg
from headwater.lakehouse import delta_source, iceberg_source
from headwater.lakehouse.delta_actions import file_key
from headwater.lakehouse.delta_files import absolute
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_source import VersionRead
from headwater.lakehouse.iceberg_catalog import open_in_catalog
from headwater.lakehouse.iceberg_source import SnapshotRead
from headwater.lakehouse.tables import TableUri
from headwater.spark.delta import location
from headwater.spark.dropped.tagging import TAG
from headwater.spark.table_formats import configured_catalog

PATH, PLACE = "__headwater_path", "__headwater_place"
SCHEME = re.compile("^[A-Za-z0-9]+:/*")


def reread_table(spark: SparkSession, source: Delta | Iceberg, checkpoint: FileTree, part: SourceRange) -> DataFrame:
    """Return the rows with the columns of the table, and the tag."""
    if isinstance(source, Delta):
        frames = _delta_frames(spark, source, part)
        number = F.row_number().over(Window.partitionBy(PATH).orderBy(PLACE))
    else:
        frames = [_iceberg_rows(spark, source, read) for read in _iceberg_reads(spark, source, checkpoint, part)]
        number = (F.col(PLACE) + 1).cast("int")
    rows = reduce(DataFrame.unionByName, frames)
    columns = [F.col(f"`{name}`") for name in rows.columns if name not in (PATH, PLACE)]
    text = F.to_json(F.struct(*columns)).alias("value")
    no_bytes = F.lit(None).cast("binary").alias("bytes")
    tag = F.struct(F.col(PATH).alias("path"), number.alias("line"), text, no_bytes)
    return rows.select(*columns, tag.alias(TAG))


def _delta_frames(spark: SparkSession, source: Delta, part: SourceRange) -> list[DataFrame]:
    reads = _delta_reads(source, part)
    log = DeltaLog(open_files(location(source)))
    return [_delta_rows(spark, source, version, files) for version, files in _by_version(log, reads).items()]


def _delta_reads(source: Delta, part: SourceRange) -> list[VersionRead]:
    """Return the files that a batch read. Raise ``ChangeRefused`` if the checkpoint does not show where it started."""
    end = delta_position(part.end)
    start = delta_position(part.start)
    if start is None and end is not None and part.start is None and "startingTimestamp" not in source.options:
        start = delta_source.start_position(end, source.options.get("startingVersion"))
    if start is None or end is None:
        raise ChangeRefused(
            "cannot-reread",
            "the checkpoint does not record where the batch started in the Delta table",
            evidence={"table": source.path},
        )
    return list(delta_source.reads_between(DeltaLog(open_files(location(source))), start, end))


def _by_version(log: DeltaLog, reads: list[VersionRead]) -> dict[int, set[str]]:
    """Return the paths to read as of each version. Files that the newest version still has are read together."""
    newest = max((read.version for read in reads), default=0)
    kept = log.snapshot(newest).files if reads else {}
    found: dict[int, set[str]] = {newest: set()}
    for read in reads:
        for action in read.adds:
            version = newest if file_key(action) in kept else read.version
            found.setdefault(version, set()).add(_plain(absolute(log.files, str(action["path"]))))
    return found


def _delta_rows(spark: SparkSession, source: Delta, version: int, paths: set[str]) -> DataFrame:
    table = spark.read.format("delta").option("versionAsOf", version).load(location(source))
    file, block = F.col("_metadata.file_path"), F.col("_metadata.file_block_start")
    # Within a file, rows are in the order of its blocks, and in each of them in the order in which Spark reads them.
    place = F.struct(block, F.monotonically_increasing_id())
    return table.where(_plain_column(file).isin(sorted(paths))).select("*", file.alias(PATH), place.alias(PLACE))


def _plain(uri: str) -> str:
    """Return a URI as text that can be compared: decoded, and without its scheme, which has several forms."""
    return SCHEME.sub("", unquote(uri)).lstrip("/")


def _plain_column(uri: Column) -> Column:
    decoded = F.url_decode(F.regexp_replace(uri, r"\+", "%2B"))
    return F.regexp_replace(F.regexp_replace(decoded, SCHEME.pattern, ""), "^/+", "")


def _iceberg_reads(spark: SparkSession, source: Iceberg, checkpoint: FileTree, part: SourceRange) -> list[SnapshotRead]:
    table = open_in_catalog(_table_uri(spark, source)).load()
    end, start = iceberg_position(part.end), iceberg_position(part.start)
    if table is None or end is None:
        raise ChangeRefused(
            "cannot-reread",
            "the Iceberg table that the batch read cannot be found",
            evidence={"table": source.table},
        )
    start = iceberg_source.start_position(table, start or iceberg_source.initial_position(checkpoint, part.name), end)
    found = list(iceberg_source.reads_between(table, start, end))
    return [read for read in found if read.files] or found[:1]


def _table_uri(spark: SparkSession, source: Iceberg) -> TableUri:
    """Return the table with the settings of its catalog, which may be those of the session."""
    settings = source.catalog or configured_catalog(source, spark.conf.getAll)
    return TableUri("iceberg", source.table, {f"catalog.{name}": value for name, value in settings.items()})


def _iceberg_rows(spark: SparkSession, source: Iceberg, read: SnapshotRead) -> DataFrame:
    table = spark.read.format("iceberg").option("versionAsOf", read.snapshot_id).load(source.table)
    paths = [file.path for file in read.files]
    return table.where(F.col("_file").isin(paths)).select("*", F.col("_file").alias(PATH), F.col("_pos").alias(PLACE))
