"""Jobs with custom state, beyond their golden files: time to live, timeouts, modes, and forms that agree."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from models import sessions
from pyspark.sql import SparkSession
from splits import Record, Split, modeled, streamed

from golden import exact
from headwater import Console
from headwater.core.errors import JobRefused
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.datagen.stream import FIXED_START_MS, RecordStream, Shares
from headwater.jobs.gallery._durations import microseconds, milliseconds
from headwater.jobs.loading import load_job
from headwater.testing.scenario import Scenario

Open = Callable[..., Scenario]

FORMS = ("session_window", "transform_with_state", "pandas")
# The batch oracle compares all three with a model in every run.
PARAMETERS = [*FORMS[:2], pytest.param(FORMS[2], marks=pytest.mark.slow)]
MINUTE_MS = 60_000
GAP_MS = 30 * MINUTE_MS


def purchase(user: str, amount: int) -> str:
    return f"{{'user': '{user}', 'shopping': {amount}, 'date': '20-04-2020'}}"


def click(user: str, at: str) -> dict[str, str]:
    return {"user": user, "event_time": f"2024-03-01T{at}:00Z"}


def session(user: str, start: str, end: str, events: int) -> dict[str, Any]:
    return {"user": user, "start": f"2024-03-01T{start}:00Z", "end": f"2024-03-01T{end}:00Z", "events": events}


def test_time_to_live_removes_inactive_users(scenario: Open) -> None:
    """A user whose ttl expires before the next batch starts from zero; with a longer ttl the total remains."""
    s = scenario(load_job("running-totals"), settings={"ttl": "1 millisecond"})
    s.feed(purchase("Ann", 200)).emits({"user": "Ann", "total": 200}).holds({"user": "Ann", "total": 200})
    s.feed(purchase("Ann", 300)).emits({"user": "Ann", "total": 300})
    s = scenario(load_job("running-totals"), settings={"ttl": "1 hour"})
    s.feed(purchase("Ann", 200)).emits({"user": "Ann", "total": 200})
    s.restart().emits_nothing()
    s.feed(purchase("Ann", 300)).emits({"user": "Ann", "total": 500}).holds({"user": "Ann", "total": 500})


def test_purchase_of_seven_days_ago_does_not_count(scenario: Open) -> None:
    """A purchase exactly 7 days before the latest one does not count, even in the same batch; 6 days before does."""

    s = scenario(load_job("weekly-totals"))
    s.feed(bought("Ann", 1, "01"), bought("Ann", 10, "02"), bought("Ann", 100, "08")).emits(
        {"user": "Ann", "total": 110}
    ).holds({"user": "Ann", "total": 110, "lastshopped": "08-04-2020"})
    s.feed(bought("Ann", 1000, "01")).emits_nothing().drops(1)


def test_weeks_that_spark_manages(scenario: Open) -> None:
    """With form=window each purchase counts in seven weeks per user, which Spark evicts when they are over."""
    s = scenario(load_job("weekly-totals"), settings={"form": "window"})
    s.feed(bought("Ann", 200, "20"), bought("Ann", 300, "22")).emits(
        *(week("Ann", start, 200) for start in (14, 15)),
        *(week("Ann", start, 500) for start in (16, 17, 18, 19, 20)),
        *(week("Ann", start, 300) for start in (21, 22)),
    )
    s.feed(bought("Ann", 1, "18")).emits(
        *(week("Ann", start, 1) for start in (12, 13)),
        *(week("Ann", start, 201) for start in (14, 15)),
        *(week("Ann", start, 501) for start in (16, 17, 18)),
    )
    s.feed(bought("Bea", 7, "30")).emits(*(week("Bea", start, 7) for start in range(24, 31))).moves_watermark_to(
        "2020-04-23T00:00:00Z"
    ).holds(
        *(week("Ann", start, 501) for start in (17, 18)),
        *(week("Ann", start, 500) for start in (19, 20)),
        *(week("Ann", start, 300) for start in (21, 22)),
        *(week("Bea", start, 7) for start in range(24, 31)),
    )
    s.feed(bought("Ann", 1000, "16"), bought("Ann", 10, "17")).emits(week("Ann", 17, 511)).drops(1)


@pytest.mark.slow
def test_week_that_ends_with_a_purchase_is_the_trailing_total(scenario: Open) -> None:
    """For purchases in order, the week whose last day is that of the purchase has the total of the custom form."""
    days = [("Ann", 200, "01"), ("Bea", 800, "03"), ("Ann", 300, "07"), ("Ann", 5, "08"), ("Bea", 6, "15")]
    custom, managed = (
        scenario(load_job("weekly-totals")),
        scenario(load_job("weekly-totals"), settings={"form": "window"}),
    )
    for user, amount, day in days:
        (trailing,) = custom.feed(bought(user, amount, day)).emitted
        weeks = managed.feed(bought(user, amount, day)).emitted
        end = f"2020-04-{int(day) + 1:02d}T00:00:00.000Z"
        assert [{"user": one["user"], "total": one["total"]} for one in weeks if one["window"]["end"] == end] == [
            trailing
        ]


def test_calendar_weeks(scenario: Open) -> None:
    """With a slide of 7 days each purchase counts in one week, which starts on a Thursday."""
    s = scenario(load_job("weekly-totals"), settings={"form": "window", "slide": "7 days"})
    s.feed(bought("Ann", 200, "22"), bought("Ann", 300, "23")).emits(week("Ann", 16, 200), week("Ann", 23, 300))


def bought(user: str, amount: int, day: str) -> str:
    return f"{{'user': '{user}', 'shopping': {amount}, 'date': '{day}-04-2020'}}"


def week(user: str, start: int, total: int) -> dict[str, Any]:
    first = date(2020, 4, 1) + timedelta(days=start - 1)
    days = {"start": first, "end": first + timedelta(days=7)}
    window = {name: f"{day.isoformat()}T00:00:00.000Z" for name, day in days.items()}
    return {"user": user, "window": window, "total": total}


def test_refused_forms_of_totals(scenario: Open) -> None:
    """A ttl needs custom_state, and unknown forms are refused."""
    for form in ("built_in", "pandas"):
        with pytest.raises(JobRefused, match="without a ttl"):
            scenario(load_job("running-totals"), settings={"form": form, "ttl": "7 days"})
    with pytest.raises(JobRefused, match="custom_state or window"):
        scenario(load_job("weekly-totals"), settings={"form": "other"})


@pytest.mark.parametrize("form", ["custom_state", "built_in", pytest.param("pandas", marks=pytest.mark.slow)])
def test_purchases_without_an_amount(scenario: Open, form: str) -> None:
    """A purchase without an amount counts as zero in every form of running-totals."""
    missing = "{'user': 'Ann', 'date': '20-04-2020'}"
    s = scenario(load_job("running-totals"), settings={"form": form})
    s.feed(missing).emits({"user": "Ann", "total": 0})
    s.feed(missing, purchase("Ann", 5)).emits({"user": "Ann", "total": 5}).holds({"user": "Ann", "total": 5})


@pytest.mark.parametrize("form", PARAMETERS[1:])
def test_sessions_as_they_grow(scenario: Open, form: str) -> None:
    """In update mode, custom state emits a session whenever it grows, and not when it is closed."""
    job = replace(load_job("user-sessions"), writes=Console())
    s = scenario(job, mode="update", settings={"form": form, "mode": "update"})
    s.feed(click("a", "10:00"), click("a", "10:20")).emits(session("a", "10:00", "10:20", 2))
    s.feed(click("a", "11:00"), click("b", "11:00")).emits(
        session("a", "11:00", "11:00", 1), session("b", "11:00", "11:00", 1)
    )
    s.feed(click("a", "10:40")).emits(
        session("a", "11:00", "11:00", 1) | {"start": "2024-03-01T10:40:00Z", "events": 2}
    )
    s.feed(click("c", "13:00")).emits(session("c", "13:00", "13:00", 1))


def test_sessions_with_processing_timeouts(scenario: Open) -> None:
    """With processing-time timeouts the wall clock ends a user's session, in both modes."""
    quiet = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    job = replace(load_job("user-sessions"), writes=Console(), conf=quiet)
    by_clock = {"form": "pandas", "timeout": "processing", "gap": "1 millisecond"}
    s = scenario(job, settings=by_clock)
    s.feed(click("a", "10:00"), click("a", "15:00")).emits_nothing()
    s.feed(click("b", "08:00")).emits(session("a", "10:00", "15:00", 2))
    s = scenario(job, mode="update", settings={**by_clock, "mode": "update"})
    s.feed(click("a", "10:00"), click("a", "15:00")).emits(session("a", "10:00", "15:00", 2))
    s.feed(click("b", "08:00")).emits(session("b", "08:00", "08:00", 1))


