"""Tables of a catalog that forgets: Spark's in-memory catalog knows nothing of what an earlier process wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headwater.jobs.endpoints import Table

REGISTER = ".headwater-table.json"


def register_table(spark: SparkSession, table: Table) -> None:
    """Make a table that an earlier run left in the warehouse known to this session's catalog."""
    folder = _warehouse_folder(spark, table.name)
    known = _registered(folder)
    if folder and known and not spark.catalog.tableExists(table.name):
        _create(spark, table.name, folder, known["format"], StructType.fromJson(known["schema"]))


def prepare_table(spark: SparkSession, table: Table, schema: StructType) -> str | None:
    """A table to write into: the one that is there, or a new one in the warehouse that later runs will find again.

    Gives the table's format, where it is known: Spark wants to be told again.
    """
    register_table(spark, table)
    folder = _warehouse_folder(spark, table.name)
    if folder is None or spark.catalog.tableExists(table.name):
        return table.format or (_registered(folder) or {}).get("format")
    format_name = table.format or "parquet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REGISTER).write_text(json.dumps({"format": format_name, "schema": schema.jsonValue()}))
    _create(spark, table.name, folder, format_name, schema)
    return format_name


def table_folder(spark: SparkSession, table: Table) -> str | None:
    """Where a table's files are, as its catalog says; None when it does not say."""
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table.name}").where("col_name = 'Location'").first()
    return described["data_type"].removeprefix("file:") if described else None


def _registered(folder: Path | None) -> dict[str, Any] | None:
    if folder is None or not (folder / REGISTER).exists():
        return None
    known: dict[str, Any] = json.loads((folder / REGISTER).read_text())
    return known


def _create(spark: SparkSession, name: str, folder: Path, format_name: str, schema: StructType) -> None:
    database, dot, _ = name.partition(".")
    if dot:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.catalog.createTable(name, path=str(folder), source=format_name, schema=schema)
    spark.catalog.refreshTable(name)  # createTable has looked into the folder, and would remember that it was empty


def _warehouse_folder(spark: SparkSession, name: str) -> Path | None:
    """Where the session's own in-memory catalog would keep a table; None where a real catalog is in charge."""
    parts = name.split(".")
    remembers = spark.conf.get("spark.sql.catalogImplementation") == "hive" or len(parts) > 2
    warehouse = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")
    if remembers or "://" in warehouse:
        return None
    database = parts[0] if len(parts) == 2 else "default"
    return Path(warehouse, parts[-1]) if database == "default" else Path(warehouse, f"{database}.db", parts[-1])
