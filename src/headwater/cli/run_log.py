"""What ``headwater run`` reports on standard error: lines for people, or one JSON object per line for log collectors."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import typer

from headwater.cli.output import StatusLine, note_from_signal_handler
from headwater.core.errors import HeadwaterError, UsageProblem, redact
from headwater.core.times import iso_from_ms

if TYPE_CHECKING:
    from headwater.alerts.state import Notification
    from headwater.checkpoint.record import ProgressRecord
    from headwater.spark.progress import Totals

Level = Literal["info", "warning", "error"]


class TextLog:
    """Lines for people. With ``prefixed``, lines about a job begin with its name."""

    def __init__(self, line: StatusLine, *, prefixed: bool = False) -> None:
        self._line = line
        self._prefixed = prefixed

    @property
    def is_live(self) -> bool:
        return self._line.is_live

    def share_terminal(self) -> None:
        """Show no unfinished lines: another writer prints to standard output at the same time."""
        self._line = StatusLine(shared=True)

    def show(self, text: str) -> None:
        """Show a text until the next call replaces it, where lines can be rewritten."""
        self._line.show(text)

    def clear(self) -> None:
        self._line.clear()

    def message(self, text: str, job: str | None = None) -> None:
        """Report a sentence, about the command or about one of its jobs."""
        self._line.keep(self._prefix(job) + text)

    def warning(self, text: str) -> None:
        """Report a warning."""
        self._line.keep(text)

    def message_from_signal_handler(self, text: str) -> None:
        """Report a sentence from a signal handler."""
        note_from_signal_handler(text)

    def batch(self, job: str, record: ProgressRecord) -> None:
        from headwater.spark.progress import progress_line

        self._line.keep(self._prefix(job) + progress_line(record))

    def alert(self, notification: Notification) -> None:
        self._line.keep(f"alert: {notification.text}")

    def failure(self, job: str | None, error: HeadwaterError) -> None:
        """Report the failure of one of several jobs."""
        self._line.keep(f"{job}: {error}")

    def ended(self, job: str, outcome: str, totals: Totals | None) -> None:
        self._line.keep(f"{job}: {outcome}" + (f"  {totals.line()}" if totals else ""))

    def _prefix(self, job: str | None) -> str:
        return f"{job}: " if job and self._prefixed else ""


class JsonLog(TextLog):
    """One JSON object per line: ``time``, ``level`` and ``event``, then what belongs to the event."""

    def __init__(self) -> None:
        super().__init__(StatusLine())
        self._lock = threading.Lock()

    @property
    def is_live(self) -> bool:
        return False

    def show(self, text: str) -> None:
        """Report nothing: only what stays is logged."""

    def clear(self) -> None:
        """Do nothing: no line is rewritten."""

    def message(self, text: str, job: str | None = None) -> None:
        self._write("info", "message", {**_job(job), "message": text})

    def warning(self, text: str) -> None:
        self._write("warning", "message", {"message": text.removeprefix("warning: ")})

    def message_from_signal_handler(self, text: str) -> None:
        os.write(2, f"{json.dumps(_line('info', 'message', {'message': text}))}\n".encode())

    def batch(self, job: str, record: ProgressRecord) -> None:
        self._write("info", "batch", {"job": job, **batch_fields(record)})

    def alert(self, notification: Notification) -> None:
        level: Level = "warning" if notification.status == "firing" else "info"
        self._write(level, "alert", notification.as_dict())

    def failure(self, job: str | None, error: HeadwaterError) -> None:
        self._write("error", "failed", {**_job(job), **error.as_dict()})

    def ended(self, job: str, outcome: str, totals: Totals | None) -> None:
        counted = (
            {"batches": totals.batches, "rows": totals.rows, "dropped": totals.dropped, "malformed": totals.malformed}
            if totals
            else {}
        )
        self._write("info", "ended", {"job": job, "outcome": outcome, **counted})

    def _write(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        text = json.dumps(_line(level, event, fields), ensure_ascii=False, default=str)
        with self._lock:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def run_log(log_format: str, *, prefixed: bool) -> TextLog:
    """Return the log of ``--log-format``."""
    if log_format == "json":
        return JsonLog()
    if log_format == "text":
        return TextLog(StatusLine(), prefixed=prefixed)
    raise UsageProblem(
        "bad-option",
        f"{log_format!r} is not a log format",
        evidence={"known": "text, json"},
        remedy="--log-format json",
    )


@contextmanager
def reported_errors(log: TextLog) -> Iterator[None]:
    """Report the error that ends the command in a JSON log; the text form is printed where all commands end."""
    try:
        yield
    except HeadwaterError as error:
        if not isinstance(log, JsonLog) or "--debug" in sys.argv:
            raise
        log.failure(None, error)
        raise typer.Exit(error.exit_status) from None


def batch_fields(record: ProgressRecord) -> dict[str, Any]:
    """Return what the log shows of a batch; values that do not apply are None."""
    return {
        "batch_id": record.batch_id,
        "planned_at": iso_from_ms(record.at_ms),
        "duration_ms": record.duration_ms,
        "rows": record.input_rows,
        "input_rows_per_second": record.input_rate,
        "processed_rows_per_second": record.processed_rate,
        "watermark": None if record.watermark_ms is None else iso_from_ms(record.watermark_ms),
        "state_rows": record.state_rows,
        "dropped": record.dropped,
        "malformed": record.malformed,
        "lag": record.lag_rows,
        "phases_ms": record.durations_ms,
        "sources": [
            {"name": source.name, "description": redact(source.description or ""), "rows": source.records}
            for source in record.sources
        ],
    }


def _line(level: Level, event: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"time": iso_from_ms(time.time_ns() // 1_000_000), "level": level, "event": event, **fields}


def _job(job: str | None) -> dict[str, str]:
    return {"job": job} if job else {}
