"""Scenarios, on real Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Checkpoint, Console, Files, Job
from headwater.core.errors import UsageProblem
from headwater.jobs.gallery.running_totals import RUNNING_TOTALS
from headwater.testing import Crash

CLICK = "user STRING, at TIMESTAMP"


def clicks_per_hour(clicks: DataFrame) -> DataFrame:
    """Clicks per user and hour."""
    return (
        clicks.where("user <> 'robot'")
        .withWatermark("at", "10 minutes")
        .select("at", "user")
        .groupBy(F.window("at", "1 hour"), "user")
        .agg(F.count("*").alias("clicks"))
        .select("user", F.col("window.start").alias("hour"), "clicks")
    )


CLICKS = Job("clicks", clicks_per_hour, reads=Files("clicks", schema=CLICK), writes=Console(), mode="update")


def click(user: str, at: str) -> dict[str, str]:
    return {"user": user, "at": f"2024-03-01T{at}:00Z"}


def hour(user: str, at: str, clicks: int) -> dict[str, object]:
    return {"user": user, "hour": f"2024-03-01T{at}:00Z", "clicks": clicks}


def test_feed_emits_watermark_and_drops(scenario) -> None:
    """Each feed is one micro-batch, whose rows, watermark and late records can be checked."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00"), click("ann", "10:30")).emits(hour("ann", "10:00", 2)).moves_watermark_to("10:20")
    s.feed(click("bob", "12:00")).emits(hour("bob", "12:00", 1)).moves_watermark_to("2024-03-01T11:50:00Z")
    late = [click("ann", "10:40"), click("ann", "10:41"), click("cat", "11:55"), click("robot", "10:00")]
    s.feed(*late).emits(hour("cat", "11:00", 1)).drops(2)


def test_crashes_and_restart(scenario) -> None:
    """After a crash before the commit, the batch runs again; after a later crash it does not."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00"), Crash.BEFORE_BATCH).emits_nothing()
    s.restart().emits(hour("ann", "10:00", 1))
    s.feed(click("ann", "10:01"), Crash.AFTER_OUTPUT).emits(hour("ann", "10:00", 2))
    s.restart().emits(hour("ann", "10:00", 2))
    s.feed(click("ann", "10:02"), Crash.AFTER_COMMIT).emits(hour("ann", "10:00", 3))
    s.restart().emits_nothing()
    s.feed(click("ann", "10:03")).emits(hour("ann", "10:00", 4))


def test_start_empty_and_raw_lines(scenario) -> None:
    """A scenario can start with an empty source, and raw lines are decoded."""
    s = scenario(CLICKS, start_empty=True)
    assert s.batch == 0
    s.feed("{'user': 'ann', 'at': '2024-03-01T10:00:00Z'}", "no json", '{"user": "bob", "at": "soon"}').emits(
        hour("ann", "10:00", 1)
    ).fails_to_decode(2)


def test_mismatch_prints_the_transcript(scenario) -> None:
    """A failed assertion shows every step so far and the difference."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00")).emits(hour("ann", "10:00", 1))
    with pytest.raises(AssertionError) as failure:
        s.feed(click("ann", "10:01")).emits(hour("ann", "10:00", 7))
    text = str(failure.value)
    assert text.startswith("transcript of clicks:\n")
    assert "1. feed 1 record" in text
    assert "2. feed 1 record" in text
    assert '- {"clicks": 7' in text
    assert '+ {"clicks": 2' in text


