"""The records that batches dropped, on real Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from cli.running import Command
from headwater import Checkpoint, Console, Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused
from headwater.jobs.loading import load_job
from headwater.spark.dropped import DroppedRecords
from headwater.spark.session import temporary_settings
from spark.draining import drain_source
from spark.replay_support import Recorded, golden_steps, run_recorded

STATS = load_job("browser-stats-stateful")
DEDUP = load_job("deduplicated-events")


def visit(at: str, browser: str = "Firefox") -> str:
    return json.dumps({"userId": 1, "page": "x", "eventTime": f"2024-10-06T{at}:00Z", "browser": browser})


def found_in(spark, recorded, batch: int) -> list[dict[str, object]]:
    return [one.as_dict() for one in DroppedRecords(spark, recorded.job, History(recorded.files)).in_batch(batch)]


@pytest.fixture(scope="module")
def stats(headwater_spark, tmp_path_factory):
    malformed = ["nonsense", '{"userId": "many", "eventTime": "2024-10-06T10:31:00Z"}', "", '{"eventTime": "tomorrow"}']
    late = [visit("10:00"), visit("10:01"), visit("10:02", "Chrome"), visit("10:32")]
    steps = [*golden_steps("browser_stats_stateful")[:5], malformed, late]
    return run_recorded(headwater_spark, STATS, tmp_path_factory.mktemp("dropped"), steps)


def test_late_records_by_position(headwater_spark, stats) -> None:
    """A late record is identified by file and line, with its times and the rule that dropped it."""
    (late,) = found_in(headwater_spark, stats, 3)
    assert late["reason"] == "late"
    assert late["path"].endswith("003.json")
    assert late["line"] == 1
    assert late["event_time"] == "2024-10-06T09:30:00.000Z"
    assert late["watermark"] == "2024-10-06T09:43:00.000Z"
    assert "window end 2024-10-06T09:35:00.000Z" in late["detail"]


def test_records_are_counted_and_not_partial_aggregates(headwater_spark, stats) -> None:
    """Three late records in two windows count as three, although Spark counts two rows after partial aggregation."""
    late = found_in(headwater_spark, stats, 6)
    assert [one["line"] for one in late] == [1, 2, 3]
    assert stats.progress[6].dropped == 2


def test_malformed_records_with_their_reason(headwater_spark, stats) -> None:
    """Each malformed record has a reason, and there are as many of them as the run counted."""
    bad = found_in(headwater_spark, stats, 5)
    assert [(one["line"], one["detail"]) for one in bad] == [
        (1, "not a valid json record"),
        (2, "userId is not a valid int"),
        (3, "not a valid json record"),
        (4, "eventTime is not a valid timestamp"),
    ]
    assert stats.progress[5].malformed == 4


def test_python_and_command_line_find_the_same(headwater_spark, stats, monkeypatch, capsys) -> None:
    """``Checkpoint.late`` returns the records that ``late --json`` prints, found with the session that is running."""
    folder = stats.job.reads.path
    options = ("--job", "browser-stats-stateful", "--source", f"files:{folder}?format=json")
    checkpoint = Checkpoint(stats.files.location)
    expected = {batch: found_in(headwater_spark, stats, batch) for batch in (3, 5)}
    with temporary_settings(headwater_spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        for batch, dropped in expected.items():
            ran = Command(monkeypatch, capsys)("late", stats.files.location, *options, "--batch", batch, "--json")
            found = [record.as_dict() for record in checkpoint.late(batch, job=stats.job)]
            assert found == [json.loads(line) for line in ran.out.splitlines()] == dropped
        assert headwater_spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    everything = checkpoint.late(job=STATS, source=f"files:{folder}?format=json")
    assert {record.batch_id for record in everything} >= {3, 5, 6}


def test_records_before_1970_are_always_late(headwater_spark, tmp_path) -> None:
    """The initial watermark is 1970, so the first batch already drops older records."""
    old = visit("10:00").replace("2024-10-06", "1969-10-06")
    recorded = run_recorded(headwater_spark, STATS, tmp_path, [[visit("10:00"), old]])
    (late,) = found_in(headwater_spark, recorded, 0)
    assert (late["reason"], late["line"], late["watermark"]) == ("late", 2, "1970-01-01T00:00:00.000Z")
    assert recorded.progress[0].dropped == 1


def test_invalid_utf8(headwater_spark, tmp_path) -> None:
    """A line with invalid UTF-8 is malformed when it is read again, as it was when the job read it."""
    good = visit("10:00").encode()
    lines = [good, good.replace(b"Fire", b"F\xffire"), good.replace(b"browser", b"bro\xed\xa0\x80wser"), good]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, [lines])
    assert [(one["reason"], one["line"]) for one in found_in(headwater_spark, recorded, 0)] == [
        ("malformed", 2),
        ("malformed", 3),
    ]
    assert recorded.progress[0].malformed == 2


def test_dedup_agrees_with_sparks_count(headwater_spark, tmp_path) -> None:
    """For deduplication, which receives single records, there are as many as Spark counts."""
    lines = [json.dumps({"User": f"u{n}", "event_time": f"2024-03-01T0{n}:00:00Z"}) for n in range(9)]
    steps = [[lines[0]], [lines[8]], [lines[8]], lines[1:8]]
    recorded = run_recorded(headwater_spark, DEDUP, tmp_path, steps)
    dropped = found_in(headwater_spark, recorded, 3)
    assert len(dropped) == recorded.progress[3].dropped > 3


def test_complete_mode_drops_nothing(headwater_spark, tmp_path) -> None:
    """Complete mode keeps every window, so no record is late."""
    steps = [[visit("10:00")], [visit("12:00")], [visit("12:00")], [visit("10:00")]]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, steps, mode="complete")
    assert found_in(headwater_spark, recorded, 3) == []


def test_late_rule_follows_the_job(headwater_spark, tmp_path) -> None:
    """A job with windows compares the end of the window, one with sessions the end of the session."""
    steps = [[visit("10:00")]]
    recorded = run_recorded(headwater_spark, STATS, tmp_path, steps)
    assert DroppedRecords(headwater_spark, recorded.job, History(recorded.files)).rules[0].compares == "window end"

    def sessions(visits):
        visits = visits.withWatermark("eventTime", "10 minutes")
        return visits.groupBy(F.session_window("eventTime", "30 minutes"), "browser").count()

    job = replace(recorded.job, transform=sessions, mode="append")
    assert DroppedRecords(headwater_spark, job, History(recorded.files)).rules[0].compares == "session end"


def test_lines_of_csv_files(headwater_spark, tmp_path) -> None:
    """Headers and empty lines are not records; a malformed line is identified by its number."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_text("\nuser,n\nann,1\n\nbob,many\n \ncat,3\n")
    source = Files(str(inbox), schema="user STRING, n INT", format="csv", decode={"header": "true"})
    job = Job("csv", lambda rows: rows, reads=source, writes=Console(), trigger="available-now")
    recorded = Recorded(
        job, inbox, tmp_path / "checkpoint", drain_source(headwater_spark, job, tmp_path / "checkpoint")
    )
    (bad,) = found_in(headwater_spark, recorded, 0)
    assert (bad["line"], bad["value"], bad["reason"]) == (5, "bob,many", "malformed")
    assert recorded.progress[0].malformed == 1


