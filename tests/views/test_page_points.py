"""Batches as points of a chart."""

from __future__ import annotations

from dataclasses import replace

from headwater.checkpoint.failures import FailureRecord
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator
from headwater.checkpoint.record import ProgressRecord, read_progress
from headwater.checkpoint.runs import MOST_RUNS, RUNS_FILE, RunRecord, add_run, read_runs, runs_file
from headwater.core.ids import BatchId
from headwater.timemachine.change import Change
from headwater.timemachine.journal import Entry
from headwater.views.fork_comparison import ComparedStream, compare_fork
from headwater.views.page_events import Events, Mark, timeline_marks
from headwater.views.page_points import Point, merge_points, points, rewind_times_ms
from headwater.views.page_summary import summary_figures
from headwater.web import charts
from headwater.web.timeline_charts import foremost, fork_timeline, timeline
from two_sources import TwoSources, at_ms

T0 = 1_700_000_000_000


def batch(number: int, *, status: str = "committed", why_not: str | None = None, committed_at_ms: int = T0) -> Batch:
    done = status == "committed"
    return Batch(
        batch_id=BatchId(number),
        status="committed" if done else "planned",
        planned_at_ms=committed_at_ms - 500,
        committed_at_ms=committed_at_ms if done else None,
        watermark_ms=None,
        sources=(),
        state_version=None,
        stores=0,
        stores_missing=0,
        why_not=why_not,
    )


def rewind(*undone: int, change_id: str = "r1", at_ms: int = T0 + 1) -> Entry:
    change = Change(change_id, "rewind", "", (), to=undone[0] - 1, details={"undone": list(undone)})
    return Entry(1, at_ms, change)


def test_kinds_of_batches() -> None:
    """A batch is kept, reachable by a rewind, planned, or rewound."""
    batches = [batch(0, why_not="state is gone"), batch(1), batch(2, status="planned")]
    found = points(batches, {}, rewind_times_ms([rewind(2, 3)]))
    assert [(point.first, point.kind) for point in found] == [
        (0, "kept"),
        (1, "reachable"),
        (2, "planned"),
        (3, "rewound"),
    ]


def test_batch_that_ran_again() -> None:
    """A batch that was committed again after a rewind is marked; an earlier one is not."""
    rewound = rewind_times_ms([rewind(2, 3)])
    found = points([batch(1), batch(2, committed_at_ms=T0 + 5000)], {}, rewound)
    assert [point.kind for point in found] == ["reachable", "again", "rewound"]


def test_undone_rewind() -> None:
    """Batches that undo has restored are not shown as rewound."""
    undo = Entry(2, T0 + 2, Change("u1", "undo", "", (), undoes="r1"))
    assert rewind_times_ms([rewind(2, 3), undo]) == {}


def test_report_from_before_a_rewind_is_ignored() -> None:
    """The progress report of a rewound batch is not shown for the batch that has its number now."""
    old = ProgressRecord(batch_id=5, at_ms=T0 - 3_600_000, input_rows=99, dropped=9)
    assert points([batch(5)], {5: old})[0].dropped is None
    fresh = replace(old, at_ms=T0 - 500)
    assert points([batch(5)], {5: fresh})[0].dropped == 9


def test_ten_thousand_batches_in_few_points() -> None:
    """Consecutive batches are merged: their rows are added, with the longest duration and the last state."""
    many = [
        Point(
            number, number, "reachable", rows=2, dropped=1 if number == 77 else 0, duration_ms=number, state_rows=number
        )
        for number in range(10_000)
    ]
    few = merge_points(many, 240)
    assert len(few) <= 240
    assert sum(point.rows or 0 for point in few) == 20_000
    assert sum(point.dropped or 0 for point in few) == 1
    assert few[0].first == 0 and few[-1].last == 9_999
    assert few[-1].duration_ms == few[-1].state_rows == 9_999
    assert [point.first for point in few[1:]] == [point.last + 1 for point in few[:-1]]


