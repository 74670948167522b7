"""Sources and sinks to and from the URIs that replace them on the command line."""

from __future__ import annotations

from urllib.parse import quote

from headwater.core.errors import UsageProblem
from headwater.core.uris import FORMS, Uri, parse_uri, redact
from headwater.jobs.endpoints import (
    Console,
    Files,
    Kafka,
    Memory,
    Options,
    Postgres,
    Rate,
    Sink,
    Socket,
    Source,
    Table,
    decoded_like,
)

SOURCES = ("kafka", "files", "socket", "rate", "table")
SINKS = ("console", "memory", "files", "kafka", "table", "postgresql")
FILE_FORMATS = ("csv", "text", "json", "orc", "parquet")


def source_from_uri(text: str, original: Source) -> Source:
    """The source that a URI names, reading the same records as the one whose place it takes."""
    uri = parse_uri(text)
    match uri.scheme:
        case "kafka":
            source: Source = Kafka(uri.path, servers=uri.address, options=uri.options)
        case "files":
            source = _files(uri)
        case "socket":
            source = Socket(uri.host or "", uri.port or 0, options=uri.options)
        case "rate":
            rest = dict(uri.options)
            source = Rate(_whole_number(uri, rest.pop("rowsPerSecond", "1")), options=rest)
        case "table":
            source = _table(uri)
        case _:
            raise _wrong_role(uri, "source", SOURCES)
    return decoded_like(source, original)


def sink_from_uri(text: str, original: Sink) -> Sink:
    """The sink that a URI names; a Kafka key chosen by the job stays, unless the URI chooses another."""
    uri = parse_uri(text)
    match uri.scheme:
        case "kafka":
            rest = dict(uri.options)
            named = rest.pop("key", None)
            inherited = original.key if isinstance(original, Kafka) else None
            return Kafka(
                uri.path, servers=uri.address, key=tuple(named.split(",")) if named else inherited, options=rest
            )
        case "files":
            return _files(uri)
        case "table":
            return _table(uri)
        case "console":
            return Console(options=uri.options)
        case "memory":
            return Memory(uri.path)
        case "postgresql":
            return _postgres(uri)
        case _:
            raise _wrong_role(uri, "sink", SINKS)


def uri_of(endpoint: Source | Sink) -> str:
    """The URI of a source or sink, without secrets: for records, messages and lists."""
    match endpoint:
        case Kafka():
            return redact(f"kafka://{endpoint.servers}/{endpoint.topic}" + _query(endpoint.options))
        case Files():
            chosen = {"format": endpoint.format} if endpoint.format else {}
            return redact(f"files:{endpoint.path}" + _query({**chosen, **endpoint.options}))
        case Socket():
            return f"socket://{endpoint.host}:{endpoint.port}"
        case Rate():
            return f"rate:?rowsPerSecond={endpoint.rows_per_second}"
        case Table():
            return f"table:{endpoint.name}"
        case Console():
            return "console:"
        case Memory():
            return f"memory:{endpoint.name}"
        case Postgres():
            own = _query({"table": endpoint.table, "key": ",".join(endpoint.key)})
            return redact(endpoint.url.partition("?")[0] + own)


def _query(options: Options) -> str:
    return "?" + "&".join(f"{name}={quote(value, safe=',/:')}" for name, value in options.items()) if options else ""


def _files(uri: Uri) -> Files:
    rest = dict(uri.options)
    format_name = rest.pop("format", None)
    if format_name is not None and format_name not in FILE_FORMATS:
        raise UsageProblem(
            "bad-uri",
            f"{format_name!r} is not a file format",
            evidence={"found": uri.redacted(), "known": ", ".join(FILE_FORMATS)},
            remedy=f"write it like {FORMS['files']}",
        )
    return Files(uri.path, format=format_name, options=rest)


def _table(uri: Uri) -> Table:
    rest = dict(uri.options)
    return Table(uri.path, format=rest.pop("format", None), options=rest)


def _postgres(uri: Uri) -> Postgres:
    rest = dict(uri.options)
    table, key = rest.pop("table"), rest.pop("key", "")
    if not key:
        raise UsageProblem(
            "bad-uri",
            "not a postgresql URI: no key is named, so rows cannot be upserted",
            evidence={"found": uri.redacted()},
            remedy=f"write it like {FORMS['postgresql']}",
        )
    login = quote(uri.user or "", safe="") + (f":{quote(uri.password, safe='')}" if uri.password else "")
    address = f"{login}@{uri.address}" if login else uri.address
    return Postgres(f"postgresql://{address}/{quote(uri.path)}{_query(rest)}", table, tuple(key.split(",")))


def _whole_number(uri: Uri, text: str) -> int:
    if text.isdigit():
        return int(text)
    raise UsageProblem("bad-uri", f"{text!r} is not a number of rows", remedy=f"write it like {FORMS[uri.scheme]}")


def _wrong_role(uri: Uri, role: str, known: tuple[str, ...]) -> UsageProblem:
    return UsageProblem(
        "bad-uri",
        f"{uri.scheme}: cannot be a {role}",
        evidence={"found": uri.redacted(), f"{role}s": ", ".join(known)},
        remedy="write it like " + " or ".join(FORMS[name] for name in known[:2]),
    )
