"""Sources and sinks as values that do not depend on Spark; ``headwater.spark`` reads from and writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headwater.formats.schema import RecordSchema

    Schema: TypeAlias = str | bytes | StructType | RecordSchema | None

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
    registry: str | None = field(default=None, repr=False)  # it may contain a password
    subject: str | None = None
    message: str | None = None
    keep: tuple[tuple[str, str], ...] = ()
    """Columns of Kafka that are added to each row, with the names that they get."""


KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class Kafka:
    """A Kafka topic.

    The values of a source are ``json``, ``csv`` or ``text`` with ``schema`` as columns; ``avro`` or ``protobuf`` with a
    schema file in ``schema``, or a schema registry; or ``raw``: Spark's own columns, nothing decoded. ``keep`` adds
    columns of Kafka to decoded rows, for example ``("key", "timestamp:sent_at")``.

    A sink writes each row as ``json`` or ``avro``, keyed by the columns in ``key`` and with the headers that the column
    ``headers`` holds. With ``raw`` the job's result has Kafka's own columns.

    ``registry`` is the URL of a Confluent-compatible schema registry, ``subject`` the name of the schema there (default:
    the topic with ``-value``), and ``message`` the Protobuf message.
    """

    topic: str
    schema: Schema = None
    format: str = "json"
    servers: str = "127.0.0.1:9092"
    key: str | tuple[str, ...] | None = None
    options: Options = field(default_factory=dict)
    decode: Options = field(default_factory=dict)
    registry: str | None = field(default=None, repr=False)  # it may contain a password
    subject: str | None = None
    message: str | None = None
    keep: str | tuple[str, ...] = ()
    headers: str | None = None

    kind: ClassVar[str] = "kafka"

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            self.schema, self.format, self.decode, self.registry, self.subject_name, self.message, self.kept_columns
        )

    @property
    def subject_name(self) -> str | None:
        """The subject in the schema registry; None if several topics are read and none is given."""
        several = {"subscribe", "subscribePattern", "assign"} & self.options.keys()
        return self.subject or (f"{self.topic}-value" if self.topic and not several else None)

    @property
    def schema_file(self) -> str | None:
        """The file of an Avro or Protobuf schema; None if the schema is text or comes from a registry."""
        is_file = isinstance(self.schema, str) and self.schema.lstrip()[:1] not in ("{", "[", '"')
        return str(self.schema) if is_file and self.format in ("avro", "protobuf") else None

    @property
    def kept_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of Kafka that are added to each row, with the names that they get."""
        pairs = [name.partition(":") for name in _names(self.keep or None)]
        return tuple((name.strip(), alias.strip() or name.strip()) for name, _, alias in pairs)

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
    """A PostgreSQL table into which rows are upserted by ``key``, each batch exactly once; as a ``Static`` table, its rows.

    ``url`` is a libpq URL without Headwater's own options. A struct column such as ``window`` becomes ``window_start``
    and ``window_end``; ``window`` in ``key`` means both.
    """

    url: str = field(repr=False)  # it may contain a password
    table: str
    key: str | tuple[str, ...] = ()

    kind: ClassVar[str] = "postgresql"
    options: ClassVar[Options] = {}

    @property
    def key_names(self) -> tuple[str, ...]:
        return _names(self.key)


@dataclass(frozen=True)
class Delta:
    """A Delta table, by the path or URL of its folder.

    A sink appends rows or, in complete mode, replaces all of them. With ``merge_on``, rows are upserted by the values of
    these columns. Each batch is applied exactly once. If the sink creates the table, ``partition_by`` partitions it.

    A source has the columns of the table; with ``schema``, ``check`` and tests know them before there is one.
    ``options`` are those of Delta's reader or writer, such as ``startingVersion``.
    """

    path: str
    partition_by: str | tuple[str, ...] = ()
    merge_on: str | tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    schema: Schema = None

    kind: ClassVar[str] = "delta"

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.schema)

    @property
    def partition_names(self) -> tuple[str, ...]:
        return _names(self.partition_by)

    @property
    def merge_names(self) -> tuple[str, ...]:
        return _names(self.merge_on)


