"""The original and the forks of a checkpoint, watched while a page shows them beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.locate import absolute_location, open_checkpoint
from headwater.core.text import displayable
from headwater.web.watch import Snapshot, WatchedCheckpoint

UNUSED_SECONDS = 120.0


@dataclass(frozen=True)
class KnownStream:
    """A checkpoint that the server shows: where it is, and of which one it is a fork."""

    name: str
    location: str
    forked_from: str | None
    watched: WatchedCheckpoint | None = None


@dataclass(frozen=True)
class Relative:
    """The original of a checkpoint, or a fork of it. ``at`` is the last batch that both share."""

    name: str
    is_original: bool
    snapshot: Snapshot
    at: int | None
    forked_at_ms: int | None


class Relatives:
    """Finds the relatives of checkpoints. Those that no page shows are polled as well, until nobody asks for a while.

    The original of a fork is recorded in the fork. The forks of an original are those among the ``known`` streams.
    """

    def __init__(self, known: Callable[[], Iterable[KnownStream]]) -> None:
        self._known = known
        self._open: dict[str, tuple[WatchedCheckpoint, float]] = {}
        self._lock = threading.Lock()

    def of(self, shown: WatchedCheckpoint) -> list[Relative]:
        """Return the original and the forks that can be read. Returns at once: a new one appears when it was read."""
        if shown.files is None:
            return []
        own, known = absolute_location(shown.files.location), list(self._known())
        found: list[tuple[KnownStream, bool]] = []
        if origin := _origin_of(shown.snapshot):
            place = absolute_location(origin)
            listed = (one for one in known if absolute_location(one.location) == place)
            name = displayable(place.rpartition("/")[2])
            unlisted = KnownStream(place if name == shown.name else name, place, None)
            found.append((next(listed, unlisted), True))
        found += [
            (one, False) for one in known if one.forked_from is not None and absolute_location(one.forked_from) == own
        ]
        with self._lock:
            relatives = [self._relative(shown, one, is_original=is_original) for one, is_original in found]
        return [one for one in relatives if one is not None]

    def close_unused(self) -> None:
        """Stop watching those that no page has asked for lately."""
        with self._lock:
            self._close(lambda used_at: time.monotonic() - used_at > UNUSED_SECONDS)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._close(lambda _: True)

    def _relative(self, shown: WatchedCheckpoint, one: KnownStream, *, is_original: bool) -> Relative | None:
        snapshot = (one.watched or self._watched(one)).snapshot
        fork = (shown.snapshot if is_original else snapshot).origin or {}
        if not snapshot.batches:
            return None
        return Relative(one.name, is_original, snapshot, _number(fork.get("at")), _number(fork.get("forked_at_ms")))

    def _watched(self, one: KnownStream) -> WatchedCheckpoint:
        place = absolute_location(one.location)
        watched = self._open[place][0] if place in self._open else None
        if watched is None:
            watched = WatchedCheckpoint(one.name, lambda: open_checkpoint(place, follow=False))
            watched.start()
        self._open[place] = (watched, time.monotonic())
        return watched

    def _close(self, is_unused: Callable[[float], bool]) -> None:
        for place in [place for place, (_, used_at) in self._open.items() if is_unused(used_at)]:
            self._open.pop(place)[0].stop()


def _origin_of(snapshot: Snapshot) -> str | None:
    origin = (snapshot.origin or {}).get("checkpoint")
    return origin if isinstance(origin, str) else None


def known_streams(watched: Iterable[WatchedCheckpoint]) -> list[KnownStream]:
    """Return the checkpoints of a page, as far as they were opened."""
    return [
        KnownStream(one.name, one.files.location, _origin_of(one.snapshot), one)
        for one in watched
        if one.files is not None
    ]


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