def test_unchecked_rows_fail(scenario) -> None:
    """A test fails at its end if a step emitted rows that no assertion checked."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00"))
    with pytest.raises(AssertionError, match="no assertion checked"):
        s.close()
    s.feed(click("ann", "10:01")).emits(hour("ann", "10:00", 2))


def test_rewind(scenario) -> None:
    """A rewound job runs the later feeds again, one batch for each, and continues from there."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00")).emits(hour("ann", "10:00", 1))
    s.feed(click("ann", "10:01")).emits(hour("ann", "10:00", 2))
    s.feed(click("bob", "10:02"), click("ann", "10:03")).emits(hour("bob", "10:00", 1), hour("ann", "10:00", 3))
    again = s.rewind(to=0)
    again.emits(hour("ann", "10:00", 2), hour("bob", "10:00", 1), hour("ann", "10:00", 3))
    assert again.batch == s.batch
    s.feed(click("ann", "10:04")).emits(hour("ann", "10:00", 4))
    s.rewind(to=None, replan=True).emits(
        hour("ann", "10:00", 1), hour("ann", "10:00", 2), hour("bob", "10:00", 1), hour("ann", "10:00", 3),
        hour("ann", "10:00", 4),
    )  # fmt: skip


def test_a_scenario_starts_with_a_given_state(scenario, tmp_path) -> None:
    """Rows as dictionaries, as another scenario's state, or as an exported file; the job continues from them."""
    ten = {"start": "2024-03-01T10:00:00Z", "end": "2024-03-01T11:00:00Z"}
    s = scenario(CLICKS, state=[{"window": ten, "user": "ann", "count": 7}])
    s.feed(click("ann", "10:30"), click("bob", "10:31")).emits(hour("ann", "10:00", 8), hour("bob", "10:00", 1))
    again = scenario(CLICKS, state=s.state)
    again.feed(click("bob", "10:40")).emits(hour("bob", "10:00", 2))
    (file,) = Checkpoint(s.checkpoint).export(tmp_path / "state.parquet")
    scenario(CLICKS, state=file).feed(click("ann", "10:50")).emits(hour("ann", "10:00", 9))
    with pytest.raises(UsageProblem, match="does not have the columns"):
        scenario(CLICKS, state=[{"user": "ann", "count": 7}])


@pytest.mark.slow
def test_custom_state_is_given_by_variable(scenario) -> None:
    """Each row names its variable, as the state of a scenario does."""
    s = scenario(RUNNING_TOTALS, state=[{"var": "total", "key": {"user": "ann"}, "value": {"total": 5}}])
    s.feed({"user": "ann", "shopping": 2}).emits({"user": "ann", "total": 7})


def latest_clicks(clicks: DataFrame) -> DataFrame:
    """Clicks per user, with the last one."""
    return clicks.groupBy("user").agg(F.count("*").alias("clicks"), F.max("at").alias("last"))


def test_migrated_from_older_code(scenario) -> None:
    """A scenario starts from the checkpoint of an older version of its job, whose state is migrated to the new code."""
    reads = Files("clicks", schema=CLICK)
    counted = Job("clicks", lambda clicks: clicks.groupBy("user").count(), reads=reads, writes=Console(), mode="update")
    old = scenario(counted)
    old.feed(click("ann", "10:00"), click("bob", "10:00")).emits(
        {"user": "ann", "count": 1}, {"user": "bob", "count": 1}
    )
    old.close()
    new = Job("clicks", latest_clicks, reads=reads, writes=Console(), mode="update")
    set_to = {"fields": {"max": "timestamp '2024-03-01 12:00:00'"}}
    s = scenario(new, migrated_from=old.checkpoint, migration=set_to)
    s.feed(click("ann", "10:30")).emits({"user": "ann", "clicks": 2, "last": "2024-03-01T12:00:00Z"})
    assert [row["value"] for row in old.state] == [{"count": 1}, {"count": 1}]


def test_late_records_are_those_of_the_batch_that_read_them(scenario) -> None:
    """After a crash, a step runs the batch of an earlier one again, whose watermark is another one."""
    s = scenario(CLICKS)
    s.feed(click("ann", "10:00")).emits(hour("ann", "10:00", 1))
    s.feed(click("bob", "12:00"), Crash.AFTER_COMMIT).emits(hour("bob", "12:00", 1))
    crashed = s.feed(click("cat", "12:01"), Crash.BEFORE_BATCH).emits_nothing()
    with pytest.raises(AssertionError, match="no batch has read the records of this step"):
        crashed.drops(0)
    s.feed(click("ann", "10:01")).drops(1).emits(hour("cat", "12:00", 1))
    s.restart().drops(0)
