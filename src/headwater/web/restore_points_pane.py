"""The restore points of a checkpoint, with a warning before Kafka removes the input that a rewind to one needs."""

from __future__ import annotations

import threading
import time

from nicegui import ui

from headwater.checkpoint.history import History
from headwater.checkpoint.restore_points import RestorePoint, point_files
from headwater.checkpoint.source_offsets import kafka_partitions
from headwater.core.errors import HeadwaterError
from headwater.kafka.offsets import earliest_offsets
from headwater.kafka.retention import retention_from
from headwater.views.formatting import format_bytes, format_time
from headwater.web.watch import Snapshot, WatchedCheckpoint
from headwater.web.widgets import chip, mark, placeholder

REFRESH_SECONDS = 60.0
SOON_MS = 24 * 3_600_000
MAX_POINTS = 100


class PointReach:
    """Until when the input after each restore point is retained, refreshed in the background while the page is open."""

    def __init__(self, watched: WatchedCheckpoint) -> None:
        self._watched = watched
        self._until: dict[str, int] = {}
        self._refreshed: tuple[float, int] = (0.0, -1)
        self._refreshing = threading.Lock()

    def warning(self, point: RestorePoint, now_ms: int) -> str | None:
        """Return a clause about input that is gone or will be within a day; None if there is no such problem known."""
        until = self._until.get(point.place)
        if until is None or until - now_ms > SOON_MS:
            return None
        if until <= 0:
            return "unreachable: Kafka has removed records after it"
        return f"Kafka may remove its input from {format_time(until)} UTC on"

    def refresh(self, points: tuple[RestorePoint, ...]) -> None:
        """Query the brokers if the last replies are old or there are other points; return at once."""
        at, number = self._refreshed
        if points and (time.monotonic() - at >= REFRESH_SECONDS or number != len(points)):
            self._refreshed = (time.monotonic(), len(points))
            threading.Thread(target=self._refresh, args=(points[-MAX_POINTS:],), daemon=True).start()

    def _refresh(self, points: tuple[RestorePoint, ...]) -> None:
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            for point in points:
                until = self._retained_until(point)
                if until is not None:
                    self._until[point.place] = until
        except (HeadwaterError, OSError):  # the lag shows why the broker does not answer
            return
        finally:
            self._refreshing.release()

    def _retained_until(self, point: RestorePoint) -> int | None:
        """Return until when the input is retained, 0 if some of it is gone; None if that is unknown or without limit."""
        files = self._watched.files
        if files is None:
            return None
        found = []
        for source in History(point_files(files, point)).batch(point.batch_id).sources:
            starts = kafka_partitions(source.end) if source.kind == "kafka" else None
            if not starts or not (source.uri or "").startswith("kafka://"):
                continue
            uri = source.uri or ""
            earliest = earliest_offsets(uri, {topic for topic, _ in starts})
            if any(earliest.get(topic, {}).get(number, 0) > offset for (topic, number), offset in starts.items()):
                return 0
            found.append(retention_from(uri, starts).until_ms)
        return min((until for until in found if until is not None), default=None)


class RestorePointsPane:
    """The restore points of one reader, newest first."""

    def __init__(self, reach: PointReach) -> None:
        self._reach = reach
        self._points: tuple[RestorePoint, ...] = ()
        self._shown: object = None

    def build(self) -> None:
        self._list = ui.element("div").classes("hw-findings")

    def update(self, snapshot: Snapshot) -> None:
        self._points = snapshot.points
        self._draw()

    def tick(self) -> None:
        """Show what the brokers have replied since."""
        self._draw()

    def _draw(self) -> None:
        self._reach.refresh(self._points)
        now_ms = int(time.time() * 1000)
        shown = [(point, self._reach.warning(point, now_ms)) for point in reversed(self._points[-MAX_POINTS:])]
        if shown == self._shown:
            return
        self._shown = shown
        self._list.clear()
        with self._list:
            if not shown:
                placeholder("No restore points. headwater keep makes one.", "bookmark_border")
            for point, warning in shown:
                with mark(ui.element("div").classes("hw-finding"), "data-point", point.name):
                    chip(f"batch {point.batch_id}", "warn" if warning else "good")
                    ui.label(point.name).classes("hw-finding-code")
                    about = f"committed {format_time(point.committed_at_ms)} UTC, {format_bytes(point.total_bytes)}"
                    ui.label(about).classes("hw-finding-message")
                    if warning:
                        ui.label(warning).classes("hw-about")
