"""What a stream reads and writes, in a form in which the output of one stream can be matched with the input of another."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.checkpoint.locate import absolute_path
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.record import JobRecord
from headwater.checkpoint.source_names import SourceIdentity, folder_of_file, plain_path
from headwater.core.errors import UsageProblem
from headwater.core.uris import parse_uri

_GLOB = frozenset("*?[{")
_FOLDERS = ("files", "delta")


@dataclass(frozen=True)
class Endpoint:
    """A topic, folder or table. ``servers`` are the brokers of a topic, empty if the checkpoint does not name them."""

    kind: str
    place: str
    servers: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """A short description, such as ``kafka visits``."""
        return f"{self.kind} {self.place}"

    @property
    def is_pattern(self) -> bool:
        """Whether it is a pattern that matches several folders or files."""
        return self.kind == "files" and bool(_GLOB & set(self.place))

    def feeds(self, source: Endpoint) -> bool:
        """Return whether what is written here is read at another endpoint."""
        if self.kind != source.kind:
            return False
        if self.kind == "kafka":
            known = self.servers and source.servers
            return self.place == source.place and (not known or bool(self.servers & source.servers))
        if self.kind == "files":
            return _reads_folder(source.place, self.place)
        return self.place == source.place


def _reads_folder(pattern: str, folder: str) -> bool:
    """Return whether a file source with this path, which may be a pattern, reads files that a sink writes to a folder."""
    if not _GLOB & set(pattern):
        return pattern == folder or pattern.startswith(f"{folder.rstrip('/')}/")
    return any(fnmatch.fnmatchcase(path, pattern) for path in (folder, f"{folder}/part", f"{folder}/part.json"))


def endpoints_of_uri(uri: str) -> tuple[Endpoint, ...]:
    """Return what a URI of a source or sink names; nothing for one that no other stream can share."""
    try:
        parsed = parse_uri(uri)
    except UsageProblem:
        return ()
    if parsed.scheme == "kafka":
        named = parsed.options.get("subscribe") or parsed.options.get("topic") or parsed.path
        topics = [topic.strip() for topic in named.split(",")]
        servers = frozenset(parsed.address.split(","))
        return tuple(Endpoint("kafka", topic, servers) for topic in topics if topic)
    if parsed.scheme in _FOLDERS:
        return (Endpoint(parsed.scheme, _place(parsed.path)),)
    if parsed.scheme in ("table", "iceberg"):
        return (Endpoint(parsed.scheme, parsed.path),)
    return ()


def _place(path: str) -> str:
    """Return a URL with Spark's name for S3, or an absolute path."""
    scheme, separator, rest = path.partition("://")
    if separator and scheme != "file":
        return f"{'s3a' if scheme in ('s3', 's3n') else scheme}://{rest.rstrip('/')}"
    return absolute_path(plain_path(path))


def written_by(job: JobRecord) -> tuple[Endpoint, ...]:
    """Return what a recorded job writes. Spark itself does not record sinks."""
    found = endpoints_of_uri(job.sink) if job.sink else ()
    if job.table_folder:
        found = (*found, Endpoint("files", _place(job.table_folder)))
    return found


def read_by(logs: CheckpointLogs) -> tuple[Endpoint, ...]:
    """Return what a query reads: as it was recorded, otherwise as far as its offsets and source logs show it."""
    found: list[Endpoint] = []
    for identity in logs.identities.values():
        found += _of_source(logs, identity)
    for uri in logs.job.inputs.values():
        if "subscribePattern" not in uri:
            found += endpoints_of_uri(uri)
    return tuple(_without_vaguer(found))


def _of_source(logs: CheckpointLogs, identity: SourceIdentity) -> Iterator[Endpoint]:
    traits = identity.traits
    servers = frozenset[str]()
    if identity.uri is not None:
        for endpoint in endpoints_of_uri(identity.uri):
            servers |= endpoint.servers
            if endpoint.kind != "kafka":
                yield endpoint
                return
    if traits.kind == "kafka":
        yield from (Endpoint("kafka", topic, servers) for topic in sorted(traits.topics))
    elif traits.kind in ("files", "delta"):
        folder = traits.folder
        if folder is None and traits.kind == "files":
            path = logs.hint(identity.id).path
            folder = folder_of_file(path) if path else None
        if folder is not None:
            yield Endpoint(traits.kind, _place(folder))


def _without_vaguer(found: list[Endpoint]) -> Iterator[Endpoint]:
    """Yield each endpoint once; a topic without brokers only if it is not also known with them."""
    named = {(endpoint.kind, endpoint.place) for endpoint in found if endpoint.servers}
    for endpoint in dict.fromkeys(found):
        if endpoint.servers or (endpoint.kind, endpoint.place) not in named:
            yield endpoint