@dataclass(frozen=True)
class Iceberg:
    """An Iceberg table, named ``catalog.database.table``.

    A sink appends rows or, in complete mode, replaces all of them. Each batch is applied exactly once. If the sink creates
    the table, ``partition_by`` partitions it. ``catalog`` has the settings of the catalog, for example
    ``{"type": "hadoop", "warehouse": "PATH"}``, unless the session has them. ``options`` are those of Iceberg's reader or
    writer. ``schema`` has the columns of a source, for tests.
    """

    table: str
    partition_by: str | tuple[str, ...] = ()
    catalog: Options = field(default_factory=dict, repr=False)  # it may contain a password
    options: Options = field(default_factory=dict)
    schema: Schema = None

    kind: ClassVar[str] = "iceberg"

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.schema)

    @property
    def partition_names(self) -> tuple[str, ...]:
        return _names(self.partition_by)

    @property
    def catalog_name(self) -> str:
        return self.table.partition(".")[0]

    @property
    def absolute_catalog(self) -> dict[str, str]:
        """The settings of the catalog, with an absolute path of its warehouse: other commands run in other folders."""
        place = self.catalog.get("warehouse")
        if place is None or ":" in place:
            return dict(self.catalog)
        return {**self.catalog, "warehouse": str(Path(place).absolute())}


def _names(key: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if not key:
        return ()
    return tuple(part.strip() for part in key.split(",")) if isinstance(key, str) else tuple(key)


@dataclass(frozen=True)
class Static:
    """A table that a job joins its streams with: as it is when the query starts or, if asked for, in every batch.

    A row of a json or csv file that does not match the schema fails the query.
    """

    table: Files | Table | Postgres | Delta
    refresh: Literal["start", "batch"] = "start"

    def __post_init__(self) -> None:
        if self.refresh not in {"start", "batch"}:
            raise ValueError(f'refresh={self.refresh!r} is not "start" or "batch"')


Source: TypeAlias = Kafka | Files | Socket | Rate | Table | Delta | Iceberg
Sink: TypeAlias = Kafka | Files | Table | Console | Memory | Postgres | Delta | Iceberg


LINE_FORMATS = ("csv", "text", "json")
KAFKA_FORMATS = (*LINE_FORMATS, "raw", "avro", "protobuf")


def inherit_decoding(source: Source, original: Source) -> Source:
    """Return a source that replaces another with the other's schema and decoding options.

    It also inherits the record format, unless it has one of its own. A schema of Avro or Protobuf is inherited only by
    a topic with the same format: columns of text, and columns of such a schema, say nothing about each other.
    """
    if isinstance(source, Delta | Iceberg) and isinstance(original, Delta | Iceberg):
        return replace(source, schema=source.schema or original.schema)
    if not isinstance(source, Kafka | Files | Socket):
        return source
    decoding = original.decoding
    form = source.format or _inherited_format(source, decoding.format)
    inherited: dict[str, Any] = {"format": form, "decode": {**decoding.options, **source.decode}}
    if isinstance(source, Kafka) and isinstance(original, Kafka):
        inherited["keep"] = source.keep or original.keep
    if _schema_language(form) == _schema_language(decoding.format):
        inherited["schema"] = source.schema or decoding.schema
        if isinstance(source, Kafka) and isinstance(original, Kafka) and form in ("avro", "protobuf"):
            inherited |= _inherited_registry(source, original)
    return replace(source, **inherited)


def _inherited_registry(source: Kafka, original: Kafka) -> dict[str, Any]:
    names = {"subject": source.subject or original.subject, "message": source.message or original.message}
    if source.registry and original.registry and _server(source.registry) == _server(original.registry):
        return {**names, "registry": original.registry}  # it has the login, which a recorded URI lacks
    if source.registry:  # another registry has other schemas
        return {**names, "schema": source.schema}
    return {**names, "registry": None if source.schema else original.registry}


def _server(registry: str) -> str:
    return registry.partition("://")[2].rpartition("@")[2].rstrip("/")


def _inherited_format(source: Kafka | Files | Socket, form: str | None) -> str | None:
    known = KAFKA_FORMATS if isinstance(source, Kafka) else LINE_FORMATS
    if isinstance(source, Files):
        return "json" if form in KAFKA_FORMATS and form not in LINE_FORMATS else form
    return form if form in known else "json"


def _schema_language(form: str | None) -> str:
    return form if form in ("avro", "protobuf") else "columns"
