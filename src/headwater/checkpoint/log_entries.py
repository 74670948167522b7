"""The entries of a query's own logs: ``offsets/N``, ``commits/N`` and ``metadata``.

``offsets/N`` is what batch N was planned to read: version 1 has a line for each source, version 2 names the sources.
``commits/N`` marks batch N as complete: version 2 names the state files that it wrote, version 3 also the sinks.
``metadata`` holds the query's id, by which a sink may recognize a batch that it has already seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.logtext import LogText, broken, json_object, string, whole_number
from headwater.core.ids import DEFAULT_STORE, StoreKey

OFFSETS = "offsets"
NEWEST_OFFSETS_VERSION = 2
NO_OFFSET = "-"


@dataclass(frozen=True)
class SourceOffset:
    """One source's line: its name (its position, in version 1) and its offset's text, None where it has none yet."""

    name: str
    text: str | None
    provider: str | None = None


@dataclass(frozen=True)
class OffsetEntry:
    """One planned batch. ``text`` is the file itself."""

    text: LogText
    version: int
    sources: tuple[SourceOffset, ...]
    watermark_ms: int | None = None
    timestamp_ms: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()

    @property
    def shuffle_partitions(self) -> int | None:
        count = self.conf.get("spark.sql.shuffle.partitions", "")
        return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None


def parse_offsets(data: bytes, path: str) -> OffsetEntry:
    """Read one file of ``offsets/``; raises ``CheckpointUnreadable`` with a code that says what is wrong with it."""
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_OFFSETS_VERSION)
    body = text.body
    if not body:
        raise broken("torn-file", path, "ends after its version line")
    about, *lines = body
    metadata = json_object(about, path) if about.strip() else {}
    if version == 2 and not metadata:
        raise broken("bad-json", path, "is of version 2 and lacks its metadata line")
    return OffsetEntry(
        text,
        version,
        _named(lines, metadata, path) if version == 2 else _numbered(lines),
        whole_number(metadata, "batchWatermarkMs", path, default=0) if metadata else None,
        whole_number(metadata, "batchTimestampMs", path, default=0) if metadata else None,
        _conf(metadata, path),
    )


def _numbered(lines: list[str]) -> tuple[SourceOffset, ...]:
    return tuple(SourceOffset(str(number), _offset(line)) for number, line in enumerate(lines))


def _named(lines: list[str], metadata: dict[str, Any], path: str) -> tuple[SourceOffset, ...]:
    about_sources = metadata.get("sourceMetadataInfo")
    about_sources = about_sources if isinstance(about_sources, dict) else {}
    found = []
    for line in lines:
        name, separator, offset = line.partition(":")
        if not separator:
            raise broken("torn-file", path, "has a line without a source's name")
        info = about_sources.get(name)
        provider = info.get("providerName") if isinstance(info, dict) else None
        found.append(SourceOffset(name, _offset(offset), provider if isinstance(provider, str) else None))
    return tuple(found)


def _offset(line: str) -> str | None:
    return None if line == NO_OFFSET else line


def _conf(metadata: dict[str, Any], path: str) -> dict[str, str]:
    conf = metadata.get("conf", {})
    if not isinstance(conf, dict):
        raise broken("bad-json", path, "has a conf that is no JSON object")
    return {name: value if isinstance(value, str) else str(value) for name, value in conf.items()}


COMMITS = "commits"
NEWEST_COMMITS_VERSION = 3

# The order in which Spark puts a join's four stores into one list of ids.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)

StateUniqueIds = Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class SinkInfo:
    """What version 3 says of one sink that the query writes, or once wrote."""

    name: str
    provider: str
    is_active: bool
    commit_offset: str | None


@dataclass(frozen=True)
class CommitEntry:
    """One finished batch. ``state_unique_ids`` is None in checkpoint format 1."""

    text: LogText
    version: int
    next_watermark_ms: int | None = None
    state_unique_ids: StateUniqueIds | None = None
    sinks: tuple[SinkInfo, ...] = ()

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()

    def unique_id(self, store: StoreKey) -> str | None:
        """The id in the names of the files that this batch wrote for a store; None where the log has no word of it."""
        partitions = (self.state_unique_ids or {}).get(store.operator_id, ())
        ids = partitions[store.partition_id] if store.partition_id < len(partitions) else ()
        if len(ids) == 1 or (ids and store.store_name == DEFAULT_STORE):
            return ids[0]
        if len(ids) == len(JOIN_STORES) and store.store_name in JOIN_STORES:
            return ids[JOIN_STORES.index(store.store_name)]
        return None


def parse_commit(data: bytes, path: str) -> CommitEntry:
    """Read one file of ``commits/``; Spark before 2.4 wrote ``{}`` or nothing after the version."""
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_COMMITS_VERSION)
    about = text.body[:1]
    metadata = json_object(about[0], path) if about and about[0].strip() else {}
    known = "nextBatchWatermarkMs" in metadata
    return CommitEntry(
        text,
        version,
        whole_number(metadata, "nextBatchWatermarkMs", path) if known else None,
        _unique_ids(metadata.get("stateUniqueIds"), path),
        _sinks(metadata.get("sinkMetadataMap", {}), path),
    )


def _unique_ids(value: Any, path: str) -> StateUniqueIds | None:
    if value is None:
        return None
    try:
        found = {int(operator): tuple(tuple(ids) for ids in partitions) for operator, partitions in value.items()}
    except (AttributeError, TypeError, ValueError):
        raise broken("bad-json", path, "has stateUniqueIds of an unknown shape") from None
    if not all(isinstance(text, str) for partitions in found.values() for ids in partitions for text in ids):
        raise broken("bad-json", path, "has stateUniqueIds of an unknown shape")
    return found


def _sinks(value: Any, path: str) -> tuple[SinkInfo, ...]:
    if not isinstance(value, dict) or not all(isinstance(info, dict) for info in value.values()):
        raise broken("bad-json", path, "has a sinkMetadataMap of an unknown shape")
    return tuple(
        SinkInfo(
            name,
            str(info.get("providerName", "")),
            info.get("isActive", True) is True,
            None if info.get("commitOffset") in (None, "-") else str(info["commitOffset"]),
        )
        for name, info in value.items()
    )


QUERY_METADATA = "metadata"


@dataclass(frozen=True)
class QueryMetadata:
    text: LogText
    query_id: str

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()


def parse_query_metadata(data: bytes, path: str = QUERY_METADATA) -> QueryMetadata:
    text = LogText.from_bytes(data, path)
    return QueryMetadata(text, string(json_object("\n".join(text.lines), path), "id", path))
