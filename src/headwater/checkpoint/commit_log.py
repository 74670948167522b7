"""``commits/N``: batch N is done. Version 2 names the state files that it left, version 3 also the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.logtext import LogText, broken, json_object, whole_number
from headwater.core.ids import DEFAULT_STORE, StoreKey

FOLDER = "commits"
NEWEST_VERSION = 3

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
    version = text.version(path, newest=NEWEST_VERSION)
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
