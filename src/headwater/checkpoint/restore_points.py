"""Restore points: the files of one batch, kept under ``_headwater/kept/NAME/`` after Spark has removed its own.

``point.json`` describes a point and makes it exist: it is written last and removed first. The files are in the folder that
it names, laid out as a checkpoint of their own, so everything that reads a checkpoint can read a point. A folder without
``point.json`` belongs to a command that is still running or was interrupted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.checkpoint.logtext import json_object
from headwater.checkpoint.revisions import EXAMPLES, resolve
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.core.ids import BatchId

FOLDER = f"{HEADWATER_FOLDER}/kept"
DESCRIPTION = "point.json"
SINK_SUFFIX, LIST_SUFFIX = ".sink", ".files.json"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_READERS = 16
_FACTS = ("batch_id", "kept_at_ms", "generation", "file_count", "total_bytes")


@dataclass(frozen=True)
class RestorePoint:
    """A kept batch. ``generation`` is the number of the last change to the checkpoint before the point was made."""

    name: str
    batch_id: BatchId
    kept_at_ms: int
    committed_at_ms: int | None
    watermark_ms: int | None
    generation: int
    query_id: str | None
    folder: str
    file_count: int
    total_bytes: int
    automatic: bool = False
    """Whether ``--keep-every`` made it. Such points expire with ``--keep-for``; named ones are kept until dropped."""
    sink: str | None = None
    """The location of the file sink whose log is part of the point."""
    table: str | None = None
    """The URI of the table that the query writes to, and the version that has the batch and none after it."""
    table_version: int | None = None
    table_id: str | None = None
    """The id of that table, because another one may be created at the same path."""

    @property
    def place(self) -> str:
        """The folder of the kept checkpoint files, relative to the checkpoint."""
        return f"{FOLDER}/{self.name}/{self.folder}"

    @property
    def sink_place(self) -> str:
        """The folder of the kept log of the file sink, relative to the checkpoint."""
        return f"{self.place}{SINK_SUFFIX}"

    @property
    def description(self) -> str:
        """The path of the file that makes the point exist."""
        return f"{FOLDER}/{self.name}/{DESCRIPTION}"

    def to_bytes(self) -> bytes:
        """Return the contents of ``point.json``."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> RestorePoint:
        """Parse ``point.json``; raise ``CheckpointUnreadable`` if it is corrupt."""
        try:
            value = json_object(data.decode("utf-8"), path)
            found = cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})
        except (UnicodeDecodeError, TypeError, CheckpointUnreadable):
            found = None
        if found is None or not found._is_valid:
            raise CheckpointUnreadable(
                "kept-unreadable",
                f"{path} is corrupt",
                evidence={"size": f"{len(data)} bytes"},
                remedy="drop the restore point: headwater keep CKPT --drop NAME",
            )
        return found

    @property
    def _is_valid(self) -> bool:
        return (
            all(isinstance(getattr(self, fact), int) for fact in _FACTS)
            and isinstance(self.folder, str)
            and "/" not in self.folder
            and self.folder not in ("", "..")
            and is_name(self.name)
        )


def is_name(text: str) -> bool:
    """Return whether a text can name a restore point; no text can name both a point and a batch."""
    return _NAME.fullmatch(text) is not None and text != "HEAD"


def require_name(text: str) -> str:
    """Return a name for a new restore point, or raise ``UsageProblem``."""
    if is_name(text):
        return text
    raise UsageProblem(
        "bad-name",
        f"{text!r} is not a valid name for a restore point",
        evidence={"valid": "a letter, then letters, digits, dots, dashes and underscores; not HEAD"},
        remedy="headwater keep CKPT before-upgrade",
    )


