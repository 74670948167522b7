"""Which name in a checkpoint is what. Pure: names in, meaning out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

OFFSETS, COMMITS, SOURCES, STATE, METADATA = "offsets", "commits", "sources", "state", "metadata"
OURS = "_headwater"
JOB_FILE = f"{OURS}/job.json"
PENDING_FILE = f"{OURS}/pending.json"
SINK_LOG = "_spark_metadata"
SST_FOLDER, LOG_FOLDER = "SSTs", "logs"
COMPACT = ".compact"

SNAPSHOT_SUFFIXES = (".zip", ".snapshot")
CHANGES_SUFFIXES = (".changelog", ".delta")
Kind = Literal["snapshot", "changes"]

_STATE_FILE = re.compile(r"([0-9]{1,18})(?:_([^./]+))?\.(zip|snapshot|changelog|delta)")
_LOG_NAME = re.compile(r"[0-9]{1,18}")
_TEMPORARY = re.compile(r"\..+\.tmp(\.crc)?|_temporary|.*\.headwater\.tmp")


@dataclass(frozen=True, slots=True)
class StateFile:
    """One version of a store on disk: whole (``snapshot``) or what changed since the version before (``changes``)."""

    name: str
    version: int
    kind: Kind
    unique_id: str | None = None


def state_file(name: str) -> StateFile | None:
    """What a name in a store's folder stands for; None for crc files, folders and strangers."""
    matched = _STATE_FILE.fullmatch(name)
    if not matched:
        return None
    kind: Kind = "snapshot" if f".{matched[3]}" in SNAPSHOT_SUFFIXES else "changes"
    return StateFile(name, int(matched[1]), kind, matched[2])


def log_id(name: str) -> int | None:
    """The number that a log file's name stands for (``7``, and ``9.compact`` in a source's or sink's log)."""
    bare = name.removesuffix(COMPACT)
    return int(bare) if _LOG_NAME.fullmatch(bare) else None


def batch_id(name: str) -> int | None:
    """The number that a name in ``offsets/`` or ``commits/`` stands for."""
    return int(name) if _LOG_NAME.fullmatch(name) else None


def is_temporary(name: str) -> bool:
    """A name that Spark, or we, give to a file that is still being written."""
    return _TEMPORARY.fullmatch(name) is not None


def is_checkpoint(names: Iterable[str]) -> bool:
    """Whether a folder with these names in it looks like a streaming query's checkpoint."""
    found = set(names)
    ours = METADATA in found and (SOURCES in found or OURS in found)
    return OFFSETS in found or COMMITS in found or ours or found == {METADATA}


def parent_and_name(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent, name


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def hadoop_crc_of(path: str) -> str:
    """Where Hadoop's local file system keeps a file's checksums."""
    folder, name = parent_and_name(path)
    return join(folder, f".{name}.crc")


def covered_by_hadoop_crc(path: str) -> str | None:
    """The file that a Hadoop crc file is about; None when the path is no such file."""
    folder, name = parent_and_name(path)
    if name.startswith(".") and name.endswith(".crc") and len(name) > 5:
        return join(folder, name[1:-4])
    return None


def covered_by_spark_checksum(path: str) -> str | None:
    """The state file that a checksum file of checkpoint format 2 is about (``7_id.changelog.crc``)."""
    folder, name = parent_and_name(path)
    if not name.startswith(".") and name.endswith(".crc") and len(name) > 4:
        return join(folder, name[:-4])
    return None
