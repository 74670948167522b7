"""The streams below some roots, refreshed by reading only what has changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import COMMITS, HEADWATER_FOLDER, OFFSETS, STATE
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.object_tree import unreachable
from headwater.checkpoint.pipelines import stream_names
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.core.errors import HeadwaterError, InternalError
from headwater.core.finding import Finding
from headwater.core.text import displayable
from headwater.fleet.discovery import Discovery
from headwater.fleet.graph import Edge, edges_between
from headwater.fleet.summary import StreamSummary, read_summary
from headwater.fleet.trouble import Activity, Trouble, activity_of, order, troubles_of
from headwater.timemachine.journal import FOLDER as JOURNAL
from headwater.timemachine.tables import fsck

_READERS = 16
# Written again and again while nothing happens.
_HEARTBEATS = frozenset({"lease.json", "alerts.json"})


@dataclass(frozen=True)
class Checked:
    """What the slow checks found: the findings of ``fsck``, and the bytes of the state folder."""

    findings: tuple[Finding, ...]
    state_bytes: int
    at_ms: int
    marker: object = field(repr=False)
    """The change marker of the checkpoint when it was checked."""


@dataclass(frozen=True)
class Stream:
    """A checkpoint of the fleet: its name, which is unique, and what is known about it."""

    name: str
    location: str
    summary: StreamSummary
    checked: Checked | None = None

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """The findings of ``fsck``; None if it has not run yet."""
        return self.checked.findings if self.checked else None

    def activity(self, now_ms: int) -> Activity:
        """Return whether a query runs on the checkpoint."""
        return activity_of(self.summary, now_ms)

    def troubles(self, now_ms: int) -> list[Trouble]:
        """Return what is wrong, the worst first."""
        return troubles_of(self.summary, self.findings, now_ms)


@dataclass(frozen=True)
class FleetSnapshot:
    """All streams at one time. ``version`` grows with every change."""

    version: int = 0
    streams: tuple[Stream, ...] = ()
    problems: tuple[HeadwaterError, ...] = ()
    """Why a root cannot be searched."""
    is_complete: bool = True
    """False if a root has too many folders to search all of them."""
    is_loading: bool = True

    def by_trouble(self, now_ms: int) -> list[Stream]:
        """Return the streams, those with problems first."""
        return sorted(self.streams, key=lambda stream: (order(stream.troubles(now_ms)), stream.name))

    def edges(self) -> list[Edge]:
        """Return how the streams feed each other."""
        return edges_between(
            {stream.name: stream.summary for stream in self.streams},
            {stream.name: stream.location for stream in self.streams},
        )

    def get(self, name: str) -> Stream | None:
        """Return a stream by name; None if there is none."""
        return next((stream for stream in self.streams if stream.name == name), None)


@dataclass
class _Known:
    files: FileTree
    marker: object = None
    summary: StreamSummary = field(default_factory=StreamSummary)
    checked: Checked | None = None


class Fleet:
    """The streams below some folders, URLs or checkpoints. ``snapshot`` is consistent and can be read from any thread."""

    def __init__(self, roots: Iterable[str]) -> None:
        self.snapshot = FleetSnapshot()
        self._searches = [Discovery(open_files(root)) for root in roots]
        self._prefixes = _prefixes([search.files.location for search in self._searches])
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self.summaries_read = 0
        """How many summaries were read so far: one for each checkpoint and each change."""

    def refresh(self, on_progress: Callable[[], None] | None = None) -> FleetSnapshot:
        """Read what has changed since the last time, and return the new snapshot.

        ``on_progress`` is called during the first refresh whenever ``snapshot`` shows more streams.
        """
        with self._lock:
            places, problems = self._search()
            self._known = {name: self._known.get(name) or _Known(files) for name, files in places.items()}
            first = self.snapshot.is_loading
            shown_at = time.monotonic()
            for done, _ in enumerate(self._updated(), 1):
                if first and on_progress and time.monotonic() - shown_at > 0.3:
                    self._publish(problems, is_loading=True, most=done)
                    on_progress()
                    shown_at = time.monotonic()
            self._publish(problems, is_loading=False)
            return self.snapshot

    def find(self) -> bool:
        """Return whether there is any checkpoint. No summary is read; a refresh uses what this has listed."""
        return any(search.search() for search in self._searches)

    def files_of(self, name: str) -> FileTree | None:
        """Return the files of a stream; None if there is no stream of this name."""
        known = self._known.get(name)
        return known.files if known else None

    def check(self, name: str) -> tuple[Finding, ...]:
        """Run the slow checks on a stream, which may take seconds, and return the findings of ``fsck``."""
        known = self._known.get(name)
        if known is None:
            return ()
        marker = known.marker
        try:
            findings = tuple(fsck(known.files))
            size = _bytes_below(known.files, STATE)
        except Exception as error:  # shown as a finding, as that of any other check
            failed = error if isinstance(error, HeadwaterError) else InternalError(error)
            findings, size = (Finding("error", failed.code, "", failed.problem),), 0
        known.checked = Checked(findings, size, _now_ms(), marker)
        with self._lock:
            self._publish(self.snapshot.problems, is_loading=self.snapshot.is_loading)
        return findings

    def due_for_check(self, now_ms: int, at_most_every_ms: int) -> str | None:
        """Return the stream that should be checked next; None if all are up to date.

        Streams that were never checked come first, then those that have changed since, after a while.
        """
        stale: list[tuple[int, str]] = []
        for name, known in self._known.items():
            if known.checked is None:
                return name
            if known.checked.marker != known.marker and now_ms - known.checked.at_ms >= at_most_every_ms:
                stale.append((known.checked.at_ms, name))
        return min(stale)[1] if stale else None

    def _search(self) -> tuple[dict[str, FileTree], tuple[HeadwaterError, ...]]:
        found: dict[str, FileTree] = {}
        problems: list[HeadwaterError] = []
        for search, prefix in zip(self._searches, self._prefixes, strict=True):
            try:
                paths = search.search()
            except HeadwaterError as error:
                problems.append(error)
                continue
            except Exception as error:  # each store raises exceptions of its own
                if search.files.is_local and not isinstance(error, OSError):
                    raise
                problems.append(unreachable(search.files, error))
                continue
            for path, short in stream_names(paths).items():
                name = displayable("/".join(filter(None, [prefix, short])) or _base(search.files.location))
                known = self._known.get(name)
                found[name] = known.files if known else (search.files.subtree(path) if path else search.files)
        return dict(sorted(found.items())), tuple(problems)

    def _updated(self) -> Iterable[None]:
        streams = list(self._known.values())
        if all(known.files.is_local for known in streams):
            return map(self._update, streams)
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._update, streams))

    def _update(self, known: _Known) -> None:
        try:
            marker = change_marker(known.files)
        except Exception as error:  # read_summary names the reason
            marker = str(error)
        if marker != known.marker or (known.summary.problem is not None and not known.files.is_local):
            known.summary = read_summary(known.files)
            known.marker = marker
            self.summaries_read += 1
        elif known.summary.has_lease_file:
            with suppress(Exception):  # the store may be unreachable for a moment
                lease = live_lease(known.files)
                if lease != known.summary.lease:
                    known.summary = replace(known.summary, lease=lease)

    def _publish(self, problems: tuple[HeadwaterError, ...], *, is_loading: bool, most: int | None = None) -> None:
        shown = list(self._known.items())[:most]
        streams = tuple(Stream(name, known.files.location, known.summary, known.checked) for name, known in shown)
        now = self.snapshot
        is_complete = all(search.is_complete for search in self._searches)
        if (streams, problems, is_loading, is_complete) != (
            now.streams,
            now.problems,
            now.is_loading,
            now.is_complete,
        ):
            self.snapshot = FleetSnapshot(now.version + 1, streams, problems, is_complete, is_loading)


def change_marker(files: FileTree) -> object:
    """Return a value that differs after any change worth reading. Cheap on a local disk."""
    root = files.local_path()
    if root is not None:
        found = []
        for path in (OFFSETS, COMMITS):
            with suppress(OSError):
                info = (root / path).stat()
                found.append((path, info.st_mtime_ns, info.st_size))
        with suppress(OSError), os.scandir(root / HEADWATER_FOLDER) as listed:
            for entry in listed:
                if entry.name not in _HEARTBEATS and not entry.name.startswith("."):
                    info = entry.stat()
                    found.append((entry.name, info.st_mtime_ns, info.st_size))
        return sorted(found)
    return [
        [
            (entry.name, entry.modified_ms, entry.size)
            for entry in files.entries(folder)
            if entry.name not in _HEARTBEATS
        ]
        for folder in (OFFSETS, COMMITS, HEADWATER_FOLDER, JOURNAL, KEPT)
    ]


def _bytes_below(files: FileTree, folder: str) -> int:
    return sum(
        _bytes_below(files, f"{folder}/{entry.name}") if entry.is_folder else entry.size
        for entry in files.entries(folder)
    )


def _prefixes(locations: Sequence[str]) -> list[str]:
    """Return what the names below each root begin with: nothing for a single root, its name if that is unique."""
    if len(locations) == 1:
        return [""]
    bases = [_base(location) for location in locations]
    return [
        base if bases.count(base) == 1 else location.rstrip("/")
        for base, location in zip(bases, locations, strict=True)
    ]


def _base(location: str) -> str:
    return PurePosixPath(location.rstrip("/")).name or location


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