def test_refused_forms_of_sessions(scenario: Open) -> None:
    """session_window does not support update mode, the pandas form needs its mode, and unknown forms are refused."""
    job = replace(load_job("user-sessions"), writes=Console())
    with pytest.raises(JobRefused, match="session_window"):
        scenario(job, mode="update")
    with pytest.raises(JobRefused, match="update mode"):
        scenario(job, mode="update", settings={"form": "pandas"})
    with pytest.raises(JobRefused, match="form='other'"):
        scenario(job, settings={"form": "other"})


@pytest.mark.parametrize("form", PARAMETERS)
def test_boundaries_of_sessions(scenario: Open, form: str) -> None:
    """Events exactly a gap apart are one session, an event in between merges two, and event + gap decides lateness."""
    s = scenario(load_job("user-sessions"), settings={"form": form})
    s.feed(click("a", "10:00"), click("a", "10:30"), click("b", "10:00"), click("b", "10:31")).emits_nothing()
    s.feed(click("b", "10:15"), click("c", "10:50")).emits_nothing().moves_watermark_to("10:40")
    s.feed(click("d", "10:10"), click("e", "10:11"), click("c", "12:00")).drops(1).emits(
        session("a", "10:00", "10:30", 2),
        session("b", "10:00", "10:31", 3),
        session("c", "10:50", "10:50", 1),
        session("e", "10:11", "10:11", 1),
    )


