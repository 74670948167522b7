"""The very records that batches did not count, on real Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from headwater.checkpoint.history import History
from headwater.core.errors import UsageProblem
from headwater.jobs.loading import load_job
from headwater.spark.dead_letters import MARK, DeadLetters, dead_letter_sink
from headwater.spark.dropped import DroppedRecords
from spark.replay_support import golden_steps, run_recorded

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


def test_dead_letters_while_the_job_runs_and_after_a_crash(headwater_spark, tmp_path) -> None:
    """Dropped records land in the folder, one file a batch; a run that died before saving them is caught up."""
    box = tmp_path / "letters"
    steps = [[visit("10:00")], [visit("12:00"), "nonsense"], [visit("12:00")], [visit("10:00"), visit("10:01")]]
    recorded = run_recorded(headwater_spark, STATS, tmp_path / "job", steps, dead_letters=f"files:{box}")
    saved = {file.name: file.read_text() for file in box.iterdir()}
    assert {name: text.count("\n") for name, text in saved.items()} == {
        "batch-000000001.json": 1,
        "batch-000000003.json": 2,
    }
    assert json.loads(recorded.files.read(MARK))["next_batch"] == 4

    (box / "batch-000000003.json").unlink()
    recorded.files.write(MARK, b'{"next_batch": 2}')
    letters = DeadLetters(headwater_spark, recorded.job, recorded.files, dead_letter_sink(f"files:{box}"))
    letters.catch_up()
    letters.close()
    assert {file.name: file.read_text() for file in box.iterdir()} == saved


def test_dead_letters_need_a_topic_or_a_folder() -> None:
    """A console cannot keep anything."""
    with pytest.raises(UsageProblem, match="cannot be kept in console"):
        dead_letter_sink("console:")


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
