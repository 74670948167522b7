"""Tables of a catalog that forgets: Spark's in-memory catalog knows nothing of what an earlier process wrote."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headwater.jobs.endpoints import Table

REGISTER = ".headwater-table.json"


def register_table(spark: SparkSession, table: Table) -> None:
    """Make a table that an earlier run left in the warehouse known to this session's catalog."""
    folder = _warehouse_folder(spark, table.name)
    if folder is None or spark.catalog.tableExists(table.name) or not (folder / REGISTER).exists():
        return
    known = json.loads((folder / REGISTER).read_text())
    schema = StructType.fromJson(known["schema"])
    spark.catalog.createTable(table.name, path=str(folder), source=known["format"], schema=schema)


def prepare_table(spark: SparkSession, table: Table, schema: StructType) -> None:
    """A table to write into: the one that is there, or a new one in the warehouse that later runs will find again."""
    register_table(spark, table)
    folder = _warehouse_folder(spark, table.name)
    if folder is None or spark.catalog.tableExists(table.name):
        return
    format_name = table.format or "parquet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REGISTER).write_text(json.dumps({"format": format_name, "schema": schema.jsonValue()}))
    spark.catalog.createTable(table.name, path=str(folder), source=format_name, schema=schema)


def _warehouse_folder(spark: SparkSession, name: str) -> Path | None:
    """Where the session's own in-memory catalog would keep a table; None where a real catalog is in charge."""
    parts = name.split(".")
    remembers = spark.conf.get("spark.sql.catalogImplementation") == "hive" or len(parts) > 2
    warehouse = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")
    if remembers or "://" in warehouse:
        return None
    database = parts[0] if len(parts) == 2 else "default"
    return Path(warehouse, parts[-1]) if database == "default" else Path(warehouse, f"{database}.db", parts[-1])
