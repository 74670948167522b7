"""A change to a checkpoint as a value: moves and new files, in order. Dry runs read it, the executor carries it out.

Nothing is ever deleted. A file leaves its place only for the quarantine, and every change can be turned around.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import COMMITS, OFFSETS, OURS, SINK_LOG, SOURCES, STATE

Root: TypeAlias = Literal["checkpoint", "sink"]
SCRATCH = f"{OURS}/scratch"


@dataclass(frozen=True)
class Move:
    """A file changes its place within its root."""

    root: Root
    source: str
    target: str

    @property
    def comes_from_scratch(self) -> bool:
        """Whether the file is new to the checkpoint: worked out beside it, not moved out of Spark's sight."""
        return self.source.startswith(f"{SCRATCH}/")

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        return (self.root, self.source), (self.root, self.target)

    def as_dict(self) -> dict[str, str]:
        return {"do": "move", "root": self.root, "source": self.source, "target": self.target}


@dataclass(frozen=True)
class Put:
    """A file appears where there is none."""

    root: Root
    path: str
    data: bytes

    @property
    def touches(self) -> tuple[tuple[Root, str], ...]:
        return ((self.root, self.path),)

    def as_dict(self) -> dict[str, str]:
        text = base64.b64encode(self.data).decode()
        return {"do": "put", "root": self.root, "path": self.path, "data": text}


Step: TypeAlias = Move | Put


@dataclass(frozen=True)
class Change:
    """What one verb does. ``undoes`` names the change that this one takes back; ``sink`` is where the sink root lies."""

    change_id: str
    verb: str
    about: str
    steps: tuple[Step, ...]
    fingerprint: str = ""
    sink: str | None = None
    to: int | None = None
    undoes: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def stages(self) -> list[tuple[Step, ...]]:
        return stages(self.steps)

    def as_dict(self) -> dict[str, Any]:
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
        }

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Change:
        return cls(**{**held, "steps": tuple(_step(step) for step in held["steps"])})


def stages(steps: Iterable[Step]) -> list[tuple[Step, ...]]:
    """The steps in order, parted so that no path is touched twice within a stage.

    Within a stage it does not matter how many steps were done, or in which direction: each can be done, done again or
    taken back by itself. Only between stages has one to know how far the change had come.
    """
    found: list[tuple[Step, ...]] = []
    stage: list[Step] = []
    touched: set[tuple[Root, str]] = set()
    for step in steps:
        if not touched.isdisjoint(step.touches):
            found.append(tuple(stage))
            stage, touched = [], set()
        stage.append(step)
        touched.update(step.touches)
    return [*found, tuple(stage)] if stage else found


def new_change_id(verb: str) -> str:
    """Sorts by time, and is a name that file systems and object stores take."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{verb}-{uuid.uuid4().hex[:6]}"


def quarantine_of(change_id: str) -> str:
    return f"{OURS}/quarantine/{change_id}"


def set_aside(change_id: str, root: Root, path: str) -> Move:
    """Out of Spark's sight, within the same root: a rename on a disk, whatever the size."""
    return Move(root, path, f"{quarantine_of(change_id)}/{path}")


def _step(held: Mapping[str, Any]) -> Step:
    match held["do"]:
        case "move":
            return Move(held["root"], held["source"], held["target"])
        case "put":
            return Put(held["root"], held["path"], base64.b64decode(held["data"]))
        case other:
            raise ValueError(f"a change cannot {other!r}")


def fingerprint(checkpoint: FileTree, sink: FileTree | None) -> str:
    """Changes with every batch, every state file and every log entry; costs a listing, no reading."""
    logs = {
        folder: [(entry.name, entry.size, entry.modified_ms) for entry in checkpoint.entries(folder)]
        for folder in (OFFSETS, COMMITS)
    }
    trees = {
        folder: {place: sorted(names) for place, names in sorted(checkpoint.tree(folder).items())}
        for folder in (STATE, SOURCES)
    }
    seen = [(entry.name, entry.size) for entry in sink.entries(SINK_LOG)] if sink else []
    text = json.dumps([logs, trees, seen], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
