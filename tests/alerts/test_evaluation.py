"""When the condition of each kind of rule is met."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headwater.alerts.evaluation import evaluate, needs_sources
from headwater.alerts.history import HistoryReader, StreamHistory
from headwater.alerts.rules import KINDS, Rule
from headwater.checkpoint.failures import FailureRecord
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import PROGRESS_FILE, ProgressRecord
from headwater.core.finding import Finding
from headwater.guards.report import SourceReport

MINUTE, HOUR = 60_000, 3_600_000
NOW = 1_000 * HOUR
EMPTY = StreamHistory("visits", "/checkpoints/visits")


def rule(when: str, limit: float | None = None, **values: object) -> Rule:
    kind = KINDS[when]
    given = {"within_ms": kind.within_ms or 0, "by": kind.by or 0.0, **values}
    return Rule(when, when, kind.default if limit is None else limit, **given)  # type: ignore[arg-type]


def state(one: Rule, history: StreamHistory) -> bool | None:
    (condition,) = evaluate([one], history, NOW)
    return condition.is_met


def batches(*values: int, every_ms: int = MINUTE, **fields: list[int]) -> tuple[ProgressRecord, ...]:
    """Return batches at an interval, the last one now, with a value of a field for each."""
    return tuple(
        ProgressRecord(number, NOW - (len(values) - 1 - number) * every_ms, lag_rows=value, state_rows=value)
        for number, value in enumerate(values)
    )


@pytest.mark.parametrize("when", KINDS)
def test_nothing_is_known(when: str) -> None:
    """On a stream without history no rule fires, and none resolves but that on failures."""
    assert state(rule(when), EMPTY) is (False if when == "batches-failing" else None)


def test_watermark_behind() -> None:
    """The lag of the watermark is measured against the clock, so it grows while a stream hangs."""
    behind = rule("watermark-behind", 30 * MINUTE)
    assert state(behind, replace(EMPTY, watermark_ms=NOW - 29 * MINUTE)) is False
    late = replace(EMPTY, watermark_ms=NOW - 31 * MINUTE)
    assert state(behind, late) is True
    (condition,) = evaluate([behind], late, NOW)
    assert condition.summary == "the watermark lags 31 min (limit 30 min)"
    assert condition.value == 31 * MINUTE


def test_nothing_committed() -> None:
    """Silence is an alert, unless Kafka is known to have nothing to read."""
    silent = replace(EMPTY, last_commit_ms=NOW - 16 * MINUTE, last_batch=7)
    assert state(rule("nothing-committed"), silent) is True
    assert state(rule("nothing-committed"), replace(silent, sources=SourceReport(unread=0))) is False
    assert state(rule("nothing-committed"), replace(silent, sources=SourceReport(unread=5))) is True
    assert state(rule("nothing-committed"), replace(silent, last_commit_ms=NOW - MINUTE)) is False


def test_lag_growing() -> None:
    """The lag has to grow over the window and to exceed the limit; peaks, and a lag that shrinks again, do not count."""
    growing = rule("lag-growing", 100)
    assert state(growing, replace(EMPTY, records=batches(10, 20, 40, 80, 160, 320, 640, 1280, 2560))) is True
    assert state(growing, replace(EMPTY, records=batches(900, 900, 5000, 900, 900, 900, 900, 900, 900))) is False
    assert state(growing, replace(EMPTY, records=batches(9000, 8000, 7000, 6000, 5000, 4000, 3000, 2000))) is False
    assert state(growing, replace(EMPTY, records=batches(10, 11, 12, 20, 30, 40, 50, 60))) is False
    assert state(growing, replace(EMPTY, records=batches(1000, 1000, 1000, 1050, 1040, 1060, 1070, 1050))) is False
    assert state(growing, replace(EMPTY, records=batches(5000))) is None


def test_state_growing() -> None:
    """The size of the state is compared over hours."""
    hours = {"every_ms": 30 * MINUTE}
    growing = replace(EMPTY, records=batches(*range(20_000, 80_000, 5_000), **hours))
    steady = replace(EMPTY, records=batches(*[50_000] * 12, **hours))
    assert state(rule("state-growing"), growing) is True
    assert state(rule("state-growing"), steady) is False


def test_batches_failing() -> None:
    """Failures within the window are counted; older ones are forgotten."""
    failures = tuple(FailureRecord(NOW - age, "job-failed", "it broke") for age in (2 * HOUR, 30 * MINUTE, MINUTE))
    assert state(rule("batches-failing", 2), replace(EMPTY, failures=failures)) is True
    assert state(rule("batches-failing", 3), replace(EMPTY, failures=failures)) is False
    (condition,) = evaluate([rule("batches-failing", 1)], replace(EMPTY, failures=failures), NOW)
    assert condition.summary == "2 failures in 1 h; the last one: it broke (job-failed)"


def test_dropped_share() -> None:
    """Late and malformed records count, as a share of all rows in the window."""
    recent = ProgressRecord(2, NOW - MINUTE, input_rows=1000, dropped=20, malformed=40)
    old = ProgressRecord(1, NOW - HOUR, input_rows=10, dropped=10)
    assert state(rule("dropped-share", 0.05), replace(EMPTY, records=(old, recent))) is True
    assert state(rule("dropped-share", 0.06), replace(EMPTY, records=(old, recent))) is False
    assert state(rule("dropped-share", 0.05), replace(EMPTY, records=(old,))) is None


def test_retention_and_sources() -> None:
    """The closest topic decides; errors of the sources are quoted."""
    near = SourceReport(overtaken_in_ms={"visits": 5 * HOUR, "orders": math.inf})
    assert state(rule("retention-close"), replace(EMPTY, sources=near)) is True
    assert state(rule("retention-close", 4 * HOUR), replace(EMPTY, sources=near)) is False
    far = SourceReport(overtaken_in_ms={"visits": math.inf})
    assert state(rule("retention-close"), replace(EMPTY, sources=far)) is False
    broken = SourceReport((Finding("error", "no-topic", "kafka:visits", "does not exist"),))
    (condition,) = evaluate([rule("source-problem")], replace(EMPTY, sources=broken), NOW)
    assert (condition.is_met, condition.summary) == (True, "kafka:visits does not exist")
    assert state(rule("source-problem"), replace(EMPTY, sources=far)) is False


def test_sources_are_checked_only_if_needed() -> None:
    """A stream that commits needs no check of its sources for the rule on silence."""
    assert needs_sources([rule("retention-close")], EMPTY, NOW)
    assert not needs_sources([rule("nothing-committed"), rule("lag-growing")], replace(EMPTY, last_commit_ms=NOW), NOW)
    assert needs_sources([rule("nothing-committed")], replace(EMPTY, last_commit_ms=0), NOW)


def test_other_streams() -> None:
    """A rule for other jobs gives no condition."""
    assert evaluate([rule("batches-failing", jobs=("orders",))], EMPTY, NOW) == []


def test_history_is_read_from_a_checkpoint() -> None:
    """Records of batches that a rewind removed are left out."""
    lines = "".join(ProgressRecord(number, number + 1, lag_rows=5).to_line() for number in range(4))
    files = MemoryTree(
        {
            "offsets/0": b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{}}\n0',
            "offsets/1": b'v1\n{"batchWatermarkMs":70,"batchTimestampMs":9,"conf":{}}\n1',
            "commits/0": b'v1\n{"nextBatchWatermarkMs":90}',
            PROGRESS_FILE: lines.encode(),
            "_headwater/job.json": b'{"job": "visits"}',
            "_headwater/failures.jsonl": b'{"at_ms":1,"code":"job-failed","problem":"x"}\nno json\n',
        }
    )
    found = HistoryReader(files, records_ms=MINUTE).read(MINUTE)
    assert (found.name, found.last_batch, found.watermark_ms) == ("visits", 0, 90)
    assert [record.batch_id for record in found.records] == [0, 1]
    assert found.failures == (FailureRecord(1, "job-failed", "x", None, 1),)
