"""A change to a checkpoint as a value: moves and new files, in order. A dry run shows it; the executor applies it.

No file is ever deleted. Files are only moved to the quarantine, and every change can be undone. ``Preview`` shows the
tree that a change would leave.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

from headwater.checkpoint.filetree import Entry, FileTree, ReadOnlyTree
from headwater.checkpoint.layout import (
    COMMITS,
    HEADWATER_FOLDER,
    JOB_FILE,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    STATE,
    join,
    parent_and_name,
)
from headwater.lakehouse.tables import RewindableTable

Root: TypeAlias = Literal["checkpoint", "sink", "table"]
SCRATCH = f"{HEADWATER_FOLDER}/scratch"
OWN_RECORDS = (JOB_FILE, PLANS_FILE)
"""Records of Headwater that follow a change. Plans do not list them among the files of the stream."""


@dataclass(frozen=True)
class Move:
    """Move a file within its root."""

    root: Root
    source: str
    target: str

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        """The paths that change."""
        return (self.root, self.source), (self.root, self.target)

    def as_dict(self) -> dict[str, str]:
        """Return the step as it is stored in the journal."""
        return {"do": "move", "root": self.root, "source": self.source, "target": self.target}


@dataclass(frozen=True)
class Put:
    """Write a file where there is none."""

    root: Root
    path: str
    data: bytes

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        """The path that changes."""
        return ((self.root, self.path),)

    def as_dict(self) -> dict[str, str]:
        """Return the step as it is stored in the journal."""
        text = base64.b64encode(self.data).decode()
        return {"do": "put", "root": self.root, "path": self.path, "data": text}


@dataclass(frozen=True)
class CommitToTable:
    """Give a table other contents, by a commit of its own. ``action`` is what the table has planned."""

    action: Mapping[str, Any]
    root: Root = "table"

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        """Nothing in a tree of files."""
        return ()

    def as_dict(self) -> dict[str, Any]:
        """Return the step as it is stored in the journal."""
        return {"do": "table", "action": dict(self.action)}


@dataclass(frozen=True)
class Link:
    """Make a file of Headwater available at a path where there is none, by a hard link or a copy; the original stays."""

    root: Root
    source: str
    target: str

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        """The path that changes, and the one that must not change before."""
        return (self.root, self.source), (self.root, self.target)

    def as_dict(self) -> dict[str, str]:
        """Return the step as it is stored in the journal."""
        return {"do": "link", "root": self.root, "source": self.source, "target": self.target}


Step: TypeAlias = Move | Put | Link | CommitToTable


@dataclass(frozen=True)
class Change:
    """The steps of one command.

    ``undoes`` is the id of the change that this one undoes, ``sink`` the location of a file sink, and ``table`` the URI
    of a table that changes too.
    """

    change_id: str
    verb: str
    about: str
    steps: tuple[Step, ...]
    fingerprint: str = ""
    sink: str | None = None
    to: int | None = None
    undoes: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    table: str | None = None

    @cached_property
    def stages(self) -> list[tuple[Step, ...]]:
        """The steps in order, split so that no path is touched twice within a stage. A table has a stage of its own.

        Within a stage every step can be done, repeated or rolled back independently, so it does not matter which of them
        were done before an interruption. Progress has to be recorded only between stages.
        """
        found: list[tuple[Step, ...]] = []
        stage: list[Step] = []
        touched: set[tuple[Root, str]] = set()
        for step in self.steps:
            alone = isinstance(step, CommitToTable) or (stage and isinstance(stage[-1], CommitToTable))
            if stage and (alone or not touched.isdisjoint(step.touches)):
                found.append(tuple(stage))
                stage, touched = [], set()
            stage.append(step)
            touched.update(step.touches)
        return [*found, tuple(stage)] if stage else found

    @property
    def uses_scratch(self) -> bool:
        """Whether a step moves a file out of the scratch folder of the change."""
        scratch = f"{scratch_of(self.change_id)}/"
        return any(isinstance(step, Move) and step.source.startswith(scratch) for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the change as it is stored in the journal."""
        return {
            "change_id": self.change_id,
            "verb": self.verb,
            "about": self.about,
            "steps": [step.as_dict() for step in self.steps],
            "fingerprint": self.fingerprint,
            "sink": self.sink,
            "to": self.to,
            "undoes": self.undoes,
            "details": dict(self.details),
            "table": self.table,
        }

    @property
    def table_action(self) -> Mapping[str, Any] | None:
        """What the change does to a table; None if it changes none."""
        return next((step.action for step in self.steps if isinstance(step, CommitToTable)), None)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Change:
        """Parse a change from the journal."""
        return cls(**{**value, "steps": tuple(_step(step) for step in value["steps"])})


