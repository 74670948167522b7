"""Sources and sinks as URIs, with which the command line replaces those of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from headwater.core.errors import REDACTED, UsageProblem, redact
from headwater.core.uris import FORMS, Uri, parse_uri, shown_value
from headwater.jobs.endpoints import (
    KAFKA_FORMATS,
    LINE_FORMATS,
    Console,
    Delta,
    Files,
    Iceberg,
    Kafka,
    Memory,
    Options,
    Postgres,
    Rate,
    Sink,
    Socket,
    Source,
    Static,
    Table,
    inherit_decoding,
)

SOURCES = ("kafka", "files", "socket", "rate", "table", "delta", "iceberg")
STATIC_TABLES = ("files", "table", "postgresql", "delta")
SINKS = ("console", "memory", "files", "kafka", "table", "postgresql", "delta", "iceberg")
# Options of an iceberg URI with this prefix are settings of the catalog.
CATALOG = "catalog."
FILE_FORMATS = ("csv", "text", "json", "orc", "parquet")
SINK_FORMATS = ("json", "avro", "raw")
# Options for decoding records from any source, in lower case: those of Spark's JSON and CSV parsers, and Headwater's own
# allowTrailingComma.
DECODE_OPTIONS = {
    "allowbackslashescapinganycharacter",
    "allowcomments",
    "allownonnumericnumbers",
    "allownumericleadingzeros",
    "allowsinglequotes",
    "allowtrailingcomma",
    "allowunquotedcontrolchars",
    "allowunquotedfieldnames",
    "chartoescapequoteescaping",
    "comment",
    "dateformat",
    "delimiter",
    "emptyvalue",
    "enabledatetimeparsingfallback",
    "encoding",
    "enforceschema",
    "escape",
    "header",
    "ignoreleadingwhitespace",
    "ignoretrailingwhitespace",
    "linesep",
    "locale",
    "maxcharspercolumn",
    "maxcolumns",
    "multiline",
    "nanvalue",
    "negativeinf",
    "nullvalue",
    "positiveinf",
    "prefersdecimal",
    "primitivesasstring",
    "quote",
    "sep",
    "timestampformat",
    "timestampntzformat",
    "timezone",
    "unescapedquotehandling",
}


def source_from_uri(text: str, original: Source) -> Source:
    """Return the source of a URI. It decodes records as the original source, which it replaces, does."""
    uri = parse_uri(text)
    match uri.scheme:
        case "kafka":
            form, options, decode = _line_options(uri, KAFKA_FORMATS)
            records, options = _fields(options, "schema", "registry", "subject", "message", "keep")
            source: Source = Kafka(
                uri.path, servers=uri.address, format=form, options=options, decode=decode, **records
            )
        case "files":
            source = replace(_files(uri), decode=_decode_options(uri.options))
        case "socket":
            form, options, decode = _line_options(uri, LINE_FORMATS)
            source = Socket(uri.host or "", uri.port or 0, format=form, options=options, decode=decode)
        case "rate":
            rest = dict(uri.options)
            source = Rate(_row_count(uri, rest.pop("rowsPerSecond", "1")), options=rest)
        case "table":
            source = _table(uri)
        case "delta":
            own, options = _fields(uri.options, "partition_by", "merge_on")
            source = Delta(uri.path, options=options, **own)
        case "iceberg":
            source = _iceberg(uri, original)
        case _:
            raise _wrong_role(uri, "source", SOURCES)
    return inherit_decoding(source, original)


def sink_from_uri(text: str, original: Sink) -> Sink:
    """Return the sink of a URI. It keeps what the original one of its kind has and the URI does not name.

    For Kafka these are the key, headers and format, for Delta and Iceberg the partition columns and the merge key.
    """
    uri = parse_uri(text)
    match uri.scheme:
        case "kafka":
            return _kafka_sink(uri, original)
        case "files":
            return _files(uri)
        case "table":
            return _table(uri)
        case "console":
            return Console(options=uri.options)
        case "memory":
            return Memory(uri.path)
        case "postgresql":
            return _postgres(uri, needs_key=True)
        case "delta":
            own, options = _fields(uri.options, "partition_by", "merge_on")
            known = original if isinstance(original, Delta) else Delta(uri.path)
            return replace(known, path=uri.path, options=options, **own)
        case "iceberg":
            return _iceberg(uri, original)
        case _:
            raise _wrong_role(uri, "sink", SINKS)


def static_from_uri(text: str, original: Static) -> Static:
    """Return the static table of a URI, with the schema of the original one and read as often."""
    uri = parse_uri(text)
    match uri.scheme:
        case "files":
            table: Files | Table | Postgres | Delta = replace(_files(uri), decode=_decode_options(uri.options))
            if isinstance(table, Files) and isinstance(original.table, Files):
                table = replace(
                    table,
                    schema=original.table.schema,
                    format=table.format or original.table.format,
                    decode={**original.table.decode, **table.decode},
                )
        case "table":
            table = _table(uri)
        case "postgresql":
            table = _postgres(uri)
        case "delta":
            known = original.table.schema if isinstance(original.table, Delta) else None
            table = Delta(uri.path, options=uri.options, schema=known)
        case _:
            raise _wrong_role(uri, "static table", STATIC_TABLES)
    return replace(original, table=table)


def inputs_from_uris(texts: Mapping[str, str], inputs: Mapping[str, Source | Static]) -> dict[str, Source | Static]:
    """Return the sources and static tables of URIs, by the names of those that they replace."""
    changed: dict[str, Source | Static] = {}
    for name, text in texts.items():
        original = inputs[name]
        changed[name] = (
            static_from_uri(text, original) if isinstance(original, Static) else source_from_uri(text, original)
        )
    return changed


def sources_text(inputs: Mapping[str, Source | Static]) -> str:
    """Return the URIs of a job's inputs on one line, with their names if they have any."""
    return ", ".join(f"{name}={uri_of(one)}" if name else uri_of(one) for name, one in inputs.items())


