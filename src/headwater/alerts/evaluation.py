"""Evaluate rules on the history of a stream. Pure: the same history and time give the same conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from headwater.alerts.history import StreamHistory
from headwater.alerts.rules import Rule
from headwater.checkpoint.record import ProgressRecord
from headwater.core.text import count
from headwater.views.formatting import format_duration

Measured = tuple[bool | None, float | None, str]
"""Whether a condition holds (None if it is unknown), the value that decides, and a clause about it."""


@dataclass(frozen=True)
class Condition:
    """A rule on a stream. ``is_met`` is None if the history does not show it: an alert then neither fires nor resolves."""

    rule: Rule
    stream: str
    checkpoint: str
    is_met: bool | None
    value: float | None
    summary: str
    batch_id: int | None = None


def evaluate(rules: Iterable[Rule], history: StreamHistory, now_ms: int) -> list[Condition]:
    """Return the condition of each rule that applies to a stream."""
    found = []
    for rule in rules:
        if rule.applies_to(history.name):
            is_met, value, summary = _EVALUATE[rule.when](rule, history, now_ms)
            found.append(Condition(rule, history.name, history.checkpoint, is_met, value, summary, history.last_batch))
    return found


def needs_sources(rules: Iterable[Rule], history: StreamHistory, now_ms: int) -> bool:
    """Return whether a rule depends on the sources, which take longer to check than a checkpoint takes to read."""
    return any(
        rule.when in ("retention-close", "source-problem")
        or (rule.when == "nothing-committed" and _nothing_committed(rule, history, now_ms)[0])
        for rule in rules
    )


def _watermark_behind(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    if history.watermark_ms is None:
        return None, None, "there is no watermark"
    lag = now_ms - history.watermark_ms
    return lag > rule.limit, lag, f"the watermark lags {_duration(lag)} (limit {_duration(rule.limit)})"


def _nothing_committed(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    if history.last_commit_ms is None:
        return None, None, "there is no batch"
    age = now_ms - history.last_commit_ms
    batch = "no batch was committed" if history.last_batch is None else f"batch {history.last_batch} was the last one"
    summary = f"nothing was committed for {_duration(age)} (limit {_duration(rule.limit)}); {batch}"
    if age > rule.limit and history.sources is not None and history.sources.unread == 0:
        return False, age, f"{summary}; Kafka has no unread records"
    return age > rule.limit, age, summary


def _batches_failing(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    recent = [failure for failure in history.failures if failure.at_ms > now_ms - rule.within_ms]
    if not recent:
        return False, 0, f"no failure in {_duration(rule.within_ms)}"
    times = f"{count(len(recent), 'failure')} in {_duration(rule.within_ms)}"
    return len(recent) >= rule.limit, len(recent), f"{times}; the last one: {recent[-1].problem} ({recent[-1].code})"


def _dropped_share(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    recent = _within(history.records, now_ms, rule.within_ms)
    rows, lost = sum(one.input_rows for one in recent), sum(one.dropped + one.malformed for one in recent)
    if not rows:
        return None, None, f"no rows in {_duration(rule.within_ms)}"
    share = lost / rows
    what = f"{lost:,} of {count(rows, 'row')} were dropped as late or malformed in {_duration(rule.within_ms)}"
    return share > rule.limit, share, f"{what}: {share:.2%} (limit {rule.limit:.2%})"


def _retention_close(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:  # noqa: ARG001
    left = history.sources.soonest_ms if history.sources else None
    if history.sources is None or left is None:
        return None, None, "the retention of the sources is unknown"
    topics = ", ".join(topic for topic, value in history.sources.overtaken_in_ms.items() if value == left)
    if math.isinf(left):
        return False, None, "the stream keeps ahead of retention"
    summary = f"retention overtakes the stream in {_duration(left)} at its present speed (topic {topics})"
    return left < rule.limit, left, summary if left else f"records of {topics} may expire before they are read"


def _source_problem(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:  # noqa: ARG001
    if history.sources is None:
        return None, None, "the sources have not been checked"
    errors = [finding for finding in history.sources.findings if finding.severity == "error"]
    if not errors:
        return False, 0, "no errors in the sources"
    return True, len(errors), "; ".join(f"{finding.path} {finding.message}" for finding in errors[:3])


def _growing(rule: Rule, history: StreamHistory, now_ms: int, what: str, value: _Value) -> Measured:
    """Compare the median of the later half of the window with that of the earlier half: single peaks do not count."""
    found = [
        (one.at_ms, number)
        for one in _within(history.records, now_ms, rule.within_ms)
        if (number := value(one)) is not None
    ]
    middle = now_ms - rule.within_ms / 2
    earlier, later = [number for at, number in found if at < middle], [number for at, number in found if at >= middle]
    if not earlier or not later:
        return None, None, f"there are too few batches in {_duration(rule.within_ms)}"
    before, after, newest = median(earlier), median(later), found[-1][1]
    is_met = after > before and after >= before * (1 + rule.by) and newest > rule.limit
    summary = f"{what} went from {before:,.0f} to {after:,.0f} within {_duration(rule.within_ms)}; now {newest:,}"
    return is_met, newest, summary


_Value = Callable[[ProgressRecord], int | None]


def _lag_growing(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    return _growing(rule, history, now_ms, "the lag", lambda record: record.lag_rows)


def _state_growing(rule: Rule, history: StreamHistory, now_ms: int) -> Measured:
    return _growing(rule, history, now_ms, "the state", lambda record: record.state_rows)


def _within(records: Iterable[ProgressRecord], now_ms: int, within_ms: int) -> list[ProgressRecord]:
    return [record for record in records if record.at_ms + record.duration_ms > now_ms - within_ms]


def _duration(milliseconds: float) -> str:
    return format_duration(int(milliseconds) // 1000 * 1000 if milliseconds >= 1000 else int(milliseconds))


_EVALUATE: dict[str, Callable[[Rule, StreamHistory, int], Measured]] = {
    "watermark-behind": _watermark_behind,
    "lag-growing": _lag_growing,
    "batches-failing": _batches_failing,
    "state-growing": _state_growing,
    "nothing-committed": _nothing_committed,
    "dropped-share": _dropped_share,
    "retention-close": _retention_close,
    "source-problem": _source_problem,
}
