"""Which source is which: the names that a job gives its sources, and a short description of each.

Spark's offset log numbers the sources in the order of the plan, unless the program named them. A job that Headwater
runs records its sources by name (``job.json``), in an order of its own. The two are matched by what the source reads:
the topics in a Kafka offset, the paths in the log of a file source. A source that matches more than one recorded source,
such as both sides of a self-join, keeps its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from headwater.checkpoint.record import folder_of, uri_kind
from headwater.checkpoint.source_offsets import kafka_partitions, kind_by_form
from headwater.core.errors import UsageProblem
from headwater.core.uris import parse_uri

UNKNOWN = "unknown"
_DESCRIPTION = re.compile(r"(?P<source>\w+)\[(?P<about>.*)\]", re.DOTALL)
_KINDS_OF_SPARK = {
    "FileStreamSource": "files",
    "KafkaV2": "kafka",
    "KafkaSource": "kafka",
    "DeltaSource": "delta",
    "RateStreamV2": "rate",
    "RatePerMicroBatchStream": "rate-micro-batch",
    "TextSocketV2": "socket",
}
_GLOB = frozenset("*?[{")


@dataclass(frozen=True)
class SourceTraits:
    """What identifies a source: its kind, and the topics, the folder, or one file that it reads."""

    kind: str = UNKNOWN
    topics: frozenset[str] = frozenset()
    folder: str | None = None

    def could_be(self, uri: str) -> bool:
        """Return whether the source can be the one that a URI names."""
        scheme = uri_kind(uri)
        match self.kind:
            case "unknown":
                return True
            case "kafka":
                return scheme == "kafka" and _reads_topics(uri, self.topics)
            case "files" | "table":
                return scheme in ("files", "table") and (self.folder is None or _reads_folder(uri, self.folder))
            case "rate-micro-batch":
                return scheme == "rate"
            case kind:
                return scheme == kind

    @property
    def text(self) -> str:
        """A short description, such as ``kafka clicks`` or ``files /data/in``."""
        return " ".join(filter(None, [self.kind, ",".join(sorted(self.topics)), self.folder]))


@dataclass(frozen=True)
class SourceIdentity:
    """A source of a query. ``id`` is its name in the offset log, ``name`` the one that the program or job gives it."""

    id: str
    name: str | None = None
    traits: SourceTraits = SourceTraits()
    uri: str | None = None
    """Where the job reads it, if ``headwater run`` has recorded it."""

    @property
    def label(self) -> str:
        """The name, or else ``source 0``."""
        return self.name or f"source {self.id}"

    @property
    def description(self) -> str:
        """What the source reads, such as ``kafka clicks`` or ``files /data/in``."""
        if uri_kind(self.uri) == "table":
            return f"table {(self.uri or '').partition(':')[2].partition('?')[0]}"
        if self.traits.kind in ("files", UNKNOWN) and uri_kind(self.uri) == "files":
            return f"files {plain_path(folder_of(self.uri or ''))}"
        return self.traits.text


def traits_from_offset(value: Any, kind: str, folder: str | None = None) -> SourceTraits:
    """Return the traits of a source from its offset, its kind, and a folder from its log."""
    if value is None and folder is None:
        return SourceTraits()
    partitions = kafka_partitions(value) if kind == "kafka" else None
    return SourceTraits(kind, frozenset(topic for topic, _ in partitions or ()), folder)


def traits_from_description(description: str | None, value: Any = None) -> SourceTraits:
    """Return the traits of a source as Spark describes it in its progress reports: ``FileStreamSource[file:/data/in]``."""
    found = _DESCRIPTION.match(description or "")
    kind = (_KINDS_OF_SPARK.get(found["source"]) if found else None) or kind_by_form(value) or UNKNOWN
    if kind == "kafka":
        return traits_from_offset(value, kind) if kafka_partitions(value) else SourceTraits("kafka")
    folder = plain_path(found["about"]) if found and kind in ("files", "delta") else None
    return SourceTraits(kind, folder=folder)


def match_names(traits: Mapping[str, SourceTraits], uris: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each source, by id, for which only one of the named URIs remains; a name is used once."""
    open_names = {
        source: {name for name, uri in uris.items() if found.could_be(uri)} for source, found in traits.items()
    }
    matched: dict[str, str] = {}
    while pair := _only_match(open_names):
        source, name = pair
        matched[source] = name
        del open_names[source]
        for names in open_names.values():
            names.discard(name)
    return matched


def _only_match(candidates: Mapping[str, set[str]]) -> tuple[str, str] | None:
    claims = [(source, next(iter(names))) for source, names in candidates.items() if len(names) == 1]
    for source, name in claims:
        if [claimed for _, claimed in claims].count(name) == 1:
            return source, name
    return None


def shared_uri(traits: SourceTraits, uris: Iterable[str]) -> str | None:
    """Return a URI for a source that matches several, if they have one kind and address: both sides of a self-join."""
    found = [uri for uri in uris if traits.could_be(uri)]
    places = {uri.partition("?")[0] for uri in found}
    return found[0] if len(places) == 1 else None


def plain_path(path: str) -> str:
    """Return a path or URL without the scheme ``file:`` and without a slash at its end; a path also without ``..``."""
    if path.startswith(("file:", "/")):
        return normpath("/" + path.removeprefix("file:").lstrip("/"))
    return path.rstrip("/") or "/"


def folder_of_file(uri: str) -> str:
    """Return the folder of an input file, given as in the log of a file source."""
    return plain_path(unquote(uri)).rpartition("/")[0] or "/"


def _reads_topics(uri: str, topics: frozenset[str]) -> bool:
    try:
        parsed = parse_uri(uri)
    except UsageProblem:
        return False
    if pattern := parsed.options.get("subscribePattern"):
        try:
            return all(re.fullmatch(pattern, topic) for topic in topics)
        except re.error:  # a pattern of Java that Python does not know
            return True
    if "assign" in parsed.options:
        return all(topic in parsed.options["assign"] for topic in topics)
    named = {topic.strip() for topic in (parsed.options.get("subscribe") or parsed.path).split(",")}
    return topics <= named


def _reads_folder(uri: str, folder: str) -> bool:
    if uri_kind(uri) == "table":
        return PurePosixPath(folder).name == uri.partition(":")[2].partition("?")[0].rpartition(".")[2]
    base = plain_path(folder_of(uri))
    parts = []
    for part in base.split("/"):
        if _GLOB & set(part):
            break
        parts.append(part)
    fixed = "/".join(parts)
    return folder == fixed or folder.startswith(f"{fixed.rstrip('/')}/")
