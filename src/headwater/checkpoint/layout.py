"""The names in a checkpoint and what they mean. Nothing is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

OFFSETS, COMMITS, SOURCES, STATE, METADATA = "offsets", "commits", "sources", "state", "metadata"
HEADWATER_FOLDER = "_headwater"
JOB_FILE = f"{HEADWATER_FOLDER}/job.json"
PLANS_FILE = f"{HEADWATER_FOLDER}/plans.json"
PENDING_FILE = f"{HEADWATER_FOLDER}/pending.json"
CASCADE_FILE = f"{HEADWATER_FOLDER}/cascade.json"
JOURNAL_FOLDER = f"{HEADWATER_FOLDER}/journal"
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
    """A file of a store: a complete version (``snapshot``), or the changes since the previous version (``changes``)."""

    name: str
    version: int
    kind: Kind
    unique_id: str | None = None


def state_file(name: str) -> StateFile | None:
    """Return the state file with this name; None for checksum files, folders and other names."""
    matched = _STATE_FILE.fullmatch(name)
    if not matched:
        return None
    kind: Kind = "snapshot" if f".{matched[3]}" in SNAPSHOT_SUFFIXES else "changes"
    return StateFile(name, int(matched[1]), kind, matched[2])


def log_id(name: str) -> int | None:
    """Return the id of a log file (``7``, and in the log of a source or sink ``9.compact``); None for other names."""
    bare = name.removesuffix(COMPACT)
    return int(bare) if _LOG_NAME.fullmatch(bare) else None


def batch_id(name: str) -> int | None:
    """Return the batch of a file in ``offsets/`` or ``commits/``; None for other names."""
    return int(name) if _LOG_NAME.fullmatch(name) else None


def is_temporary(name: str) -> bool:
    """Return whether Spark or Headwater gives this name to a file that is still being written."""
    return _TEMPORARY.fullmatch(name) is not None


def is_checkpoint(names: Iterable[str]) -> bool:
    """Return whether a folder that contains these names looks like a streaming query's checkpoint."""
    found = set(names)
    is_new = METADATA in found and (SOURCES in found or HEADWATER_FOLDER in found)
    return OFFSETS in found or COMMITS in found or is_new or found == {METADATA}


def parent_and_name(path: str) -> tuple[str, str]:
    """Return the folder and the name of a path; the folder is empty at the root."""
    parent, _, name = path.rpartition("/")
    return parent, name


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder, which is empty for the root."""
    return f"{folder}/{name}" if folder else name


def hadoop_crc_of(path: str) -> str:
    """Return where Hadoop's local file system keeps the checksums of a file."""
    folder, name = parent_and_name(path)
    return join(folder, f".{name}.crc")


def covered_by_hadoop_crc(path: str) -> str | None:
    """Return the file that a Hadoop checksum file (``.NAME.crc``) covers; None for other paths."""
    folder, name = parent_and_name(path)
    if name.startswith(".") and name.endswith(".crc") and len(name) > 5:
        return join(folder, name[1:-4])
    return None


def covered_by_spark_checksum(path: str) -> str | None:
    """Return the file that a checksum file of checkpoint format 2 (``NAME.crc``) covers; None for other paths."""
    folder, name = parent_and_name(path)
    if not name.startswith(".") and name.endswith(".crc") and len(name) > 4:
        return join(folder, name[:-4])
    return None
