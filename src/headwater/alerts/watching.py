"""Evaluate the rules of streams at an interval, from one thread, and deliver what fires.

A running job evaluates its own rules. A page evaluates those of the streams that it shows and that no job evaluates.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from headwater.alerts.delivery import deliver_due
from headwater.alerts.evaluation import evaluate, needs_sources
from headwater.alerts.history import HistoryReader
from headwater.alerts.rules import AlertConfig
from headwater.alerts.state import NO_ALERTS, SILENT_MS, STATE_FILE, AlertState, Notification, advance, parse_state
from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import HeadwaterError, InternalError
from headwater.guards.check import check_sources
from headwater.guards.report import SourceReport

SOURCES_MS = 60_000
HEARTBEAT_MS = 30_000
# Evaluations that may be missing before a pending alert starts again.
MISSED_EVALUATIONS = 3
Warn = Callable[[str], None]
CheckSources = Callable[[], SourceReport | None]
Opened = Mapping[str, Callable[[], FileTree]]
"""Functions that open checkpoints, by a name that identifies each."""


class StreamAlerts:
    """The alerts of one stream. ``step`` evaluates the rules, records what changed, and delivers what is due.

    ``check_sources`` is called at most once a minute, and only if a rule depends on it. ``on_alert`` gets what fires or
    resolves; ``owner`` distinguishes evaluators of one process.
    """

    def __init__(
        self,
        files: FileTree,
        config: AlertConfig,
        *,
        name: str | None = None,
        check_sources: CheckSources = lambda: None,
        warn: Warn = lambda _: None,
        on_alert: Callable[[Notification], None] = lambda _: None,
        owner: str | None = None,
    ) -> None:
        self.files = files
        self._config = config
        self._reader = HistoryReader(files, name, records_ms=config.records_ms)
        self._longest_pause_ms = max(SILENT_MS, MISSED_EVALUATIONS * config.every_ms)
        self._check_sources = check_sources
        self._warn = warn
        self._on_alert = on_alert
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._memory: AlertState | None = None
        self._saved_ms = 0
        self._sources: tuple[int, SourceReport | None] = (0, None)
        self._warned: set[str] = set()

    def step(self, now_ms: int | None = None) -> list[Notification]:
        """Return the notifications that this evaluation caused; none while another process evaluates the rules."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        try:
            return self._step(now_ms)
        except (HeadwaterError, OSError) as error:  # the running query moves files; the next step reads them again
            self._warn_once(f"alerts cannot be evaluated: {getattr(error, 'problem', error)}")
            return []
        except Exception as error:  # one stream must not end the alerts of the others
            self._warn_once(f"alerts cannot be evaluated: {InternalError(error).problem}")
            return []

    def close(self) -> None:
        """Evaluate the rules once more, and leave them to other processes."""
        self.step()
        state = self._memory
        if state is not None and state.owner == self._owner:
            self._save(replace(state, owner=""), state.evaluated_ms)

    def _step(self, now_ms: int) -> list[Notification]:
        before = self._load()
        if before.is_owned_by_other(self._owner, now_ms):
            return []
        if before is not self._memory and now_ms - before.evaluated_ms > self._longest_pause_ms:
            before = before.without_pending()
        history = self._reader.read(now_ms)
        rules = self._config.for_stream(history.name)
        if needs_sources(rules, history, now_ms):
            history = replace(history, sources=self._source_report(now_ms))
        conditions = evaluate(rules, history, now_ms)
        state, sent = advance(before, conditions, (target.key for target in self._config.targets), now_ms)
        state = replace(state, owner=self._owner)
        # Recorded before it is delivered: a process that is killed in between delivers it at its next start.
        if sent or state.active.keys() != before.active.keys() or now_ms - self._saved_ms >= HEARTBEAT_MS:
            self._save(state, now_ms)
        for notification in sent:
            self._on_alert(notification)
        if state.outbox:
            left, problems = deliver_due(state.outbox, self._config.targets, now_ms)
            if left != state.outbox:
                state = replace(state, outbox=left)
                self._save(state, now_ms)
            for problem in problems:
                self._warn_once(f"an alert is not delivered: {problem}")
        self._memory = state
        return sent

    def _source_report(self, now_ms: int) -> SourceReport | None:
        checked_ms, report = self._sources
        if report is None or now_ms - checked_ms >= SOURCES_MS:
            self._sources = (now_ms, self._check_sources())
        return self._sources[1]

    def _load(self) -> AlertState:
        try:
            found = parse_state(self.files.read(STATE_FILE))
        except OSError:
            return self._memory or NO_ALERTS
        # A heartbeat that was not written yet, or a checkpoint that cannot be written.
        newer = self._memory is not None and self._memory.evaluated_ms >= found.evaluated_ms
        return self._memory if newer and self._memory is not None else found

    def _save(self, state: AlertState, now_ms: int) -> None:
        self._memory, self._saved_ms = state, now_ms
        try:
            self.files.write(STATE_FILE, state.to_bytes())
        except Exception as error:  # each store raises exceptions of its own
            self._warn_once(f"the state of alerts cannot be recorded, so they may fire again after a restart: {error}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"warning: {text}")


class AlertThread:
    """Steps streams at an interval until its ``with`` block ends, and closes them then. ``streams`` is called at each
    interval, so streams may come and go.
    """

    def __init__(self, streams: Callable[[], Iterable[StreamAlerts]], every_ms: int) -> None:
        self._streams = streams
        self._seconds = every_ms / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headwater-alerts", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopped.wait(self._seconds):
            for stream in self._streams():
                stream.step()

    def __enter__(self) -> AlertThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for stream in self._streams():
            stream.close()


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
                with suppress(Exception):  # it does not exist yet, or its store raises an error of its own
                    self._known[name] = self._alerts(open_files())
        return list(self._known.values())

    def _alerts(self, files: FileTree) -> StreamAlerts:
        return alerts_of_query(files, self._config, self._warn, lambda text: self._warn(f"alert: {text}"))


def alerts_of_query(files: FileTree, config: AlertConfig, warn: Warn, show: Warn) -> StreamAlerts:
    """Return the alerts of a query that this process only observes, so that it has to ask the sources itself.

    ``warn`` gets what goes wrong, ``show`` the text of what fires or resolves.
    """
    return StreamAlerts(
        files,
        config,
        check_sources=lambda: check_sources(files),
        warn=warn,
        on_alert=lambda notification: show(notification.text),
    )


def watch_page(config: AlertConfig, checkpoints: Callable[[], Opened], warn: Warn) -> AlertThread | None:
    """Start to evaluate rules on the checkpoints of a page; None if there are no rules."""
    if not config.rules:
        return None
    return AlertThread(PageAlerts(config, checkpoints, warn).streams, config.every_ms)
