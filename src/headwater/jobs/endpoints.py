"""Sources and sinks as values that do not depend on Spark; ``headwater.spark`` reads from and writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    Schema: TypeAlias = str | StructType | None

Options: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Decoding:
    """How a source's raw records become columns.

    ``schema`` is a DDL string or a ``StructType``; ``options`` are those of Spark's JSON or CSV reader, for example
    ``timestampFormat``. With ``allowTrailingComma`` set to ``true``, one comma may follow a JSON object, as in lines
    copied from an array. A record that does not match is counted as malformed and never reaches the job's function.
    """

    schema: Schema = None
    format: str | None = None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Kafka:
    """A Kafka topic. A sink writes each row as a JSON value, keyed by the columns in ``key``."""

    topic: str
    schema: Schema = None
    format: str = "json"
    servers: str = "127.0.0.1:9092"
    key: str | tuple[str, ...] | None = None
    options: Options = field(default_factory=dict)
    decode: Options = field(default_factory=dict)

    kind: ClassVar[str] = "kafka"

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.schema, self.format, self.decode)

    @property
    def key_names(self) -> tuple[str, ...]:
        return _names(self.key)


@dataclass(frozen=True)
class Files:
    """A folder of csv, text, json, orc or parquet files, read oldest first unless ``latestFirst`` is set.

    Without ``format``, a source reads json and a sink writes parquet.
    """

    path: str
    schema: Schema = None
    format: str | None = None
    options: Options = field(default_factory=dict)
    decode: Options = field(default_factory=dict)

    kind: ClassVar[str] = "files"

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.schema, self.format, self.decode)


@dataclass(frozen=True)
class Socket:
    """Lines from a TCP server, for experiments only: they cannot be read again, so a job on a socket cannot resume."""

    host: str = "127.0.0.1"
    port: int = 9994
    schema: Schema = None
    format: str = "text"
    options: Options = field(default_factory=dict)
    decode: Options = field(default_factory=dict)

    kind: ClassVar[str] = "socket"

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.schema, self.format, self.decode)


@dataclass(frozen=True)
class Rate:
    """Spark's generator of rows with ``timestamp`` and ``value``, at a fixed rate."""

    rows_per_second: int = 1
    options: Options = field(default_factory=dict)

    kind: ClassVar[str] = "rate"
    decoding: ClassVar[Decoding] = Decoding()


@dataclass(frozen=True)
class Table:
    """A table in the session's catalog."""

    name: str
    format: str | None = None
    options: Options = field(default_factory=dict)

    kind: ClassVar[str] = "table"
    decoding: ClassVar[Decoding] = Decoding()


@dataclass(frozen=True)
class Console:
    """Spark's console sink: each batch as a table on standard output, untruncated."""

    options: Options = field(default_factory=dict)

    kind: ClassVar[str] = "console"


@dataclass(frozen=True)
class Memory:
    """A table in this process's memory, for SQL queries."""

    name: str

    kind: ClassVar[str] = "memory"
    options: ClassVar[Options] = {}


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL table into which rows are upserted by ``key``, each batch exactly once.

    ``url`` is a libpq URL without Headwater's own options. A struct column such as ``window`` becomes ``window_start``
    and ``window_end``; ``window`` in ``key`` means both.
    """

    url: str = field(repr=False)  # it may contain a password
    table: str
    key: str | tuple[str, ...]

    kind: ClassVar[str] = "postgresql"
    options: ClassVar[Options] = {}

    @property
    def key_names(self) -> tuple[str, ...]:
        return _names(self.key)


def _names(key: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if key is None:
        return ()
    return tuple(part.strip() for part in key.split(",")) if isinstance(key, str) else tuple(key)


@dataclass(frozen=True)
class Static:
    """A table that a job joins its streams with. It is read when the query starts or, if asked for, in every batch."""

    table: Files | Table | Postgres
    refresh: Literal["start", "batch"] = "start"


Source: TypeAlias = Kafka | Files | Socket | Rate | Table
Sink: TypeAlias = Kafka | Files | Table | Console | Memory | Postgres


def inherit_decoding(source: Source, original: Source) -> Source:
    """Return a source that replaces another with the other's schema and decoding options.

    It also inherits the record format, unless it has one of its own.
    """
    if not isinstance(source, Kafka | Files | Socket):
        return source
    decoding = original.decoding
    inherited: dict[str, Any] = {
        "schema": source.schema or decoding.schema,
        "decode": {**decoding.options, **source.decode},
    }
    if not source.format:
        needs_lines = isinstance(source, Kafka | Socket) and decoding.format not in {"json", "csv", "text"}
        inherited["format"] = "json" if needs_lines else decoding.format
    return replace(source, **inherited)