def test_comments_of_csv_files(headwater_spark, tmp_path) -> None:
    """A comment is not a record, and the header may follow it; options of the reader decode records here, too."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_text("# made by hand\n\nuser;n\nann;1\n# bob;many\ncat;many\n")
    options = {"header": "true", "comment": "#", "sep": ";"}
    source = Files(str(inbox), schema="user STRING, n INT", format="csv", options=options)
    job = Job("csv", lambda rows: rows, reads=source, writes=Console(), trigger="available-now")
    recorded = Recorded(
        job, inbox, tmp_path / "checkpoint", drain_source(headwater_spark, job, tmp_path / "checkpoint")
    )
    (bad,) = found_in(headwater_spark, recorded, 0)
    assert (bad["line"], bad["value"]) == (6, "cat;many")
    assert (recorded.progress[0].malformed, recorded.progress[0].input_rows) == (1, 2)


def test_records_of_several_lines_are_refused(headwater_spark, tmp_path) -> None:
    """A record that is not a line has no position, so it cannot be read again."""
    source = Files(str(tmp_path), schema="n INT", decode={"multiLine": "true"})
    job = Job("multi", lambda rows: rows, reads=source, writes=Console())
    with pytest.raises(ChangeRefused, match="json files have no position"):
        DroppedRecords(headwater_spark, job, History(LocalTree(tmp_path)))
