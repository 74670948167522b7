"""Static tables that a job joins its streams with.

With ``refresh="start"``, the rows are read once when the query starts, and kept until it ends: files that are replaced or
removed in the meantime do not affect it. With ``refresh="batch"``, every micro-batch reads the table as it is when the
batch is planned. Columns are those of the start in both cases.
"""

from __future__ import annotations

import re
from contextlib import suppress

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.core.errors import HeadwaterError, JobRefused
from headwater.jobs.endpoints import Decoding, Delta, Files, Postgres, Static, Table
from headwater.jobs.job import Frames, Job
from headwater.jobs.uris import uri_of
from headwater.spark import delta, postgres_reading
from headwater.spark.decoding import parse_schema
from headwater.spark.failures import SPARK_ERRORS, condition_of, failed_file, refusal, root_cause
from headwater.spark.internals import static_plans
from headwater.spark.table_formats import require_format
from headwater.spark.tables import require_table

PATTERN = re.compile(r"[*?\[{]")
PARSED = ("json", "csv")


class StaticTables:
    """The static tables of a job as DataFrames by name. As a context manager, it frees the rows that ``load`` keeps."""

    def __init__(self, spark: SparkSession, job: Job, known: Frames | None = None) -> None:
        self._spark = spark
        self._statics = job.statics
        self._rereads = job.per_batch
        self._loaded: list[DataFrame] = []
        known = known or {}
        self.frames: dict[str, DataFrame] = {
            name: known[name] if name in known else self._read(name, static) for name, static in job.statics.items()
        }

    @property
    def kept(self) -> dict[str, DataFrame]:
        """The tables whose rows are those of the start."""
        return {name: frame for name, frame in self.frames.items() if self._statics[name].refresh == "start"}

    def load(self) -> None:
        """Read the tables whose rows are those of the start. Raise if one of them cannot be read."""
        if self._loaded:
            return
        for name, frame in self.kept.items():
            self._loaded.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
            try:
                frame.count()
            except SPARK_ERRORS as error:
                self.release()
                raise _unreadable(name, self._statics[name], error) from error

    def for_batch(self) -> dict[str, DataFrame]:
        """Return the tables as a per-batch job joins them with the current micro-batch."""
        return {name: self._now(name, frame) for name, frame in self.frames.items()}

    def release(self) -> None:
        """Free the rows that ``load`` keeps."""
        for frame in self._loaded:
            with suppress(*SPARK_ERRORS, ConnectionError):  # Spark may have died
                frame.unpersist()
        self._loaded.clear()

    def __enter__(self) -> StaticTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _read(self, name: str, static: Static) -> DataFrame:
        rows = read_table(self._spark, name, static)
        if static.refresh == "start":
            return static_plans.detached(self._spark, rows)
        return rows if self._rereads else _in_each_batch(self._spark, name, static, rows)

    def _now(self, name: str, first: DataFrame) -> DataFrame:
        if self._statics[name].refresh == "start":
            return first
        return read_table(self._spark, name, self._statics[name], first.schema)


def read_table(spark: SparkSession, name: str, static: Static, schema: StructType | None = None) -> DataFrame:
    """Return the rows of a static table as they are now, if given with the columns of an earlier reading."""
    table = static.table
    try:
        match table:
            case Files():
                return _files(spark, table, schema)
            case Table():
                frame = _table(spark, name, table)
            case Postgres():
                frame = postgres_reading.read_table(spark, table)
            case Delta():
                require_format(spark, table)
                frame = spark.read.format("delta").options(**table.options).load(delta.location(table))
        return frame.select(*(f"`{column}`" for column in schema.fieldNames())) if schema else frame
    except HeadwaterError:
        raise
    except SPARK_ERRORS as error:
        raise _unreadable(name, static, error) from error


def _files(spark: SparkSession, table: Files, schema: StructType | None) -> DataFrame:
    format_name = table.format or "json"
    options = {**table.options, **table.decode, "mode": "FAILFAST", "columnPruning": "false"}
    if schema is None and (table.schema is not None or format_name in PARSED):
        schema = parse_schema(spark, Decoding(table.schema, format_name, table.decode))
    reader = spark.read.format(format_name).options(**options)
    # With a schema from the start, Spark does not infer the types of partition columns again from new folders.
    return reader.schema(schema or reader.load(table.path).schema).load(table.path)


def _table(spark: SparkSession, name: str, table: Table) -> DataFrame:
    require_table(spark, table, read_as=name)
    spark.catalog.refreshTable(table.name)  # the session's catalog keeps the list of files of an earlier reading
    return spark.read.options(**table.options).table(table.name)


def _in_each_batch(spark: SparkSession, name: str, static: Static, rows: DataFrame) -> DataFrame:
    """Return a table that a streaming query reads again in each batch; refuse one for which Spark cannot do that."""
    if isinstance(static.table, Delta):
        return _latest(name, static.table, rows)
    fixed = static_plans.fixed_parts(rows)
    if fixed:
        raise _refused_refresh(name, f"Spark reads {uri_of(static)} as {fixed[0]}, with the rows of the start")
    if not static_plans.has_files(rows):
        return rows
    if isinstance(static.table, Files) and PATTERN.search(static.table.path):
        raise _refused_refresh(
            name,
            f"{static.table.path} is a pattern, which Spark resolves at the start",
            remedy="name the folder, and select its files with the option pathGlobFilter",
        )
    if not static_plans.probe(spark):
        raise _refused_refresh(name, "headwater-spark.jar is not on the class path of this Spark session")
    return static_plans.listed_in_each_batch(spark, rows)


def _latest(name: str, table: Delta, rows: DataFrame) -> DataFrame:
    """Return a Delta table, of which Delta itself reads the newest version in each batch."""
    fixed = [option for option in table.options if option.lower() in {"versionasof", "timestampasof"}]
    if fixed:
        raise _refused_refresh(name, f"{fixed[0]} selects one version of the table")
    return rows


def _refused_refresh(name: str, why: str, *, remedy: str | None = None) -> JobRefused:
    return JobRefused(
        "static-refresh",
        f"the static table {name} cannot be read again in each batch",
        evidence={"why": why},
        remedy=remedy or 'Static(..., refresh="start"), or per_batch=True for a job that keeps no state',
    )


def _unreadable(name: str, static: Static, error: Exception) -> JobRefused:
    if condition_of(error) == "PATH_NOT_FOUND":
        return JobRefused(
            "no-folder",
            f"the files of the static table {name} do not exist",
            evidence={"table": uri_of(static)},
            remedy=f"write the table first, or read another one: --source {name}=URI",
        )
    reason, file = root_cause(error), failed_file(error)
    if "FAILFAST" in reason or "MALFORMED" in f"{condition_of(error)} {error}":
        schema = static.table.schema if isinstance(static.table, Files) else None
        return JobRefused(
            "static-rows",
            f"the static table {name} has a row that does not match its schema",
            evidence={"file": file or uri_of(static), "reason": reason, **({"schema": schema} if schema else {})},
            remedy="correct the row, or the schema of the table in the job",
        )
    refused = refusal(f"cannot read the static table {name}", error)
    refused.evidence = {"table": uri_of(static), **refused.evidence}
    return refused
