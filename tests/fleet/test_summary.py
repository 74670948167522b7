"""One checkpoint in a few numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint, corpus_names
from fleet.streams import T0, record, write_stream
from headwater.checkpoint.failures import FailureRecord, add_failure
from headwater.checkpoint.lease import CLOCK_SLACK_MS, hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.moved import INCOMPLETE, POINTER, MovedTo
from headwater.checkpoint.record import PROGRESS_FILE, newest_progress
from headwater.checkpoint.runs import RUNS_FILE, RunRecord, add_run
from headwater.core.finding import Finding
from headwater.core.times import iso_from_ms
from headwater.fleet.fleet import Stream
from headwater.fleet.summary import AWAITED_RECORDS, StreamSummary, growth, read_summary
from headwater.fleet.trouble import activity_of, order, troubles_of
from headwater.views.fleet import StreamView
from two_sources import TwoSources

Corpus = Callable[[str], CorpusCheckpoint]
LATER = T0 + 86_400_000


def summary(folder: Path) -> StreamSummary:
    return read_summary(LocalTree(folder))


def codes(found: StreamSummary, now_ms: int = LATER, findings: tuple[Finding, ...] = ()) -> list[str]:
    return [trouble.code for trouble in troubles_of(found, findings, now_ms)]


def test_from_the_logs_alone(tmp_path: Path) -> None:
    """Batches, rows, rates and the watermark follow from the logs, also if Headwater recorded nothing."""
    found = summary(write_stream(tmp_path))
    assert (found.last_batch, found.last_committed, found.is_uncommitted) == (7, 7, False)
    assert found.watermark_ms == T0 - 60_000
    assert found.input_rate == 100
    assert found.rows == 700
    assert (found.lag_rows, found.state_rows, found.dropped) == (None, None, None)
    assert [endpoint.label for endpoint in found.reads] == ["kafka visits"]


def test_from_the_records(tmp_path: Path) -> None:
    """Lag, state, its growth and dropped rows come from the records."""
    records = [record(number, lag_rows=10, state_rows=100 + 20 * number, dropped=1) for number in range(8)]
    found = summary(write_stream(tmp_path, records=records))
    assert (found.lag_rows, found.state_rows, found.dropped) == (10, 240, 8)
    assert found.processed_rate == 500
    assert found.state_growth == pytest.approx((230 - 110) / 110)
    assert codes(found) == ["state-growing", "dropped"]


def test_records_from_before_a_rewind(tmp_path: Path) -> None:
    """Records of batches that were rewound, or that ran again and are not recorded yet, do not count."""
    stale = [record(number, lag_rows=5) for number in range(8)]
    write_stream(tmp_path, batches=5, records=stale)
    assert summary(tmp_path).recent[-1].batch_id == 4
    (tmp_path / "offsets" / "4").write_text(
        (tmp_path / "offsets" / "4").read_text().replace(str(T0 + 4000), str(T0 + 999_000))
    )
    assert [batch.batch_id for batch in summary(tmp_path).recent] == [0, 1, 2, 3]


def test_newest_batches_without_a_record(tmp_path: Path) -> None:
    """Lag, state and dropped rows stay while the newest batches are not recorded yet, up to a limit."""
    records = [record(number, lag_rows=10 + number, state_rows=100, dropped=1) for number in range(8)]
    found = summary(write_stream(tmp_path / "few", batches=9, records=records))
    assert (found.last_committed, found.recent[-1].batch_id) == (8, 7)
    assert (found.lag_rows, found.state_rows, found.dropped) == (17, 100, 8)
    assert codes(found) == ["dropped"]
    many = summary(write_stream(tmp_path / "many", batches=9 + AWAITED_RECORDS, records=records))
    assert (many.is_recorded, many.lag_rows, many.recent[-1].batch_id) == (False, None, 8 + AWAITED_RECORDS)


@pytest.mark.parametrize("name", [*corpus_names("spark4.3-"), "crashed-before", "kafka-join", "rate", "named"])
def test_every_checkpoint_has_a_summary(corpus: Corpus, name: str) -> None:
    """The summary of what Spark wrote names the last batch and raises nothing."""
    found = read_summary(corpus(name).files)
    assert found.problem is None
    assert found.last_batch is not None
    assert troubles_of(found, None, LATER) is not None


def test_corrupt_checkpoint_is_trouble(tmp_path: Path) -> None:
    """A log entry that cannot be read is the reason for trouble, not an exception."""
    write_stream(tmp_path)
    (tmp_path / "offsets" / "7").write_bytes(b"v1\n{")
    assert codes(summary(tmp_path)) == ["unreadable"]
    (tmp_path / PROGRESS_FILE).parent.mkdir()
    (tmp_path / PROGRESS_FILE).write_text(
        json.dumps({"batch_id": 6, "at_ms": T0 + 6000, "duration_ms": 1, "state_rows": "x", "input_rows": None}) + "\n"
    )
    assert codes(summary(tmp_path)) == ["unreadable"]


def test_long_logs_are_read_at_their_end(tmp_path: Path) -> None:
    """Of a log with many batches, only the newest ones are listed; the numbers are the same."""
    found = summary(write_stream(tmp_path, batches=130, committed=129))
    assert (found.last_planned, found.last_committed) == (129, 128)
    assert found.input_rate == 100
    assert [batch.batch_id for batch in found.recent] == list(range(113, 129))


def test_running_stopped_or_unknown(tmp_path: Path) -> None:
    """A held lease means running; a free one, stopped; without one, only fresh files show a query."""
    other = summary(write_stream(tmp_path / "other"))
    changed = other.changed_at_ms
    assert changed is not None
    assert activity_of(other, changed + 5_000).status == "active"
    assert activity_of(other, changed + 90_000).status == "quiet"
    ahead = activity_of(other, changed - CLOCK_SLACK_MS)
    assert (ahead.status, ahead.how.partition(";")[0]) == ("active", "files changed 0 s ago")
    assert activity_of(other, changed - 90_000).status == "quiet"
    files = LocalTree(write_stream(tmp_path / "own"))
    with hold_lease(files, "visits", "cannot run"):
        running = activity_of(read_summary(files), LATER)
    assert (running.status, "visits holds the lease, process " in running.how) == ("running", True)
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        assert activity_of(read_summary(files), LATER).status == "changing"
    stopped = read_summary(files)
    assert activity_of(stopped, (stopped.changed_at_ms or 0) + 90_000).status == "stopped"


def test_uncommitted_batch(tmp_path: Path) -> None:
    """A batch that takes far longer than the others is trouble; one that was just planned is not."""
    found = summary(write_stream(tmp_path, committed=7))
    assert found.is_uncommitted
    assert "uncommitted" in codes(found, LATER * 2)
    assert codes(found, T0 + 8_000) == []


def test_batch_that_a_rewind_put_next_is_no_trouble(tmp_path: Path) -> None:
    """After a rewind, the next batch is planned and not committed, which is trouble only once a run has begun it."""
    files = LocalTree(write_stream(tmp_path, committed=7))
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        files.write("_headwater/journal/000001.json", b"{}")
    found = read_summary(files)
    assert found.is_uncommitted
    assert codes(found) == ["stopped"]
    add_run(files, RunRecord(T0, 7))
    later = (found.changed_at_ms or 0) / 1000 + 90
    os.utime(tmp_path / RUNS_FILE, (later, later))
    assert codes(read_summary(files)) == ["uncommitted", "stopped"]


def test_failed_run(tmp_path: Path) -> None:
    """A stream whose last run failed has failed, with the reason, until it runs again or is changed."""
    files = LocalTree(write_stream(tmp_path, committed=7))
    failed_ms = (summary(tmp_path).changed_at_ms or 0) + 5_000
    add_run(files, RunRecord(failed_ms - 4_000, 7))
    add_failure(files, FailureRecord(failed_ms, "job-failed", "visits failed: division by zero\nCaused by: …", 6))
    found = read_summary(files)
    assert activity_of(found, failed_ms + 1_000).status == "failed"
    (trouble,) = troubles_of(found, None, failed_ms + 1_000)
    assert (trouble.severity, trouble.code) == ("error", "failed")
    assert trouble.text == f"the last run failed at {iso_from_ms(failed_ms)[:19]}Z: visits failed: division by zero"
    view = StreamView(Stream("visits", "visits", found), failed_ms)
    assert (view.as_dict()["status"], view.as_row()["status"]) == ("failed", "failed")
    with hold_lease(files, "visits", "cannot run"):
        running = read_summary(files)
        assert activity_of(running, failed_ms).status == "running"
        assert "failed" not in codes(running)
    add_run(files, RunRecord(failed_ms + 1_000, 7))
    assert "failed" not in codes(read_summary(files))


def test_rewind_after_a_failure(tmp_path: Path) -> None:
    """A stream that was rewound after its failure has not failed."""
    files = LocalTree(write_stream(tmp_path))
    failed_ms = (summary(tmp_path).changed_at_ms or 0) + 5_000
    add_failure(files, FailureRecord(failed_ms, "job-failed", "visits failed", 6))
    assert "failed" in codes(read_summary(files))
    files.write("_headwater/journal/000001.json", b"{}")
    os.utime(tmp_path / "_headwater/journal/000001.json", (failed_ms / 1000 + 9, failed_ms / 1000 + 9))
    assert "failed" not in codes(read_summary(files))


def test_growing_lag(tmp_path: Path) -> None:
    """A lag that grows beyond one batch is trouble; one that shrinks or is small is not."""

    def lags(*numbers: int) -> list[str]:
        records = [record(place, lag_rows=number) for place, number in enumerate(numbers)]
        return codes(summary(write_stream(tmp_path / str(numbers[-1]), batches=len(numbers), records=records)))

    assert lags(100, 200, 300, 400, 500, 600) == ["lag-growing"]
    assert lags(600, 500, 400, 300, 200, 101) == []
    assert lags(1, 2, 3, 4, 5, 6) == []


def test_held_watermark(tmp_path: Path) -> None:
    """The source that holds the watermark back is named."""
    made = TwoSources()
    for _ in range(4):
        made.batch(5, 0, watermark=1)
    found = summary(made.write(tmp_path))
    trouble = troubles_of(found, None, LATER)[0]
    assert trouble.code == "watermark-held"
    assert "clicked) has been idle" in trouble.text


def test_moved_checkpoint(tmp_path: Path) -> None:
    """What a move has left behind is no trouble, and names the new place; an incomplete copy is trouble."""
    files = LocalTree(write_stream(tmp_path / "old", committed=7))
    files.write(POINTER, MovedTo("/new/place", "m", 1, 7, 0, None, None).to_bytes())
    found = read_summary(files)
    assert activity_of(found, LATER).status == "moved"
    assert [(trouble.severity, trouble.text) for trouble in troubles_of(found, None, LATER)] == [
        ("info", "moved to /new/place")
    ]
    copy = LocalTree(write_stream(tmp_path / "new"))
    copy.write(INCOMPLETE, b"{}")
    assert codes(read_summary(copy)) == ["interrupted-move"]


def test_order_by_trouble() -> None:
    """Errors come before warnings, warnings before a stopped stream, and that before one without trouble."""
    fine = StreamSummary(changed_at_ms=T0)
    stopped = StreamSummary(changed_at_ms=T0, has_lease_file=True)
    warned, broken = Finding("warning", "w", "", ""), Finding("error", "e", "", "")
    ranked = [
        troubles_of(fine, (broken,), LATER),
        troubles_of(fine, (warned,), LATER),
        troubles_of(stopped, (), LATER),
        troubles_of(fine, (), LATER),
    ]
    shuffled = [ranked[place] for place in (2, 0, 3, 1)]
    assert sorted(shuffled, key=order) == ranked


def test_only_the_end_of_the_records_is_read(tmp_path: Path) -> None:
    """The newest records are those at the end of the file, then those of the older file; a truncated line is ignored."""
    lines = [record(number).to_line() for number in range(400)]
    (tmp_path / "_headwater").mkdir()
    (tmp_path / "_headwater" / "progress.older.jsonl").write_text("".join(lines[:390]))
    (tmp_path / PROGRESS_FILE).write_text("".join(lines[390:]) + '{"batch_id":400,"at')
    assert list(newest_progress(LocalTree(tmp_path), 9)) == list(range(391, 400))
    assert list(newest_progress(LocalTree(tmp_path), 41)) == list(range(359, 400))


def test_growth() -> None:
    """Growth compares the last third with the first one; few or unknown numbers have none."""
    assert growth([10, 10, 10, 20, 20, 20]) == 1.0
    assert growth([1, 2, 3]) is None
    assert growth([None] * 9) is None
    assert growth([0] * 6) == 0.0
