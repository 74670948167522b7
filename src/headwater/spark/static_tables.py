"""Static tables that a job joins its streams with."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Decoding, Files, Static, Table
from headwater.spark.decoding import parse_schema
from headwater.spark.failures import explained
from headwater.spark.tables import register_table


def read_static(spark: SparkSession, static: Static) -> DataFrame:
    """Return the rows of a static table. A row that does not match its schema fails the query."""
    table = static.table
    with explained(f"cannot read the static table from {table.kind}"):
        match table:
            case Files():
                return _files(spark, table)
            case Table():
                return _table(spark, table)
    raise JobRefused("static-table", f"{table.kind} cannot be a static table yet", remedy="use files: or table:")


def _files(spark: SparkSession, table: Files) -> DataFrame:
    format_name = table.format or "json"
    reader = spark.read.format(format_name).options(**{**table.options, **table.decode})
    if table.schema is not None or format_name in {"json", "csv"}:
        schema = parse_schema(spark, Decoding(table.schema, format_name, table.decode))
        reader = reader.schema(schema).option("mode", "FAILFAST")
    return reader.load(table.path)


def _table(spark: SparkSession, table: Table) -> DataFrame:
    register_table(spark, table)
    if not spark.catalog.tableExists(table.name):
        raise ServiceUnreachable(
            "no-table",
            f"table {table.name} does not exist",
            evidence={"warehouse": spark.conf.get("spark.sql.warehouse.dir")},
            remedy=f"headwater run JOB --sink table:{table.name}   (creates it)",
        )
    return spark.read.options(**table.options).table(table.name)