def restore_points(files: FileTree) -> list[RestorePoint]:
    """Return all restore points, oldest batch first. Points with a corrupt description are omitted; ``fsck`` reports them."""
    names = [entry.name for entry in files.entries(FOLDER) if entry.is_folder and is_name(entry.name)]
    if files.is_local or len(names) < 2:
        found: Iterable[RestorePoint | None] = [_readable_point(files, name) for name in names]
    else:  # each is a request of its own
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  slow to import, and rarely needed

        with ThreadPoolExecutor(_READERS) as readers:
            found = list(readers.map(lambda name: _readable_point(files, name), names))
    return sorted((point for point in found if point), key=lambda point: (point.batch_id, point.kept_at_ms, point.name))


def names_by_batch(points: Iterable[RestorePoint], committed_at_ms: Mapping[int, int | None]) -> dict[int, list[str]]:
    """Return the names of the points by batch, for batches that are still in the logs and have not run again since."""
    found: dict[int, list[str]] = {}
    for point in points:
        if point.committed_at_ms is not None and committed_at_ms.get(point.batch_id) == point.committed_at_ms:
            found.setdefault(point.batch_id, []).append(point.name)
    return found


def find_point(files: FileTree, name: str) -> RestorePoint | None:
    """Return a restore point by name; None if there is none. Raise ``CheckpointUnreadable`` if it is corrupt."""
    if not is_name(name):
        return None
    path = f"{FOLDER}/{name}/{DESCRIPTION}"
    try:
        return RestorePoint.from_bytes(files.read(path), path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _readable_point(files: FileTree, name: str) -> RestorePoint | None:
    try:
        return find_point(files, name)
    except CheckpointUnreadable:
        return None


def require_point(files: FileTree, name: str) -> RestorePoint:
    """Return a restore point by name; raise ``UsageProblem`` with the existing ones if there is none."""
    point = find_point(files, name)
    if point is not None:
        return point
    names = [one.name for one in restore_points(files)]
    from difflib import get_close_matches  # noqa: PLC0415  slow to import, and rarely needed

    close = get_close_matches(name, names, n=1)
    raise UsageProblem(
        "no-restore-point",
        f"there is no restore point named {name!r}",
        evidence={"kept": ", ".join(names[-10:]) or "none"},
        remedy=f"use {close[0]}" if close else f"headwater kept {files.location}",
    )


def point_files(files: FileTree, point: RestorePoint) -> FileTree:
    """Return the files of a restore point as a checkpoint whose last committed batch is that of the point."""
    return files.subtree(point.place)


def listed_files(files: FileTree, point: RestorePoint) -> dict[str, int]:
    """Return the kept files and their sizes as they were recorded: paths relative to ``_headwater/kept/NAME/``."""
    path = f"{point.place}{LIST_SUFFIX}"
    try:
        value: dict[str, Any] = json_object(files.read(path).decode("utf-8"), path)
    except (FileNotFoundError, UnicodeDecodeError):
        raise CheckpointUnreadable("kept-unreadable", f"{path} is missing or corrupt") from None
    return {name: size for name, size in value.items() if isinstance(size, int)}


@dataclass(frozen=True)
class Located:
    """A batch, and the files in which to read it: the checkpoint's own, or those of a restore point."""

    files: FileTree
    batch_id: BatchId
    point: RestorePoint | None = None


def locate_batch(files: FileTree, revision: str, history: History | None = None) -> Located:
    """Return the batch that a revision or the name of a restore point means."""
    point = find_point(files, revision)
    if point is not None:
        return Located(point_files(files, point), point.batch_id, point)
    history = history or History(files)
    try:
        return Located(files, resolve(revision, history.batch_ids, history.committed_at_ms))
    except UsageProblem as error:
        if error.code != "unknown-revision" or not is_name(revision):
            raise
    names = [one.name for one in restore_points(files)]
    raise UsageProblem(
        "unknown-revision",
        f"{revision!r} is neither a batch nor a restore point",
        evidence={"restore points": ", ".join(names[-10:]) or "none"},
        remedy=f"use a form such as {EXAMPLES}, or a name that headwater kept shows",
    )
