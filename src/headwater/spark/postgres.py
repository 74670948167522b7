"""Upserts to PostgreSQL. A batch's rows and its id are written in one transaction, so it is applied exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from headwater.core.errors import JobRefused, ServiceUnreachable, redact
from headwater.core.times import EPOCH
from headwater.jobs.endpoints import Postgres

APPLIED_BATCHES = sql.Identifier("headwater_batches")
QUERY_ID_PROPERTY = "sql.streaming.queryId"
COLUMN_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
# A NUL in JSON, after any number of escaped backslashes.
ESCAPED_NUL = r"(?<!\\)((?:\\\\)*)\\u0000"


@dataclass(frozen=True)
class TableColumn:
    """A column of the table and the path of the Spark column that fills it, as JSON if that one is nested."""

    name: str
    type: str
    path: str
    as_json: bool = False

    def expression(self) -> Column:
        """Return the column as it is collected. PostgreSQL cannot store a NUL, and it must not stop the stream."""
        column = F.col(self.path)
        if self.as_json:
            column = F.regexp_replace(F.to_json(column), ESCAPED_NUL, "$1")
        elif self.type == "text":
            column = F.replace(column, F.lit("\0"), F.lit(""))
        elif self.type == "timestamptz":
            # A datetime of PySpark has no time zone: it is in that of the driver, where an hour may occur twice.
            column = F.unix_micros(column)
        return column.alias(self.name)

    def value(self, collected: Any) -> Any:
        """Return what is copied to the table for a collected value."""
        if collected is None or self.type != "timestamptz":
            return collected
        return EPOCH + timedelta(microseconds=collected)


def table_columns(schema: StructType, prefix: str = "", path: str = "") -> list[TableColumn]:
    """Return the table's columns. Structs are flattened (``window_start``); arrays and maps become ``jsonb``."""
    columns: list[TableColumn] = []
    for field in schema.fields:
        name, place = prefix + field.name, f"{path}`{field.name}`"
        if isinstance(field.dataType, StructType):
            columns += table_columns(field.dataType, f"{name}_", f"{place}.")
        else:
            kind = _column_type(field.dataType)
            columns.append(TableColumn(name, kind or "jsonb", place, as_json=kind is None))
    return columns


def _column_type(spark_type: DataType) -> str | None:
    if isinstance(spark_type, DecimalType):
        return f"numeric({spark_type.precision},{spark_type.scale})"
    return COLUMN_TYPES.get(spark_type.simpleString())


def key_columns(sink: Postgres, columns: Sequence[TableColumn]) -> list[str]:
    """Return the columns of the key; the name of a struct means all of its fields."""
    names = [column.name for column in columns]
    chosen: list[str] = []
    for part in sink.key_names:
        fields = [column.name for column in columns if column.path.startswith(f"`{part}`.")]
        matching = [part] if part in names else fields
        if not matching:
            raise JobRefused(
                "unknown-column",
                f"the key of table {sink.table} names {part!r}, which the job's result does not have",
                evidence={"columns": ", ".join(names)},
                remedy="name one or more of these columns in key=",
            )
        chosen += matching
    return chosen


def connect(sink: Postgres) -> psycopg.Connection:
    """Connect to the sink's server, with UTC as the time zone."""
    try:
        connection = psycopg.connect(sink.url, connect_timeout=5)
    except psycopg.OperationalError as error:
        raise ServiceUnreachable(
            "postgres-unreachable",
            "cannot connect to PostgreSQL",
            evidence={"server": redact(sink.url), "reason": " ".join(str(error).split())},
            remedy="check the address, user and password with: psql " + redact(sink.url),
        ) from error
    connection.execute("SET TIME ZONE 'UTC'")
    return connection


def prepare(sink: Postgres, schema: StructType) -> None:
    """Create what is missing: the table with its key, and the table that records the last applied batch."""
    columns = table_columns(schema)
    key = key_columns(sink, columns)
    definitions = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type)) for column in columns
    )
    with connect(sink) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(7237198)")  # another job may create the same tables now
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, {} ({}))").format(
                identifier(sink.table), definitions, _unique(connection), _names(key)
            )
        )
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (query_id text, target text, batch_id bigint NOT NULL, "
                "generation bigint NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), "
                "PRIMARY KEY (query_id, target))"
            ).format(APPLIED_BATCHES)
        )
        _check_table(connection, sink, [column.name for column in columns], key)


