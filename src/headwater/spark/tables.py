"""Tables in Spark's in-memory catalog, which does not know the tables that earlier processes wrote.

A file in each table's folder records its format and schema, so that later runs can register the table again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headwater.core.errors import ServiceUnreachable
from headwater.jobs.endpoints import Table

DESCRIPTION = ".headwater-table.json"


def register_table(spark: SparkSession, table: Table) -> None:
    """Add a table that an earlier run left in the warehouse to this session's catalog."""
    folder = _warehouse_folder(spark, table.name)
    known = _description(folder)
    if folder and known and not spark.catalog.tableExists(table.name):
        _create(spark, table.name, folder, known["format"], StructType.fromJson(known["schema"]))


def require_table(spark: SparkSession, table: Table, *, read_as: str | None = None) -> None:
    """Add a table to the catalog, or raise ``ServiceUnreachable``; ``read_as`` is the name that the job gives it."""
    register_table(spark, table)
    if not spark.catalog.tableExists(table.name):
        raise ServiceUnreachable(
            "no-table",
            f"table {table.name}{f', which the job reads as {read_as},' if read_as else ''} does not exist",
            evidence={"warehouse": spark.conf.get("spark.sql.warehouse.dir")},
            remedy=f"headwater run JOB --sink table:{table.name}   (creates it)",
        )


def prepare_table(spark: SparkSession, table: Table, schema: StructType) -> str | None:
    """Create a table in the warehouse unless it exists. Return its format if known: Spark needs it to write."""
    register_table(spark, table)
    folder = _warehouse_folder(spark, table.name)
    if folder is None or spark.catalog.tableExists(table.name):
        return table.format or (_description(folder) or {}).get("format")
    format_name = table.format or "parquet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION).write_text(json.dumps({"format": format_name, "schema": schema.jsonValue()}))
    _create(spark, table.name, folder, format_name, schema)
    return format_name


def add_columns(spark: SparkSession, table: Table, columns: Mapping[str, str]) -> None:
    """Add columns, given as names and DDL types, to the end of an existing table."""
    spark.sql(
        f"ALTER TABLE {table.name} ADD COLUMNS ({', '.join(f'`{name}` {kind}' for name, kind in columns.items())})"
    )
    folder = _warehouse_folder(spark, table.name)
    known = _description(folder)
    if folder and known:
        schema = spark.table(table.name).schema.jsonValue()
        (folder / DESCRIPTION).write_text(json.dumps({**known, "schema": schema}))


def table_folder(spark: SparkSession, table: Table) -> str | None:
    """Return the folder of a table's files; None if the catalog does not show it."""
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table.name}").where("col_name = 'Location'").first()
    return described["data_type"].removeprefix("file:") if described else None


def _description(folder: Path | None) -> dict[str, Any] | None:
    if folder is None or not (folder / DESCRIPTION).exists():
        return None
    known: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
    return known


def _create(spark: SparkSession, name: str, folder: Path, format_name: str, schema: StructType) -> None:
    database, dot, _ = name.partition(".")
    if dot:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.catalog.createTable(name, path=str(folder), source=format_name, schema=schema)
    spark.catalog.refreshTable(name)  # createTable caches the listing of a folder that is still empty


def _warehouse_folder(spark: SparkSession, name: str) -> Path | None:
    """Return where the session's in-memory catalog would keep a table; None if a persistent catalog manages it."""
    parts = name.split(".")
    persistent = spark.conf.get("spark.sql.catalogImplementation") == "hive" or len(parts) > 2
    warehouse = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")
    if persistent or "://" in warehouse:
        return None
    database = parts[0] if len(parts) == 2 else "default"
    return Path(warehouse, parts[-1]) if database == "default" else Path(warehouse, f"{database}.db", parts[-1])
