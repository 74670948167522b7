"""The very records that batches did not count, on real Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from headwater import Console, Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused
from headwater.jobs.loading import load_job
from headwater.spark.dropped import DroppedRecords
from spark.draining import drained
from spark.replay_support import Recorded, golden_steps, run_recorded

STATS = load_job("browser-stats-stateful")
DEDUP = load_job("deduplicated-events")


def visit(at: str, browser: str = "Firefox") -> str:
    return json.dumps({"userId": 1, "page": "x", "eventTime": f"2024-10-06T{at}:00Z", "browser": browser})


def found_in(spark, recorded, batch: int) -> list[dict[str, object]]:
    return [one.as_dict() for one in DroppedRecords(spark, recorded.job, History(recorded.files)).of(batch)]


@pytest.fixture(scope="module")
def stats(headwater_spark, tmp_path_factory):
    spoilt = ["nonsense", '{"userId": "many", "eventTime": "2024-10-06T10:31:00Z"}', "", '{"eventTime": "tomorrow"}']
    late = [visit("10:00"), visit("10:01"), visit("10:02", "Chrome"), visit("10:32")]
    steps = [*golden_steps("browser_stats_stateful")[:5], spoilt, late]
    return run_recorded(headwater_spark, STATS, tmp_path_factory.mktemp("dropped"), steps)


def test_late_records_by_position(headwater_spark, stats) -> None:
    """The late record of the golden story is named by file and line, with its times and the rule that dropped it."""
    (late,) = found_in(headwater_spark, stats, 3)
    assert late["reason"] == "late"
    assert late["path"].endswith("003.json")
    assert late["line"] == 1
    assert late["event_time"] == "2024-10-06T09:30:00.000Z"
    assert late["watermark"] == "2024-10-06T09:43:00.000Z"
    assert "window end 2024-10-06T09:35:00.000Z" in late["detail"]


def test_records_are_counted_and_not_partial_aggregates(headwater_spark, stats) -> None:
    """Three late records in two windows are three, where Spark's own number counts what partial aggregation left."""
    late = found_in(headwater_spark, stats, 6)
    assert [one["line"] for one in late] == [1, 2, 3]
    assert stats.progress[6].dropped == 2


def test_malformed_records_with_their_reason(headwater_spark, stats) -> None:
    """Each malformed record says what is wrong with it; their number is the one that the run counted."""
    bad = found_in(headwater_spark, stats, 5)
    assert [(one["line"], one["detail"]) for one in bad] == [
        (1, "it is no json record"),
        (2, "userId is no int"),
        (3, "it is no json record"),
        (4, "eventTime is no timestamp"),
    ]
    assert stats.progress[5].malformed == 4


def test_what_lies_before_1970_is_late_from_the_first_batch_on(headwater_spark, tmp_path) -> None:
    """Where there is no watermark yet, Spark takes it to be at 1970."""
    old = visit("10:00").replace("2024-10-06", "1969-10-06")
    recorded = run_recorded(headwater_spark, STATS, tmp_path, [[visit("10:00"), old]])
    (late,) = found_in(headwater_spark, recorded, 0)
    assert (late["reason"], late["line"], late["watermark"]) == ("late", 2, "1970-01-01T00:00:00.000Z")
    assert recorded.progress[0].dropped == 1


def test_bytes_that_are_no_text(headwater_spark, tmp_path) -> None:
    """A line with bytes that are no UTF-8 is malformed when it is read again, as it was when the job read it."""
    good = visit("10:00").encode()
    lines = [good, good.replace(b"Fire", b"F\xffire"), good.replace(b"browser", b"bro\xed\xa0\x80wser"), good]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, [lines])
    assert [(one["reason"], one["line"]) for one in found_in(headwater_spark, recorded, 0)] == [
        ("malformed", 2),
        ("malformed", 3),
    ]
    assert recorded.progress[0].malformed == 2


def test_dedup_agrees_with_sparks_count(headwater_spark, tmp_path) -> None:
    """Where Spark counts rows, our records are as many: deduplication sees them one by one."""
    lines = [json.dumps({"User": f"u{n}", "event_time": f"2024-03-01T0{n}:00:00Z"}) for n in range(9)]
    steps = [[lines[0]], [lines[8]], [lines[8]], lines[1:8]]
    recorded = run_recorded(headwater_spark, DEDUP, tmp_path, steps)
    dropped = found_in(headwater_spark, recorded, 3)
    assert len(dropped) == recorded.progress[3].dropped > 3


def test_complete_mode_drops_nothing(headwater_spark, tmp_path) -> None:
    """Complete mode keeps every window, so no record is ever late."""
    steps = [[visit("10:00")], [visit("12:00")], [visit("12:00")], [visit("10:00")]]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, steps, mode="complete")
    assert found_in(headwater_spark, recorded, 3) == []


def test_late_rule_follows_the_job(headwater_spark, tmp_path) -> None:
    """A job that groups sessions drops by the session's end, one with plain event time by that."""
    steps = [[visit("10:00")]]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, steps)
    assert DroppedRecords(headwater_spark, recorded.job, History(recorded.files)).rule.compares == "window end"

    def sessions(visits):
        visits = visits.withWatermark("eventTime", "10 minutes")
        return visits.groupBy(F.session_window("eventTime", "30 minutes"), "browser").count()

    job = replace(recorded.job, transform=sessions, mode="append")
    assert DroppedRecords(headwater_spark, job, History(recorded.files)).rule.compares == "session end"


def test_lines_of_csv_files(headwater_spark, tmp_path) -> None:
    """Headers and empty lines are no records; what does not fit is named by its own line."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_text("\nuser,n\nann,1\n\nbob,many\n \ncat,3\n")
    source = Files(str(inbox), schema="user STRING, n INT", format="csv", decode={"header": "true"})
    job = Job("csv", lambda rows: rows, reads=source, writes=Console(), trigger="available-now")
    recorded = Recorded(job, inbox, tmp_path / "checkpoint", drained(headwater_spark, job, tmp_path / "checkpoint"))
    (bad,) = found_in(headwater_spark, recorded, 0)
    assert (bad["line"], bad["value"], bad["reason"]) == (5, "bob,many", "malformed")
    assert recorded.progress[0].malformed == 1


def test_records_of_many_lines_cannot_be_found(headwater_spark, tmp_path) -> None:
    """A record that is no line has no position, and that is said."""
    source = Files(str(tmp_path), schema="n INT", decode={"multiLine": "true"})
    job = Job("multi", lambda rows: rows, reads=source, writes=Console())
    with pytest.raises(ChangeRefused, match="json files have no position"):
        DroppedRecords(headwater_spark, job, History(LocalTree(tmp_path)))
