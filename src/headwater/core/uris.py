"""URIs of sources and sinks on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import quote, unquote

from headwater.core.errors import REDACTED, UsageProblem, redact, redact_value

FORMS = {
    "kafka": "kafka://127.0.0.1:9092/TOPIC?startingOffsets=earliest",
    "files": "files:PATH?format=json",
    "socket": "socket://127.0.0.1:9994",
    "rate": "rate:?rowsPerSecond=1000",
    "table": "table:NAME",
    "console": "console:",
    "memory": "memory:NAME",
    "postgresql": "postgresql://user@host:5432/DATABASE?table=TABLE&key=a,b",
    "delta": "delta:PATH?merge_on=a,b",
    "iceberg": "iceberg:CATALOG.DATABASE.TABLE",
}
DEFAULT_PORTS = {"kafka": 9092, "socket": 9994, "postgresql": 5432}
WITH_ADDRESS = {"kafka", "socket", "postgresql"}
WITHOUT_PATH = {"socket", "rate", "console"}
FOLDERS = {"files", "delta"}
# A URL of S3 is short for files: and the URL. Spark knows S3 as s3a.
S3_SCHEMES = {"s3", "s3a"}
# A Kafka URI needs no topic in its path if one of Spark's options selects the topics.
TOPIC_OPTIONS = {"subscribe", "subscribePattern", "assign", "topic"}


@dataclass(frozen=True, repr=False)
class Uri:
    """A parsed URI. ``str()`` and ``repr()`` hide its passwords."""

    scheme: str
    host: str | None = None
    port: int | None = None
    path: str = ""
    options: dict[str, str] = field(default_factory=dict, hash=False)
    user: str | None = None
    password: str | None = None
    address: str = ""
    """``host:port``; for Kafka the bootstrap servers, separated by commas."""
    text: str = field(default="", compare=False)
    """The URI as given."""

    def redacted(self) -> str:
        """Return the URI as given, with its passwords replaced by ``***``."""
        return redact(self.text)

    def __str__(self) -> str:
        return self.redacted()

    def __repr__(self) -> str:
        return f"Uri({self.redacted()!r})"


def parse_uri(text: str) -> Uri:
    """Return the parts of a URI in one of the ``FORMS``; the ``UsageProblem`` for any other text shows the right form."""
    scheme, colon, rest = text.strip().partition(":")
    scheme = {"postgres": "postgresql"}.get(scheme.lower(), scheme.lower())
    if scheme in S3_SCHEMES and rest.startswith("//"):
        scheme, rest = "files", f"{scheme}:{rest}"
    if not colon or scheme not in FORMS:
        _refuse_scheme(text, scheme if colon else "")
    rest, options = _split_options(text, scheme, rest)
    if scheme in WITH_ADDRESS:
        return _with_address(text, scheme, rest, options)
    path = _folder_path(text, scheme, rest) if scheme in FOLDERS else unquote(rest)
    if scheme in WITHOUT_PATH and path:
        _refuse(text, scheme, f"{scheme}: takes options only, no name")
    if scheme not in WITHOUT_PATH and not path:
        _refuse(text, scheme, f"the {'path' if scheme in FOLDERS else 'name'} after {scheme}: is missing")
    if scheme == "iceberg" and not re.fullmatch(r"[^.]+\.([^.]+\.)+[^.]+", path):
        _refuse(text, scheme, "the name of a table has a catalog, a database and a table, separated by dots")
    return Uri(scheme, path=path, options=options, text=text)


def shown_value(name: str, value: str) -> str:
    """Return the value of an option for a URI that is shown or recorded: quoted, and without its secrets.

    They are redacted first, because they are harder to recognize in a quoted URL.
    """
    return quote(redact_value(name, value), safe=",/:").replace(quote(REDACTED), REDACTED)


def _with_address(text: str, scheme: str, rest: str, options: dict[str, str]) -> Uri:
    if not rest.startswith("//"):
        _refuse(text, scheme, f"// and an address must follow {scheme}:")
    authority, _, path = rest[2:].partition("/")
    credentials, _, servers = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    if credentials and scheme == "kafka":
        _refuse_kafka_login(text, servers, path)
    if credentials and scheme == "socket":
        _refuse(text, scheme, "socket: takes no login")
    addresses = [_address(text, scheme, server) for server in servers.split(",")]
    if scheme != "kafka" and len(addresses) > 1:
        _refuse(text, scheme, f"{scheme}: takes a single address")
    path = unquote(path)
    if scheme == "socket" and path:
        _refuse(text, scheme, "socket: takes an address only")
    if scheme == "kafka" and not path and not TOPIC_OPTIONS & options.keys():
        _refuse(text, scheme, "the topic is missing")
    if scheme == "postgresql" and (not path or "/" in path):
        _refuse(text, scheme, "the database is missing")
    if scheme == "postgresql" and not options.get("table"):
        _refuse(text, scheme, "the option table is missing")
    host, port = addresses[0]
    return Uri(
        scheme,
        host=host,
        port=port,
        path=path,
        options=options,
        user=unquote(user) or None,
        password=unquote(password) or None,
        address=",".join(f"[{name}]:{number}" if ":" in name else f"{name}:{number}" for name, number in addresses),
        text=text,
    )


def _address(text: str, scheme: str, server: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::(\d+))?", server)
    if not match:
        _refuse(text, scheme, "the address is not HOST:PORT")
    port = int(match[3]) if match[3] else DEFAULT_PORTS.get(scheme)
    if port is None or not 0 < port < 65536:
        _refuse(text, scheme, "the port is missing" if port is None else f"{port} is not a valid port")
    return match[1] or match[2], port


def _split_options(text: str, scheme: str, rest: str) -> tuple[str, dict[str, str]]:
    """Return the rest and the options after the last ``?``; in a file pattern, only if an ``=`` follows the ``?``."""
    before, mark, query = rest.rpartition("?")
    if not mark or (scheme == "files" and query and "=" not in query):
        return rest, {}
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals or not name:
            _refuse(text, scheme, f"option {pair!r} is not NAME=VALUE")
        if name in options:
            _refuse(text, scheme, f"option {name} is repeated")
        options[name] = unquote(value)
    return before, options


def _folder_path(text: str, scheme: str, rest: str) -> str:
    store, separator, location = rest.partition("://")
    if separator and store.lower() in S3_SCHEMES:
        if not location.strip("/"):
            _refuse(text, scheme, "the bucket is missing")
        if "@" in location.partition("/")[0]:
            _refuse(
                text, scheme, "S3 keys belong in the environment or in --conf spark.hadoop.fs.s3a.*, not in the URI"
            )
        return f"s3a://{unquote(location)}"
    if rest.startswith("//") and not rest.startswith("///"):
        _refuse(text, scheme, f"the path must follow {scheme}: directly, without //")
    return unquote("/" + rest.lstrip("/") if rest.startswith("/") else rest)


def _refuse(text: str, scheme: str, problem: str) -> NoReturn:
    raise UsageProblem(
        "bad-uri",
        f"invalid {scheme} URI: {problem}",
        evidence={"found": redact(text)},
        remedy=f"use the form {FORMS[scheme]}",
    )


def _refuse_kafka_login(text: str, servers: str, path: str) -> NoReturn:
    raise UsageProblem(
        "bad-uri",
        "a kafka URI cannot contain a login before the address: Kafka takes it from its SASL options",
        evidence={"found": redact(text), "manual": "docs/how-to/secure-kafka.md"},
        remedy=f"kafka://{servers}/{path} with the options kafka.security.protocol, kafka.sasl.mechanism and "
        "kafka.sasl.jaas.config, in the URI or in a file that HEADWATER_KAFKA_PROPERTIES names",
    )


def _refuse_scheme(text: str, scheme: str) -> NoReturn:
    is_path = not scheme or "/" in scheme or scheme in {"file", "s3n", "gs", "abfs", "abfss", "hdfs"}
    if is_path and text.strip():
        path = re.sub(r"^\s*file:(//)?", "", text)
        raise UsageProblem(
            "bad-uri",
            "a source or sink is a URI such as files:PATH, not a plain path or URL",
            evidence={"found": redact(text)},
            remedy=f"for files: files:{redact(path)}" + ("" if "?" in path else "?format=json"),
        )
    raise UsageProblem(
        "bad-uri",
        f"unknown kind of source or sink: {scheme!r}",
        evidence={"found": redact(text), "known": ", ".join(FORMS)},
        remedy=f"use a form such as {FORMS['kafka']} or {FORMS['files']}",
    )