def uri_of(endpoint: Source | Sink | Static) -> str:
    """Return the URI of a source, sink or static table without secrets, for records, messages and lists."""
    match endpoint:
        case Static():
            return uri_of(endpoint.table)
        case Kafka():
            query = _query({**_kafka_parameters(endpoint), **endpoint.options})
            return redact(f"kafka://{endpoint.servers}/{endpoint.topic}" + query)
        case Files():
            chosen = {"format": endpoint.format} if endpoint.format else {}
            return redact(f"files:{_quoted(endpoint.path)}" + _query({**chosen, **endpoint.options}))
        case Socket():
            return f"socket://{endpoint.host}:{endpoint.port}"
        case Rate():
            return "rate:" + _query({"rowsPerSecond": str(endpoint.rows_per_second), **endpoint.options})
        case Table():
            return f"table:{endpoint.name}"
        case Console():
            return "console:"
        case Memory():
            return f"memory:{endpoint.name}"
        case Postgres():
            base, _, rest = endpoint.url.partition("?")
            key = {"key": ",".join(endpoint.key_names)} if endpoint.key_names else {}
            return redact(base + _query({"table": endpoint.table, **key}) + (f"&{rest}" if rest else ""))
        case Delta():
            columns = {"partition_by": ",".join(endpoint.partition_names), "merge_on": ",".join(endpoint.merge_names)}
            named = {name: value for name, value in columns.items() if value}
            return redact(f"delta:{_quoted(endpoint.path)}" + _query({**named, **endpoint.options}))
        case Iceberg():
            partitions = {"partition_by": ",".join(endpoint.partition_names)} if endpoint.partition_names else {}
            catalog = {f"{CATALOG}{name}": value for name, value in endpoint.catalog.items()}
            return redact(f"iceberg:{endpoint.table}" + _query({**partitions, **catalog, **endpoint.options}))


def _quoted(path: str) -> str:
    return path.replace("%", "%25")


def _query(options: Options) -> str:
    return "?" + "&".join(f"{name}={shown_value(name, value)}" for name, value in options.items()) if options else ""


def _files(uri: Uri) -> Files:
    rest = dict(uri.options)
    return Files(uri.path, format=_format(uri, rest.pop("format", None), FILE_FORMATS), options=rest)


def _kafka_sink(uri: Uri, original: Sink) -> Kafka:
    own, options = _fields(uri.options, "format", "key", "headers", "schema", "registry", "subject")
    form = _format(uri, own.pop("format", None), SINK_FORMATS)
    inherited: dict[str, Any] = {}
    if isinstance(original, Kafka):
        inherited = {"key": original.key, "headers": original.headers}
        if form is None and original.format == "avro":
            inherited |= {name: getattr(original, name) for name in ("schema", "registry", "subject")}
        form = form or original.format
    return Kafka(uri.path, servers=uri.address, options=options, format=form or "json", **{**inherited, **own})


