"""The entries of a query's own logs: ``offsets/N``, ``commits/N`` and ``metadata``.

- ``offsets/N`` is what batch N was planned to read. Version 1 has a line for each source, version 2 names the sources.
- ``commits/N`` marks batch N as complete. Version 2 names the state files that it wrote, version 3 also the sinks.
- ``metadata`` contains the query's id, by which a sink can recognize a batch that it has already written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.layout import METADATA
from headwater.checkpoint.logtext import LogText, integer_field, json_object, string_field, unreadable_file
from headwater.core.ids import DEFAULT_STORE, StoreKey

NEWEST_OFFSETS_VERSION = 2
NO_OFFSET = "-"


@dataclass(frozen=True)
class SourceOffset:
    """One source's offset: its name (in version 1, its position) and the offset as text, None if it has none yet."""

    name: str
    text: str | None
    provider: str | None = None


@dataclass(frozen=True)
class OffsetEntry:
    """A planned batch. ``text`` is the file as read."""

    text: LogText
    version: int
    sources: tuple[SourceOffset, ...]
    watermark_ms: int | None = None
    timestamp_ms: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def shuffle_partitions(self) -> int | None:
        count = self.conf.get("spark.sql.shuffle.partitions", "")
        return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None


def text_of_source(entry: OffsetEntry | None, name: str) -> str | None:
    """Return the offset of a source, as the entry has it; None if there is no entry or it lacks the source."""
    return next((source.text for source in entry.sources if source.name == name), None) if entry else None


def parse_offsets(data: bytes, path: str) -> OffsetEntry:
    """Return a parsed file of ``offsets/``; raise ``CheckpointUnreadable`` with a code for the kind of damage."""
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_OFFSETS_VERSION)
    body = text.body
    if not body:
        raise unreadable_file("torn-file", path, "ends after its version line")
    first, *lines = body
    metadata = json_object(first, path) if first.strip() else {}
    if version == 2 and not metadata:
        raise unreadable_file("bad-json", path, "has version 2 but no metadata line")
    return OffsetEntry(
        text,
        version,
        _named(lines, metadata, path) if version == 2 else _numbered(lines),
        integer_field(metadata, "batchWatermarkMs", path, default=0) if metadata else None,
        integer_field(metadata, "batchTimestampMs", path, default=0) if metadata else None,
        _conf(metadata, path),
    )


def _numbered(lines: list[str]) -> tuple[SourceOffset, ...]:
    return tuple(SourceOffset(str(number), _offset(line)) for number, line in enumerate(lines))


def _named(lines: list[str], metadata: dict[str, Any], path: str) -> tuple[SourceOffset, ...]:
    infos = metadata.get("sourceMetadataInfo")
    infos = infos if isinstance(infos, dict) else {}
    found = []
    for line in lines:
        name, separator, offset = line.partition(":")
        if not separator:
            raise unreadable_file("torn-file", path, "has a line without the name of a source")
        info = infos.get(name)
        provider = info.get("providerName") if isinstance(info, dict) else None
        found.append(SourceOffset(name, _offset(offset), provider if isinstance(provider, str) else None))
    return tuple(found)


def _offset(line: str) -> str | None:
    return None if line == NO_OFFSET else line


def _conf(metadata: dict[str, Any], path: str) -> dict[str, str]:
    conf = metadata.get("conf", {})
    if not isinstance(conf, dict):
        raise unreadable_file("bad-json", path, "has a conf that is not a JSON object")
    return {name: value if isinstance(value, str) else str(value) for name, value in conf.items()}


NEWEST_COMMITS_VERSION = 3

# The order in which Spark lists the ids of a join's four stores.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)

StateUniqueIds = Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class SinkInfo:
    """A sink that the query writes or used to write, as recorded by version 3."""

    name: str
    provider: str
    is_active: bool
    commit_offset: str | None


@dataclass(frozen=True)
class CommitEntry:
    """A committed batch. ``text`` is the file as read; ``state_unique_ids`` is None in checkpoint format 1."""

    text: LogText
    version: int
    next_watermark_ms: int | None = None
    state_unique_ids: StateUniqueIds | None = None
    sinks: tuple[SinkInfo, ...] = ()

    def unique_id(self, store: StoreKey) -> str | None:
        """Return the id in the names of the files that this batch wrote for a store; None if the log has none."""
        partitions = (self.state_unique_ids or {}).get(store.operator_id, ())
        ids = partitions[store.partition_id] if store.partition_id < len(partitions) else ()
        if len(ids) == 1 or (ids and store.store_name == DEFAULT_STORE):
            return ids[0]
        if len(ids) == len(JOIN_STORES) and store.store_name in JOIN_STORES:
            return ids[JOIN_STORES.index(store.store_name)]
        return None


def parse_commit(data: bytes, path: str) -> CommitEntry:
    """Return a parsed file of ``commits/``; Spark before 2.4 wrote ``{}`` or nothing after the version."""
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_COMMITS_VERSION)
    first = text.body[:1]
    metadata = json_object(first[0], path) if first and first[0].strip() else {}
    has_watermark = "nextBatchWatermarkMs" in metadata
    return CommitEntry(
        text,
        version,
        integer_field(metadata, "nextBatchWatermarkMs", path) if has_watermark else None,
        _unique_ids(metadata.get("stateUniqueIds"), path),
        _sinks(metadata.get("sinkMetadataMap", {}), path),
    )


def _unique_ids(value: Any, path: str) -> StateUniqueIds | None:
    if value is None:
        return None
    try:
        found = {int(operator): tuple(tuple(ids) for ids in partitions) for operator, partitions in value.items()}
    except (AttributeError, TypeError, ValueError):
        raise unreadable_file("bad-json", path, "has stateUniqueIds in an unknown format") from None
    if not all(isinstance(text, str) for partitions in found.values() for ids in partitions for text in ids):
        raise unreadable_file("bad-json", path, "has stateUniqueIds in an unknown format")
    return found


def _sinks(value: Any, path: str) -> tuple[SinkInfo, ...]:
    if not isinstance(value, dict) or not all(isinstance(info, dict) for info in value.values()):
        raise unreadable_file("bad-json", path, "has a sinkMetadataMap in an unknown format")
    return tuple(
        SinkInfo(
            name,
            str(info.get("providerName", "")),
            info.get("isActive", True) is True,
            None if info.get("commitOffset") in (None, "-") else str(info["commitOffset"]),
        )
        for name, info in value.items()
    )


@dataclass(frozen=True)
class QueryMetadata:
    """The identity of a query. ``text`` is the file as read."""

    text: LogText
    query_id: str


def parse_query_metadata(data: bytes, path: str = METADATA) -> QueryMetadata:
    """Return the parsed ``metadata`` file."""
    text = LogText.from_bytes(data, path)
    return QueryMetadata(text, string_field(json_object("\n".join(text.lines), path), "id", path))