def test_kind_of_merged_batches() -> None:
    """A merged point is shown as planned if one of its batches is."""
    many = [Point(number, number, "planned" if number == 3 else "kept") for number in range(8)]
    assert [point.kind for point in merge_points(many, 2)] == ["planned", "kept"]


def test_few_batches_stay_as_they_are() -> None:
    """Few batches are not merged."""
    some = [Point(number, number, "kept") for number in range(240)]
    assert merge_points(some, 240) == some


def test_sources_of_a_point() -> None:
    """The lag and the newest event time of each source are shown under its name."""
    made = TwoSources().with_job(ads="kafka://h:1/shown", clicks="kafka://h:1/clicked")
    made.batch(2, 3, watermark=None, reached={("0", "at"): 5, ("1", "at"): None}, lags=(7, 0))
    (point,) = points(History(made.files).batches(), read_progress(made.files))
    assert point.lags == {"ads": 7, "clicks": 0}
    assert point.event_times_ms == {"ads": at_ms(5)}
    assert [line["name"] for line in charts.kafka_lag([point])["series"]] == ["ads", "clicks"]
    assert [line["name"] for line in charts.event_time([point])["series"]] == ["clock", "ads", "watermark"]
    alone = Point(0, 0, "kept", lag_rows=3)
    assert [line["name"] for line in charts.kafka_lag([alone])["series"]] == ["unread records"]


def test_lag_figure() -> None:
    """The figure is the sum over the sources and names each of several; it is unknown if one of them is."""

    def lag(lags: dict[str, int | None]) -> tuple[str, str]:
        figure = next(one for one in summary_figures((), {}, now_ms=0, lags=lags) if one.name == "Kafka lag")
        return figure.value, figure.about

    assert lag({"ads": 1200, "clicks": 3}) == ("1,203", "ads 1,200, clicks 3")
    assert lag({"source 0": 5}) == ("5", "records not read yet")
    assert lag({"ads": 1, "clicks": None})[0] == lag({})[0] == "-"


def test_marks_of_the_timeline() -> None:
    """Changes, changed code, failures and restarts are marked at the batch that they precede, forks at theirs."""
    change = Change("e1", "edit", "edit 1 row", (), to=2, details={"added": [3], "by": "ann"})
    journal = [rewind(2, 3), Entry(2, T0, change)]
    operator = StatefulOperator("aggregation", {"keys": ("user",)})
    plans = [RecordedPlan(0, (), "4.1"), RecordedPlan(2, (), "4.2"), RecordedPlan(4, (operator,), "4.2")]
    again = ProgressRecord(1, T0 + 60_000)
    failed = FailureRecord(T0, "job-failed", "division by zero", batch_id=5)
    events = Events(journal, plans, [failed], (), [(5, "fork: b", T0)])
    found = timeline_marks([batch(0), batch(1)], {0: ProgressRecord(0, T0 - 600), 1: again}, events)
    assert {number: [mark.label for mark in marks] for number, marks in found.items()} == {
        1: ["restart"],
        2: ["code", "rewind"],
        3: ["edit"],
        4: ["code"],
        5: ["fork"],
        6: ["failure"],
    }
    assert str(found[6][0]) == "2023-11-14 22:13:20 failed: division by zero"
    assert found[3][0].text == "edit: edit 1 row, by ann"
    assert [mark.text for mark in (found[2][0], found[4][0])] == [
        "Spark 4.2 from this batch on",
        "changed stateful operators from this batch on",
    ]
    options = timeline(points([batch(1)], {}), 1, found)
    assert options["series"][0]["markPoint"]["data"][0]["value"] == "restart"
    assert "did not finish it" in options["series"][0]["data"][0]["tip"]


