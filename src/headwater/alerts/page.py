"""Alerts of the checkpoints that a page shows. A page evaluates the rules of streams that no running job evaluates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.alerts.rules import AlertConfig
from headwater.alerts.watching import AlertThread, StreamAlerts, Warn
from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import HeadwaterError
from headwater.guards.check import check_sources

Opened = Mapping[str, Callable[[], FileTree]]
"""Functions that open checkpoints, by a name that identifies each."""


class PageAlerts:
    """The streams of a page, each opened as soon as it exists. ``checkpoints`` is called at each evaluation."""

    def __init__(self, config: AlertConfig, checkpoints: Callable[[], Opened], warn: Warn) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._warn = warn
        self._known: dict[str, StreamAlerts] = {}

    def streams(self) -> list[StreamAlerts]:
        """Return the alerts of all checkpoints that can be opened."""
        present = self._checkpoints()
        for name in self._known.keys() - present.keys():
            del self._known[name]
        for name, open_files in present.items():
            if name not in self._known:
                try:
                    self._known[name] = self._alerts(open_files())
                except (HeadwaterError, OSError):  # it does not exist yet, or its store does not answer
                    continue
        return list(self._known.values())

    def _alerts(self, files: FileTree) -> StreamAlerts:
        return StreamAlerts(
            files,
            self._config,
            check_sources=lambda: check_sources(files),
            warn=self._warn,
            on_alert=lambda notification: self._warn(f"alert: {notification.text}"),
        )


def watch_page(config: AlertConfig, checkpoints: Callable[[], Opened], warn: Warn) -> AlertThread | None:
    """Start to evaluate rules on the checkpoints of a page; None if there are no rules."""
    if not config.rules:
        return None
    return AlertThread(PageAlerts(config, checkpoints, warn).streams, config.every_ms)
