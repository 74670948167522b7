"""The failures of a query, recorded in ``_headwater/failures.jsonl``: one line for each run that ended with an error."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import change_times_ms
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.checkpoint.lease import CLOCK_SLACK_MS
from headwater.checkpoint.runs import read_runs
from headwater.core.times import iso_from_ms

FAILURES_FILE = f"{HEADWATER_FOLDER}/failures.jsonl"
MOST_FAILURES = 1_000
_MOST_TEXT = 200


@dataclass(frozen=True)
class FailureRecord:
    """A run that failed. ``number`` counts the failures of the checkpoint from 1; ``batch_id`` is the last one finished."""

    at_ms: int
    code: str
    problem: str
    batch_id: int | None = None
    number: int = 0

    def __str__(self) -> str:
        lines = self.problem.strip().splitlines()
        reason = lines[0] if lines else self.code
        shown = reason if len(reason) <= _MOST_TEXT else f"{reason[: _MOST_TEXT - 1]}…"
        return f"the last run failed at {iso_from_ms(self.at_ms).partition('.')[0]}Z: {shown}"


def read_failures(files: FileTree) -> tuple[FailureRecord, ...]:
    """Return the recorded failures, oldest first. Lines that are not as this version writes them are ignored."""
    try:
        lines = files.read(FAILURES_FILE).decode("utf-8", "replace").split("\n")
    except OSError:
        return ()
    found = (_parse(line, number) for number, line in enumerate(lines, start=1))
    return tuple(record for record in found if record)


def failure_of_last_run(files: FileTree, logged_at_ms: int | None) -> FailureRecord | None:
    """Return the failure that ended the last run; None if that run did not fail, or if the checkpoint has changed since.

    ``logged_at_ms`` is when the newest file of the logs was written.
    """
    newest = max(read_failures(files), key=lambda failure: failure.at_ms, default=None)
    if newest is None:
        return None
    # On an object store, the times of files are from another clock.
    slack_ms = 0 if files.is_local else CLOCK_SLACK_MS
    files_at_ms = max(logged_at_ms or 0, *change_times_ms(files)[-1:], 0) - slack_ms
    runs = read_runs(files)
    return newest if newest.at_ms >= max(files_at_ms, runs[-1].at_ms if runs else 0) else None


def add_failure(files: FileTree, failure: FailureRecord) -> None:
    """Record a failure; the oldest ones are removed. One that cannot be written is discarded."""
    with suppress(OSError):
        before = read_failures(files)
        number = before[-1].number + 1 if before else 1
        kept = [*before[-MOST_FAILURES + 1 :], FailureRecord(**{**asdict(failure), "number": number})]
        lines = "".join(f"{json.dumps(asdict(record), ensure_ascii=False)}\n" for record in kept)
        files.write(FAILURES_FILE, lines.encode())


def _parse(line: str, number: int) -> FailureRecord | None:
    try:
        value = json.loads(line)
        record = FailureRecord(
            value["at_ms"], value["code"], value["problem"], value.get("batch_id"), value.get("number") or number
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    is_valid = isinstance(record.at_ms, int) and isinstance(record.code, str) and isinstance(record.problem, str)
    return record if is_valid and isinstance(record.number, int) else None
