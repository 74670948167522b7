"""The rows that a batch read from an Iceberg table, read again: each with its data file and its number there."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.source_offsets import SourceRange
from headwater.checkpoint.table_offsets import iceberg_position
from headwater.core.errors import ChangeRefused
from headwater.jobs.endpoints import Iceberg
from headwater.lakehouse.iceberg_catalog import open_in_catalog
from headwater.lakehouse.iceberg_source import SnapshotRead, initial_position, reads_between, start_position
from headwater.lakehouse.tables import TableUri
from headwater.spark.dropped.tagging import TAG
from headwater.spark.table_formats import configured_catalog

PATH, PLACE = "__headwater_path", "__headwater_place"


def read_again(spark: SparkSession, source: Iceberg, checkpoint: FileTree, part: SourceRange) -> DataFrame:
    """Return the rows with the columns of the table, and the tag."""
    frames = [_rows(spark, source, read) for read in _reads(spark, source, checkpoint, part)]
    rows = reduce(DataFrame.unionByName, frames)
    columns = [F.col(f"`{name}`") for name in rows.columns if name not in (PATH, PLACE)]
    text = F.to_json(F.struct(*columns)).alias("value")
    number = (F.col(PLACE) + 1).cast("int").alias("line")
    tag = F.struct(F.col(PATH).alias("path"), number, text, F.lit(None).cast("binary").alias("bytes"))
    return rows.select(*columns, tag.alias(TAG))


def _reads(spark: SparkSession, source: Iceberg, checkpoint: FileTree, part: SourceRange) -> list[SnapshotRead]:
    table = open_in_catalog(_table_uri(spark, source)).load()
    end, start = iceberg_position(part.end), iceberg_position(part.start)
    if table is None or end is None:
        raise ChangeRefused(
            "cannot-reread",
            "the Iceberg table that the batch read cannot be found",
            evidence={"table": source.table},
        )
    start = start_position(table, start or initial_position(checkpoint, part.name), end)
    found = list(reads_between(table, start, end))
    return [read for read in found if read.files] or found[:1]


def _table_uri(spark: SparkSession, source: Iceberg) -> TableUri:
    """Return the table with the settings of its catalog, which may be those of the session."""
    settings = source.catalog or configured_catalog(source, spark.conf.getAll)
    return TableUri("iceberg", source.table, {f"catalog.{name}": value for name, value in settings.items()})


def _rows(spark: SparkSession, source: Iceberg, read: SnapshotRead) -> DataFrame:
    table = spark.read.format("iceberg").option("versionAsOf", read.snapshot_id).load(source.table)
    paths = [file.path for file in read.files]
    return table.where(F.col("_file").isin(paths)).select("*", F.col("_file").alias(PATH), F.col("_pos").alias(PLACE))