def generated(seed: int) -> list[Record]:
    """Return 10,000 events of about 1,000 users over 14 hours: 20 % out of order, 5 % hours late, 5 % duplicates."""
    chance = random.Random(seed)
    stream = RecordStream("sessions", seed=seed, shares=Shares(late=0.05, duplicates=0.05))
    records: list[Record] = []
    for block in range(10):
        behind = [chance.randrange(90 * MINUTE_MS) if chance.random() < 0.2 else 0 for _ in range(1000)]
        times = [FIXED_START_MS + (block * 1000 + place) * 5_000 - ms for place, ms in enumerate(behind)]
        for line in stream.block(times).records:
            event = json.loads(line)
            records.append(Record(int(event["user"][1:]), ms_from_iso(event["event_time"]), 0))
    return records


def random_split(records: list[Record], chance: random.Random) -> Split[Record]:
    cuts = sorted(chance.sample(range(1, len(records)), 5))
    batches = [records[start:end] for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    restart = chance.randrange(1, len(batches))
    return [batches[:restart], batches[restart:]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_three_forms_emit_identical_sessions(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """All forms emit the same sessions in every batch, for late, unordered and duplicate events and with a restart."""
    records = generated(seed)
    split = random_split(records, random.Random(seed))
    lines = [[[event_line(one) for one in batch] for batch in run] for run in split]
    model = list(modeled(split, delay_ms=10 * MINUTE_MS, compared_ms=lambda one: one.at_ms + GAP_MS))
    on_time = sum(len(batch.on_time) for batch in model)
    assert 9_000 < on_time < 9_900, "some events are late, but not all that are out of order"
    expected = [exact(rows) for rows in sessions(model, lambda who: f"u{who}", GAP_MS)]
    assert sum(map(len, expected)) > 1_000
    for form in FORMS:
        job = replace(load_job("user-sessions"), settings={"form": form})
        emitted = streamed(headwater_spark, job, lines, tmp_path_factory.mktemp("sessions"))
        assert [exact(emitted[batch_id]) for batch_id in sorted(emitted)] == expected, form


def event_line(one: Record) -> str:
    return json.dumps({"user": f"u{one.who}", "event_time": iso_from_ms(one.at_ms)})


@pytest.mark.parametrize(
    ("text", "micros"), [("30 minutes", 1_800_000_000), ("1 hour 30 minutes", 5_400_000_000), ("1 millisecond", 1_000)]
)
def test_durations(text: str, micros: int) -> None:
    """Durations are written as in Spark."""
    assert microseconds(text) == micros
    assert milliseconds(text) == micros // 1000


@pytest.mark.parametrize("text", ["soon", "30", "30 minutes or so", ""])
def test_invalid_durations(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ValueError, match="30 minutes"):
        microseconds(text)