def _unique(connection: psycopg.Connection) -> sql.Composable:
    """Return a constraint that accepts null keys. Servers before 15 have none, so there a null key stops the stream."""
    return sql.SQL("UNIQUE NULLS NOT DISTINCT" if connection.info.server_version >= 150_000 else "PRIMARY KEY")


def _check_table(connection: psycopg.Connection, sink: Postgres, names: Sequence[str], key: Sequence[str]) -> None:
    """Refuse an existing table that has other columns or no unique index on the key."""
    trial = sql.SQL("EXPLAIN INSERT INTO {0} ({1}) SELECT {1} FROM {0} ON CONFLICT ({2}) DO NOTHING")
    try:
        connection.execute(trial.format(identifier(sink.table), _names(names), _names(key)))
    except psycopg.ProgrammingError as error:
        raise JobRefused(
            "table-does-not-fit",
            f"table {sink.table} does not match the rows of this job",
            evidence={"reason": error.diag.message_primary, "columns": ", ".join(names)},
            remedy=f"CREATE UNIQUE INDEX ON {sink.table} ({', '.join(key)});   or use another table",
        ) from error


def upsert_batch(sink: Postgres, frame: DataFrame, batch_id: int, generation: int = 0) -> None:
    """Apply one micro-batch. If it was applied before, only run it, so that Spark writes its state.

    ``generation`` counts the changes made to the checkpoint: a batch that was rewound is applied again.
    """
    query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise ValueError("upsert_batch must be called inside a streaming query")
    columns = table_columns(frame.schema)
    flat = frame.select(*[column.expression() for column in columns])
    last = sql.SQL("SELECT batch_id, generation FROM {} WHERE query_id = %s AND target = %s FOR UPDATE").format(
        APPLIED_BATCHES
    )
    record_batch = sql.SQL(
        "INSERT INTO {} (query_id, target, batch_id, generation) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (query_id, target) DO UPDATE "
        "SET batch_id = EXCLUDED.batch_id, generation = EXCLUDED.generation, applied_at = now()"
    ).format(APPLIED_BATCHES)
    with connect(sink) as connection:
        if connection.execute(last, (query_id, sink.table)).fetchone() == (batch_id, generation):
            flat.write.format("noop").mode("overwrite").save()
            return
        _copy_and_merge(connection, sink, columns, flat)
        connection.execute(record_batch, (query_id, sink.table, batch_id, generation))


def _copy_and_merge(
    connection: psycopg.Connection, sink: Postgres, columns: Sequence[TableColumn], flat: DataFrame
) -> None:
    names = [column.name for column in columns]
    key = key_columns(sink, columns)
    staging = sql.Identifier("headwater_incoming")
    connection.execute(
        sql.SQL(
            "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {}, 0::bigint AS headwater_order FROM {} LIMIT 0"
        ).format(staging, _names(names), identifier(sink.table))
    )
    with (
        connection.cursor() as cursor,
        cursor.copy(sql.SQL("COPY {} ({}, headwater_order) FROM STDIN").format(staging, _names(names))) as copy,
    ):
        for order, row in enumerate(flat.toLocalIterator(prefetchPartitions=True)):
            values = [column.value(collected) for column, collected in zip(columns, row, strict=True)]
            copy.write_row((*values, order))
    rest = [name for name in names if name not in key]
    action = (
        sql.SQL("DO UPDATE SET {}").format(
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in rest)
        )
        if rest
        else sql.SQL("DO NOTHING")
    )
    # If a batch has several rows with one key, the last one wins, as it would row by row.
    connection.execute(
        sql.SQL(
            "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({key}) {names} FROM {staging} "
            "ORDER BY {key}, headwater_order DESC ON CONFLICT ({key}) {action}"
        ).format(table=identifier(sink.table), names=_names(names), key=_names(key), staging=staging, action=action)
    )


def identifier(table: str) -> sql.Composable:
    """Return the quoted name of a table, which may include that of its schema."""
    return sql.Identifier(*table.split("."))


def _names(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