def new_change_id(verb: str) -> str:
    """Return a unique id that sorts by time and is valid as a file name."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{verb}-{uuid.uuid4().hex[:6]}"


def quarantine_of(change_id: str) -> str:
    """Return the folder for the files that a change sets aside."""
    return f"{HEADWATER_FOLDER}/quarantine/{change_id}"


def set_aside(change_id: str, root: Root, path: str) -> Move:
    """Return the move of a file to the quarantine in the same root; on a disk this is a rename."""
    return Move(root, path, f"{quarantine_of(change_id)}/{path}")


def scratch_of(change_id: str) -> str:
    """Return the folder for large files that are written before a change begins. The executor removes it."""
    return f"{SCRATCH}/{change_id}"


def staged(change_id: str, path: str) -> Move:
    """Return the move of a file from the scratch folder of a change."""
    return Move("checkpoint", f"{scratch_of(change_id)}/{path}", path)


def shown_path(root: Root, path: str) -> str:
    """Return a path as plans show it: those in the sink have the prefix ``sink:``."""
    return path if root == "checkpoint" else f"sink:{path}"


def written_paths(change: Change) -> list[str]:
    """Return the paths of the files that a change writes, as plans show them; not those that it only sets aside."""
    quarantine = quarantine_of(change.change_id)
    touched = (step.touches[-1] for step in change.steps)
    return [shown_path(root, path) for root, path in touched if not path.startswith(quarantine)]


def fingerprint(checkpoint: FileTree, sink: FileTree | None = None, table: RewindableTable | None = None) -> str:
    """Return a text that differs after every batch, log entry, state file and commit to the table.

    It lists files and reads none. A plan takes it before it reads anything: if it were taken later, a change that another
    process makes in between would go unnoticed.
    """
    parts = (_checkpoint_part(checkpoint), sink_part(sink), table.fingerprint() if table else "")
    return joined_fingerprint(*parts)


def joined_fingerprint(*parts: str) -> str:
    """Return the fingerprint of a checkpoint together with the parts of its sink or its table; without the empty ones."""
    return "-".join(part for part in parts if part)


def sink_part(sink: FileTree | None) -> str:
    """Return the part of a fingerprint that differs after every entry of a file sink's log."""
    return _hash([(entry.name, entry.size) for entry in sink.entries(SINK_LOG)]) if sink else ""


def _checkpoint_part(checkpoint: FileTree) -> str:
    logs = {
        folder: [(entry.name, entry.size, entry.modified_ms) for entry in checkpoint.entries(folder)]
        for folder in (OFFSETS, COMMITS)
    }
    trees = {
        folder: {place: sorted(names) for place, names in sorted(checkpoint.tree(folder).items())}
        for folder in (STATE, SOURCES)
    }
    return _hash([logs, trees])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _step(value: Mapping[str, Any]) -> Step:
    match value["do"]:
        case "move":
            return Move(value["root"], value["source"], value["target"])
        case "link":
            return Link(value["root"], value["source"], value["target"])
        case "put":
            return Put(value["root"], value["path"], base64.b64decode(value["data"]))
        case "table":
            return CommitToTable(value["action"])
        case other:
            raise ValueError(f"unknown step {other!r}")


class Preview(ReadOnlyTree):
    """A read-only view of a tree as it would be after some steps."""

    def __init__(self, files: FileTree, steps: Iterable[Step], root: Root = "checkpoint") -> None:
        self._files = files
        self._listed: dict[str, dict[str, Entry]] = {}
        self._now: dict[str, str | bytes | None] = {}
        """By path: the path that has the contents now, the contents themselves, or None if the file is gone."""
        for step in steps:
            if step.root != root or isinstance(step, CommitToTable):
                continue
            if isinstance(step, Move):
                self._now[step.target] = self._now.get(step.source, step.source)
                self._now[step.source] = None
            elif isinstance(step, Link):
                self._now[step.target] = step.source
            else:
                self._now[step.path] = step.data

    @property
    def location(self) -> str:
        return self._files.location

    @property
    def is_local(self) -> bool:
        return self._files.is_local

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return self._files.spark_uri(path, like=like)

    def read(self, path: str) -> bytes:
        current = self._now.get(path, path)
        if current is None:
            raise FileNotFoundError(path)
        return current if isinstance(current, bytes) else self._files.read(current)

    def exists(self, path: str) -> bool:
        if path in self._now:
            return self._now[path] is not None
        return self._files.exists(path)

    def entries(self, folder: str) -> list[Entry]:
        found = {
            entry.name: entry for entry in self._files.entries(folder) if join(folder, entry.name) not in self._now
        }
        for path, current in self._now.items():
            place, name = parent_and_name(path)
            if current is None:
                continue
            if place == folder:
                found[name] = self._entry(name, current)
            elif place.startswith(f"{folder}/") or not folder:
                below = place[len(folder) + 1 if folder else 0 :].partition("/")[0]
                found.setdefault(below, Entry(below, True, 0, None))
        return sorted(found.values(), key=lambda entry: entry.name)

    def _entry(self, name: str, current: str | bytes) -> Entry:
        if isinstance(current, bytes):
            return Entry(name, False, len(current), None)
        return replace(self._entries_of(parent_and_name(current)[0])[parent_and_name(current)[1]], name=name)

    def _entries_of(self, folder: str) -> dict[str, Entry]:
        if folder not in self._listed:
            self._listed[folder] = {entry.name: entry for entry in self._files.entries(folder)}
        return self._listed[folder]

    def tree(self, folder: str) -> dict[str, list[str]]:
        found = {place: set(names) for place, names in self._files.tree(folder).items()}
        for path, current in self._now.items():
            place, name = parent_and_name(path)
            if folder and place != folder and not place.startswith(f"{folder}/"):
                continue
            if current is None:
                found.get(place, set()).discard(name)
            else:
                found.setdefault(place, set()).add(name)
        emptied = {parent_and_name(path)[0] for path, current in self._now.items() if current is None}
        return {place: sorted(names) for place, names in found.items() if names or place not in emptied}
