"""Alerts of a running job: a thread evaluates its rules, and once more when the job has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.alerts.rules import AlertConfig
from headwater.alerts.state import Notification
from headwater.alerts.watching import AlertThread, StreamAlerts
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import ProgressRecord
from headwater.guards.watch import SourceWatch
from headwater.spark.followers import Follower, OnBatch, Warn


def alerting(
    name: str, config: AlertConfig, sources: SourceWatch | None, on_alert: Callable[[Notification], None]
) -> Follower:
    """Return a follower that evaluates the rules of a job while it runs. ``on_alert`` shows what fires and resolves."""

    @contextmanager
    def follow(files: FileTree, warn: Warn) -> Iterator[OnBatch]:
        check = sources.latest if sources else lambda: None
        alerts = StreamAlerts(files, config, name=name, check_sources=check, warn=warn, on_alert=on_alert)

        def on_batch(batch: ProgressRecord) -> None:
            if sources:
                sources.after_batch(batch)

        with AlertThread(lambda: [alerts], config.every_ms):
            yield on_batch

    return follow
