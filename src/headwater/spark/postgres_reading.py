"""PostgreSQL tables as static DataFrames, read by Spark's JDBC source with the login that libpq uses."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from headwater.core.errors import JobRefused, ServiceUnreachable, redact
from headwater.jobs.endpoints import Postgres
from headwater.spark.postgres import connect, identifier

DRIVER = "org.postgresql.Driver"
TLS_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
ROWS_PER_FETCH = "10000"


def read_table(spark: SparkSession, table: Postgres) -> DataFrame:
    """Return the rows of a table. Spark queries the server each time that it uses them."""
    return spark.read.format("jdbc").options(**jdbc_options(table)).load()


def require_table(table: Postgres) -> None:
    """Raise if the server cannot be reached, or the table cannot be read."""
    jdbc_options(table)


def jdbc_options(table: Postgres) -> dict[str, str]:
    """Return how Spark connects: as libpq does, whose password may come from the environment or from ``~/.pgpass``."""
    with connect(table) as connection:
        name = identifier(table.table)
        try:
            connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(name))
        except psycopg.Error as error:
            raise ServiceUnreachable(
                "no-table",
                f"cannot read the table {table.table} from PostgreSQL",
                evidence={"server": redact(table.url), "reason": error.diag.message_primary or str(error)},
                remedy=f"check the table with: psql {redact(table.url)} -c '\\d {table.table}'",
            ) from error
        used = {one.keyword.decode(): one.val.decode() for one in connection.pgconn.info if one.val}
        shown = name.as_string(connection)
    if used.get("host", "").startswith("/"):
        raise JobRefused(
            "postgres-socket",
            "Spark cannot read from PostgreSQL through a Unix socket",
            evidence={"server": redact(table.url), "socket": used["host"]},
            remedy="postgresql://user@127.0.0.1:5432/DATABASE",
        )
    host = used.get("host", "localhost")
    address = f"[{host}]" if ":" in host else host
    login = {name: used[name] for name in ("user", "password", *TLS_OPTIONS) if name in used}
    return {
        "url": f"jdbc:postgresql://{address}:{used.get('port', '5432')}/{quote(used['dbname'], safe='')}",
        "driver": DRIVER,
        "dbtable": shown,
        "fetchsize": ROWS_PER_FETCH,
        **login,
    }
