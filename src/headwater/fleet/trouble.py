"""Whether a stream is running and how that is known, and what is wrong with it. Pure: facts and a time in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.checkpoint.signs_of_life import is_fresh
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.core.times import iso_from_ms
from headwater.fleet.summary import StreamSummary

Status = Literal["running", "active", "changing", "failed", "stopped", "quiet", "moved"]
Severity = Literal["error", "warning", "info"]
_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}

STUCK_AFTER_MS, STUCK_FACTOR = 120_000, 10
DROPPED_SHARE = 0.01
GROWTH, BUSY = 0.5, 0.95


@dataclass(frozen=True)
class Activity:
    """Whether a query runs on a checkpoint.

    - ``running``: a process holds Headwater's lease
    - ``active``: it wrote files less than a minute ago, without a lease: probably another program's query
    - ``changing``: a command of Headwater holds the lease
    - ``failed``: the last run ended with an error, and nothing has run or changed since
    - ``stopped``: Headwater ran it last, and its lease is free
    - ``quiet``: no sign of a query; an idle one of another program leaves none
    - ``moved``: ``headwater move`` has taken the checkpoint elsewhere
    """

    status: Status
    how: str

    @property
    def is_running(self) -> bool:
        return self.status in ("running", "active")


def activity_of(summary: StreamSummary, now_ms: int) -> Activity:
    """Return whether a query runs on a checkpoint, and how that is known."""
    lease = summary.lease
    if lease is not None:
        if lease.holder.startswith("headwater "):
            return Activity("changing", f"{lease.holder} holds the lease, process {lease.process}")
        return Activity("running", f"{lease.holder} holds the lease, process {lease.process}")
    if summary.moved_to is not None:
        return Activity("moved", f"headwater move has taken it to {summary.moved_to}")
    if summary.failure is not None:
        return Activity("failed", "the last run ended with an error, and nothing has run since")
    age_ms = None if summary.changed_at_ms is None else now_ms - summary.changed_at_ms
    if age_ms is not None and is_fresh(age_ms) and not summary.ended_with_headwater:
        return Activity("active", f"files changed {max(0, age_ms) // 1000} s ago; no process holds Headwater's lease")
    if summary.ended_with_headwater:
        return Activity("stopped", "Headwater ran its last batch, and no process holds the lease")
    if summary.has_lease_file:
        return Activity("stopped", "no process holds the lease, and no file has changed in the last minute")
    return Activity("quiet", "no file has changed in the last minute; an idle query of another program shows no sign")


@dataclass(frozen=True)
class Trouble:
    """Something about a stream that needs attention, as a clause."""

    severity: Severity
    code: str
    text: str


def troubles_of(summary: StreamSummary, findings: Sequence[Finding] | None, now_ms: int) -> list[Trouble]:
    """Return what is wrong with a stream, the worst first. ``findings`` are those of ``fsck``, None if it has not run."""
    if summary.moved_to is not None:
        return [Trouble("info", "moved", f"moved to {summary.moved_to}")]
    found = [*_unreadable(summary), *_of_findings(findings or ())]
    if summary.problem is None:
        found += [*_failed(summary), *_unfinished(summary, now_ms), *_falling_behind(summary), *_of_rows(summary)]
        if activity_of(summary, now_ms).status == "stopped":
            found.append(Trouble("info", "stopped", "stopped"))
    return sorted(found, key=lambda trouble: _RANK[trouble.severity])


def order(troubles: Sequence[Trouble]) -> tuple[int, ...]:
    """Return a sort key: streams with errors first, then those with warnings, each by the number of problems."""
    counts = [sum(trouble.severity == severity for trouble in troubles) for severity in _RANK]
    worst = min((_RANK[trouble.severity] for trouble in troubles), default=len(_RANK))
    return (worst, *(-number for number in counts))


def _unreadable(summary: StreamSummary) -> Iterator[Trouble]:
    if summary.problem is not None:
        yield Trouble("error", "unreadable", summary.problem.problem)
    if summary.has_pending_change and not (summary.lease and summary.lease.holder.startswith("headwater ")):
        yield Trouble("error", "interrupted-change", "a change by Headwater was interrupted")
    if summary.is_incomplete_copy:
        yield Trouble("error", "interrupted-move", "a move into this folder was interrupted")


def _of_findings(findings: Sequence[Finding]) -> Iterator[Trouble]:
    for severity in ("error", "warning"):
        same = [finding for finding in findings if finding.severity == severity]
        if same:
            codes = ", ".join(dict.fromkeys(finding.code for finding in same))
            yield Trouble("error" if severity == "error" else "warning", "findings", f"fsck: {codes}")


def _failed(summary: StreamSummary) -> Iterator[Trouble]:
    if summary.failure is not None and summary.lease is None:
        yield Trouble("error", "failed", str(summary.failure))


def _unfinished(summary: StreamSummary, now_ms: int) -> Iterator[Trouble]:
    if not summary.is_uncommitted or summary.planned_at_ms is None or summary.is_unused_since_change:
        return
    activity, age_ms = activity_of(summary, now_ms), now_ms - summary.planned_at_ms
    if activity.status == "failed":  # which says as much
        return
    if activity.status == "stopped":
        yield Trouble("warning", "uncommitted", f"ended within batch {summary.last_batch}, which was not committed")
        return
    usual = summary.median_duration_ms
    if usual is not None and age_ms > max(STUCK_AFTER_MS, STUCK_FACTOR * usual):
        code = "slow-batch" if activity.is_running else "uncommitted"
        planned_at = iso_from_ms(summary.planned_at_ms).partition(".")[0]
        text = (
            f"batch {summary.last_batch}, planned at {planned_at}Z, is not committed (others took {usual / 1000:.1f} s)"
        )
        yield Trouble("warning", code, text)


def _falling_behind(summary: StreamSummary) -> Iterator[Trouble]:
    if summary.hold is not None:
        yield Trouble("warning", "watermark-held", str(summary.hold))
    last = summary.recent[-1] if summary.recent else None
    grown = summary.lag_growth
    if last and grown is not None and grown > GROWTH and (last.lag_rows or 0) > (last.rows or 0):
        busy = summary.busy is not None and summary.busy > BUSY
        reason = "batches run back to back" if busy else "batches read less than arrives"
        yield Trouble("warning", "lag-growing", f"lag grew by {grown:.0%} to {last.lag_rows:,} rows: {reason}")
    grown = summary.state_growth
    if grown is not None and grown > GROWTH:
        yield Trouble(
            "warning", "state-growing", f"state grew by {grown:.0%} in the last {count(len(summary.recent), 'batch')}"
        )


def _of_rows(summary: StreamSummary) -> Iterator[Trouble]:
    faults = [
        (name, number) for name, number in (("late", summary.dropped), ("malformed", summary.malformed)) if number
    ]
    if not faults:
        return
    share = sum(number for _, number in faults) / summary.rows if summary.rows else 0.0
    text = " and ".join(f"{number:,} {name}" for name, number in faults)
    yield Trouble(
        "warning" if share >= DROPPED_SHARE else "info",
        "dropped",
        f"{text} rows in the last {count(len(summary.recent), 'batch')}" + (f" ({share:.1%})" if share else ""),
    )
