"""``offsets/N``: what batch N was planned to read. Version 1 has a line for each source, version 2 names the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.logtext import LogText, broken, json_object, whole_number

FOLDER = "offsets"
NEWEST_VERSION = 2
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
    version = text.version(path, newest=NEWEST_VERSION)
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