def test_marks_of_runs() -> None:
    """Each run is a start, a restart or, if something differs from the run before it, a deployment with the difference."""
    code = "python3.11:1f0c"
    runs = [
        RunRecord(T0, 0, "shop 1.0", code, {"window": "5 minutes"}, "4.1.0"),
        RunRecord(T0 + 1, 3, "shop 1.0", code, {"window": "5 minutes"}, "4.1.0"),
        RunRecord(T0 + 2, 5, "shop 1.1", "python3.11:2a2a", {"window": "10 minutes"}, "4.1.0"),
        RunRecord(T0 + 3, 5, "shop 1.1", "python3.12:77aa", {"window": "10 minutes"}, "4.2.0"),
    ]
    found = timeline_marks([], {}, Events(runs=runs, journal=[rewind(5, at_ms=T0 + 3)]))
    assert {number: [mark.text for mark in marks] for number, marks in found.items()} == {
        0: ["started (shop 1.0, Spark 4.1.0)"],
        3: ["restarted (shop 1.0, Spark 4.1.0)"],
        5: [
            "deployed: version shop 1.1 instead of shop 1.0, changed code, window 10 minutes instead of 5 minutes "
            "(before the rewind)",
            "rewind: ",
            "deployed: python3.12 instead of python3.11, Spark 4.2.0 instead of 4.1.0",
        ],
    }
    failure = Mark("failure", "failed", T0 - 9)
    assert foremost([failure, *found[5]]) is failure
    assert foremost(found[3]) is found[3][0]
    assert foremost([]) is None


def test_record_of_runs() -> None:
    """Runs are read as they were written; foreign lines are ignored, and only the newest runs are kept."""
    files = MemoryTree({RUNS_FILE: runs_file([RunRecord(T0, number) for number in range(MOST_RUNS + 1)])})
    add_run(files, RunRecord(T0, MOST_RUNS + 1, "v1", None, {"a": "b"}, "4.2.0"))
    found = read_runs(files)
    assert (len(found), found[-1]) == (MOST_RUNS, RunRecord(T0, MOST_RUNS + 1, "v1", None, {"a": "b"}, "4.2.0"))
    foreign = MemoryTree({RUNS_FILE: b'no json\n{"at_ms":"x","next_batch":1}\n[]\n{"at_ms":1,"next_batch":2}\n'})
    assert read_runs(foreign) == (RunRecord(1, 2),)


def test_fork_and_original_on_one_time_axis() -> None:
    """Both streams are drawn by time from shortly before the fork on; what the fork took over is the original's."""

    def stream(name: str, last: int, step_ms: int, watermark_ms: int) -> ComparedStream:
        batches = [
            replace(batch(number, committed_at_ms=T0 + step_ms * number), watermark_ms=watermark_ms)
            for number in range(last + 1)
        ]
        return ComparedStream(name, batches, {number: ProgressRecord(number, T0 * 2, 10) for number in range(last + 1)})

    original, fork = stream("visits", 40, 1000, T0), stream("trial", 32, 1500, T0 - 60_000)
    found = compare_fork(original, fork, 29, T0 + 45_000)
    assert [point.first for point in found.original_points] == list(range(10, 41))
    assert [point.first for point in found.fork_points] == [30, 31, 32]
    assert found.fork_point_ms == T0 + 29_000 - 500
    assert found.text == (
        "Since the fork: visits 11 batches, 110 rows; trial 3 batches, 30 rows. "
        "The watermark of trial is 1 min behind that of visits."
    )
    options = fork_timeline(found, "rows")
    assert [axis["type"] for axis in options["xAxis"]] == ["time", "time"]
    assert options["xAxis"][0]["min"] == options["xAxis"][1]["min"] == T0 + 10_000 - 500
    lanes = {one["name"]: one for one in options["series"] if one["type"] == "scatter"}
    assert [len(lanes[name]["data"]) for name in ("visits", "trial")] == [31, 3]
    assert lanes["visits"]["markPoint"]["data"][0] == {"coord": [T0 + 28_500, "visits"], "value": "batch 29"}
    assert lanes["visits"]["markLine"]["data"] == [{"xAxis": T0 + 45_000}]
    assert compare_fork(original, replace(fork, batches=fork.batches[:30]), 29, None).text == (
        "trial has run no batch of its own yet."
    )
