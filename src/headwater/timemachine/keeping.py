"""Restore points that a running stream makes by itself: at an interval, for a limited time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.record import read_job_record
from headwater.checkpoint.restore_points import restore_points
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.core.times import seconds_from_text
from headwater.timemachine.keep import drop_expired, make_point

RETRY_MS = 60_000


@dataclass(frozen=True)
class KeepPolicy:
    """How often to make a restore point, and for how long to keep it; None keeps it until it is dropped."""

    every_ms: int
    for_ms: int | None = None

    @classmethod
    def parse(cls, every: str | None, keep_for: str | None) -> KeepPolicy | None:
        """Return the policy of ``--keep-every`` and ``--keep-for``; None if neither is given."""
        if every is None and keep_for is None:
            return None
        if every is None:
            raise UsageProblem(
                "bad-option", "--keep-for has no effect without --keep-every", remedy="add --keep-every 1h"
            )
        policy = cls(_milliseconds(every, "--keep-every"), _milliseconds(keep_for, "--keep-for") if keep_for else None)
        if policy.for_ms is not None and policy.for_ms < policy.every_ms:
            raise UsageProblem(
                "bad-option",
                "--keep-for is shorter than --keep-every: restore points would expire before the next one is made",
                evidence={"--keep-every": every, "--keep-for": keep_for},
            )
        return policy


def _milliseconds(text: str, option: str) -> int:
    try:
        found = int(seconds_from_text(text) * 1000)
    except ValueError:
        found = 0
    if found <= 0:
        raise UsageProblem(
            "bad-option",
            f"{option} takes a duration greater than zero",
            evidence={"found": text},
            remedy=f"{option} 30m, 1h or 7d",
        )
    return found


class Keeper:
    """Makes restore points of one running stream. ``after_batch`` returns at once: a thread links or copies the files.

    ``open_sink`` opens the folder of a file sink. A failure is passed to ``warn`` and never stops the stream.
    """

    def __init__(
        self,
        files: FileTree,
        policy: KeepPolicy,
        *,
        open_sink: Callable[[str], FileTree],
        warn: Callable[[str], None],
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._files = files
        self._policy = policy
        self._open_sink = open_sink
        self._warn = warn
        self._clock = clock
        made = [point.kept_at_ms for point in restore_points(files) if point.automatic]
        self._due_ms = max(made) + policy.every_ms if made else 0
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for a point that is being made."""
        if self._thread is not None:
            self._thread.join()

    def after_batch(self) -> None:
        """Start to make a restore point if one is due."""
        if self._clock() < self._due_ms or not self._working.acquire(blocking=False):
            return
        self._thread = threading.Thread(target=self._work, name="headwater-keep", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            pause = self._policy.every_ms if self._keep() else min(RETRY_MS, self._policy.every_ms)
            self._due_ms = self._clock() + pause
            if self._policy.for_ms is not None:
                drop_expired(self._files, self._clock() - self._policy.for_ms)
        except HeadwaterError as error:
            self._fail(error.problem)
        except Exception as error:  # the stream must not notice
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._working.release()

    def _keep(self) -> bool:
        """Make a restore point; return False if no batch was committed since the last one."""
        last = History(self._files).last_committed
        newest = max((point for point in restore_points(self._files)), key=lambda point: point.kept_at_ms, default=None)
        if last is None or (newest is not None and newest.automatic and newest.batch_id == last):
            return False
        folder = read_job_record(self._files).sink_folder
        sink = self._open_sink(folder.removeprefix("file:")) if folder else None
        make_point(self._files, sink=sink, automatic=True)
        return True

    def _fail(self, problem: str) -> None:
        self._due_ms = self._clock() + min(RETRY_MS, self._policy.every_ms)
        self._warn(f"cannot make a restore point: {problem}")