def _fields(options: Options, *names: str) -> tuple[dict[str, Any], Options]:
    """Return the options that are fields of the endpoint, and the others."""
    own = {name: value for name, value in options.items() if name in names}
    return own, {name: value for name, value in options.items() if name not in names}


def _kafka_parameters(endpoint: Kafka) -> Options:
    """Return the fields of a topic as options of its URI, without those that have their default."""
    fields = {
        "format": endpoint.format if endpoint.format != "json" else None,
        "key": ",".join(endpoint.key_names),
        "headers": endpoint.headers,
        "schema": endpoint.schema_file,
        "registry": endpoint.registry,
        "subject": endpoint.subject,
        "message": endpoint.message,
        "keep": ",".join(name if name == alias else f"{name}:{alias}" for name, alias in endpoint.kept_columns),
    }
    return {name: value for name, value in fields.items() if value}


def _line_options(uri: Uri, formats: tuple[str, ...]) -> tuple[str, Options, Options]:
    """Return the format (empty if the URI has none), the options of the source, and those of the records' parser."""
    decode = _decode_options(uri.options)
    rest = {name: value for name, value in uri.options.items() if name not in decode}
    return _format(uri, rest.pop("format", None), formats) or "", rest, decode


def _decode_options(options: Options) -> Options:
    return {name: value for name, value in options.items() if name.lower() in DECODE_OPTIONS}


def _format(uri: Uri, name: str | None, known: tuple[str, ...]) -> str | None:
    if name is None or name in known:
        return name
    raise UsageProblem(
        "bad-uri",
        f"invalid {uri.scheme} URI: format {name!r} is not supported",
        evidence={"found": uri.redacted(), "supported": ", ".join(known)},
        remedy=f"use the form {FORMS[uri.scheme]}",
    )


def _table(uri: Uri) -> Table:
    rest = dict(uri.options)
    return Table(uri.path, format=rest.pop("format", None), options=rest)


def _postgres(uri: Uri, *, needs_key: bool = False) -> Postgres:
    rest = dict(uri.options)
    table, key = rest.pop("table"), rest.pop("key", "")
    if needs_key and not key:
        raise UsageProblem(
            "bad-uri",
            "invalid postgresql URI: the option key is missing, and upserts need it",
            evidence={"found": uri.redacted()},
            remedy=f"use the form {FORMS['postgresql']}",
        )
    login = quote(uri.user or "", safe="") + (f":{quote(uri.password, safe='')}" if uri.password else "")
    address = f"{login}@{uri.address}" if login else uri.address
    return Postgres(f"postgresql://{address}/{quote(uri.path)}{_query(rest)}", table, key)


def _iceberg(uri: Uri, original: Source | Sink) -> Iceberg:
    own, rest = _fields(uri.options, "partition_by")
    catalog = {name.removeprefix(CATALOG): value for name, value in rest.items() if name.startswith(CATALOG)}
    options = {name: value for name, value in rest.items() if not name.startswith(CATALOG)}
    known = original if isinstance(original, Iceberg) else Iceberg(uri.path)
    if known.catalog_name == uri.path.partition(".")[0]:
        # A recorded URI has no passwords, but the table that it replaces may have them.
        own_catalog = {name: known.catalog.get(name, value) for name, value in catalog.items() if REDACTED in value}
        catalog = {**catalog, **own_catalog} or dict(known.catalog)
    return replace(known, table=uri.path, catalog=catalog, options=options, **own)


def _row_count(uri: Uri, text: str) -> int:
    if text.isdigit():
        return int(text)
    raise UsageProblem(
        "bad-uri",
        f"invalid {uri.scheme} URI: rowsPerSecond={text} is not a number",
        evidence={"found": uri.redacted()},
        remedy=f"use the form {FORMS[uri.scheme]}",
    )


def _wrong_role(uri: Uri, role: str, known: tuple[str, ...]) -> UsageProblem:
    return UsageProblem(
        "bad-uri",
        f"{uri.scheme}: cannot be a {role}",
        evidence={"found": uri.redacted(), f"{role}s": ", ".join(known)},
        remedy="use a form such as " + " or ".join(FORMS[name] for name in known[:2]),
    )
