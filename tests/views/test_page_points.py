"""Batches as points of a chart."""

from __future__ import annotations

from dataclasses import replace

from headwater.checkpoint.failures import FailureRecord
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator
from headwater.checkpoint.record import ProgressRecord, read_progress
from headwater.core.ids import BatchId
from headwater.timemachine.change import Change
from headwater.timemachine.journal import Entry
from headwater.views.page_events import timeline_marks
from headwater.views.page_points import Point, merge_points, points, rewind_times_ms
from headwater.views.page_summary import summary_figures
from headwater.web import charts
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
    found = timeline_marks(
        [batch(0), batch(1)], {0: ProgressRecord(0, T0 - 600), 1: again}, journal, plans, {5: "fork: b"}, [failed]
    )
    assert {number: [mark.label for mark in marks] for number, marks in found.items()} == {
        1: ["restart"],
        2: ["rewind", "code"],
        3: ["edit"],
        4: ["code"],
        5: ["fork"],
        6: ["failure"],
    }
    assert found[6][0].text == "failed: division by zero"
    assert found[3][0].text == "edit: edit 1 row, by ann"
    assert [mark.text for mark in (found[2][1], found[4][0])] == [
        "Spark 4.2 from this batch on",
        "changed code from this batch on",
    ]
    options = charts.timeline(points([batch(1)], {}), 1, found)
    assert options["series"][0]["markPoint"]["data"][0]["value"] == "restart"
    assert "did not finish it" in options["series"][0]["data"][0]["tip"]
