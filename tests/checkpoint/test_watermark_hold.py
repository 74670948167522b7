"""Which source holds the watermark back, and since when."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files, corpus_names, sampled
from headwater.checkpoint.history import History
from headwater.checkpoint.watermark_hold import WatermarkHold, watermark_hold, watermark_holds
from two_sources import MINUTE, T0, TwoSources, at_ms

SHOWN, CLICKED = ("0", "at"), ("1", "then")


def hold_of(made: TwoSources, at: int | None = None) -> WatermarkHold | None:
    return watermark_hold(History(made.files).logs, made.number - 1 if at is None else at)


def join() -> TwoSources:
    """Return three batches in which both sources move and the watermark does, too."""
    made = TwoSources().with_job(ads="kafka://h:1/shown", clicks="kafka://h:1/clicked")
    made.batch(5, 5, watermark=None, after=1)
    return made.batch(5, 5, watermark=1, after=2).batch(5, 5, watermark=2, after=3)


def test_idle_source() -> None:
    """With the policy min, the source that stopped moving is named, with the first batch that read nothing from it."""
    made = join().batch(5, 0, watermark=3).batch(5, 0, watermark=3)
    hold = hold_of(made)
    assert str(hold) == (
        "watermark unchanged since batch 3, probably because clicks has been idle since batch 3 "
        "(policy min: the slowest source determines it)"
    )
    assert hold is not None and hold.as_dict()["held_by"] == [
        {
            "source": "1",
            "label": "clicks",
            "reason": "idle",
            "since_batch": 3,
            "column": None,
            "newest_event_time": None,
        }
    ]
    assert (hold.batches, hold.watermark_ms) == (2, at_ms(3))


def test_idle_before_the_watermark_stopped() -> None:
    """The other source may take a few batches to catch up: both batches are named."""
    made = join().batch(5, 0, watermark=3, after=4).batch(5, 0, watermark=4, after=5)
    made.batch(5, 0, watermark=5).batch(5, 0, watermark=5)
    hold = hold_of(made)
    assert hold is not None and (hold.since_batch, hold.held_by[0].since_batch) == (5, 3)


def test_moving_watermark() -> None:
    """There is nothing to explain while the watermark moves, or after a single batch."""
    assert hold_of(join()) is None
    assert hold_of(join().batch(5, 0, watermark=3)) is None
    assert hold_of(join().batch(5, 0, watermark=3).batch(5, 5, watermark=3, after=4)) is None


def test_idle_query() -> None:
    """If no source moves, none of them holds the watermark back."""
    assert hold_of(join().batch(0, 0, watermark=3).batch(0, 0, watermark=3)) is None


def test_both_sources_move() -> None:
    """If both sources move, the offsets do not show whose events are old."""
    assert hold_of(join().batch(5, 5, watermark=3).batch(5, 5, watermark=3)) is None


def test_batch_that_is_not_committed() -> None:
    """A planned batch has not moved the watermark yet: the answer of the last committed one is valid."""
    made = join().batch(5, 0, watermark=3, after=4).batch(5, 0, watermark=4).batch(5, 0, watermark=4)
    before = hold_of(made)
    assert before is not None and before.held_by[0].since_batch == 3
    assert hold_of(made.batch(5, 5, watermark=4, committed=False)) == before
    assert hold_of(join().batch(5, 0, watermark=3, committed=False)) is None


def test_each_batch_has_its_own_answer() -> None:
    """The log shows, for each batch, what was known then."""
    made = join().batch(5, 0, watermark=3).batch(5, 0, watermark=3).batch(0, 5, watermark=3, after=4)
    found = watermark_holds(History(made.files).logs, range(made.number))
    assert list(found) == [4]


def test_idle_since_before_the_log() -> None:
    """If the log does not reach back far enough, that is what the answer shows."""
    made = TwoSources(first=40).batch(0, 0, watermark=3)
    hold = hold_of(made.batch(5, 0, watermark=3).batch(5, 0, watermark=3))
    assert hold is not None and hold.held_by[0].since_batch is None
    assert "source 1 (kafka clicked) has been idle since before batch 40" in str(hold)


def test_old_batches_are_read_only_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches before a hold are not read, which would take a request each on an object store."""
    made = TwoSources()
    for number in range(200):
        made.batch(1, 1, watermark=number, after=number + 1)
    made.batch(1, 0, watermark=200).batch(1, 0, watermark=200)
    files, read = made.files, []
    original = files.read
    monkeypatch.setattr(files, "read", lambda path: read.append(path) or original(path))
    hold = watermark_hold(History(files).logs, 201)
    assert hold is not None and hold.held_by[0].since_batch == 200
    assert len([path for path in read if path.startswith("offsets/")]) < 8


def test_policy_max() -> None:
    """With the policy max an idle source does not hold the watermark back: the moving one has no newer events."""
    made = TwoSources(policy="max").batch(5, 5, watermark=None, after=3)
    hold = hold_of(made.batch(0, 5, watermark=3).batch(0, 5, watermark=3))
    assert hold is not None and (hold.policy, hold.held_by[0].source) == ("max", "1")
    assert str(hold).endswith(
        "probably because the input of source 1 (kafka clicked) contains no newer event times "
        "(policy max: the fastest source determines it)"
    )


def test_recorded_event_times_are_certain() -> None:
    """The event times of each operator decide which source is the slowest, also if both move."""
    made = join().batch(5, 5, watermark=3, reached={SHOWN: 9, CLICKED: 4})
    hold = hold_of(made.batch(5, 5, watermark=3, reached={SHOWN: 10, CLICKED: 4}))
    assert hold is not None and hold.evidence == "event-times"
    assert (hold.held_by[0].label, hold.held_by[0].reason) == ("clicks", "no-newer-events")
    assert hold.held_by[0].newest_event_time_ms == T0 + 4 * MINUTE
    assert "unchanged since batch 3, because the newest event time of clicks has been 2023-11-14T22:17:20.000Z" in str(
        hold
    )


def test_idle_source_that_is_ahead() -> None:
    """An idle source whose events are newer than those of a moving one is not to blame."""
    made = join().batch(5, 0, watermark=3, reached={SHOWN: 4, CLICKED: 90})
    hold = hold_of(made.batch(5, 0, watermark=3, reached={SHOWN: 4, CLICKED: 90}))
    assert hold is not None and [holder.label for holder in hold.held_by] == ["ads"]


def test_idle_source_without_watermark() -> None:
    """A source without a watermark never holds it back."""
    made = join().batch(5, 0, watermark=3, reached={SHOWN: 4}).batch(5, 0, watermark=3, reached={SHOWN: 4})
    hold = hold_of(made)
    assert hold is not None and [holder.label for holder in hold.held_by] == ["ads"]


def test_after_a_restart() -> None:
    """After a restart the watermark moves only once every operator has seen rows again."""
    made = join().batch(5, 5, watermark=3, reached={SHOWN: 4, CLICKED: 4})
    made.batch(5, 0, watermark=3, reached={SHOWN: 90, CLICKED: None})
    hold = hold_of(made.batch(5, 0, watermark=3, reached={SHOWN: 91, CLICKED: None}))
    assert hold is not None and hold.held_by[0].reason == "no-rows-yet"
    assert "clicks has read no rows since the query started in batch 4" in str(hold)


def test_no_watermark_yet() -> None:
    """A source that has never delivered is the reason why there is no watermark at all; without records, who knows."""
    made = TwoSources().batch(5, 0, watermark=None, reached={SHOWN: 4, CLICKED: None})
    hold = hold_of(made.batch(5, 0, watermark=None, reached={SHOWN: 5, CLICKED: None}))
    assert str(hold).startswith("no watermark after 2 batches, because source 1 (kafka clicked) has been idle")
    unknown = TwoSources().batch(5, 0, watermark=None).batch(5, 0, watermark=None)
    assert hold_of(unknown) is None


def test_two_watermarks_of_one_source() -> None:
    """Operators that read one source are distinguished by their columns."""
    other = ("0", "sold")
    made = join().batch(5, 5, watermark=3, reached={SHOWN: 90, other: 4, CLICKED: 90})
    hold = hold_of(made.batch(5, 5, watermark=3, reached={SHOWN: 91, other: 4, CLICKED: 91}))
    assert hold is not None and [holder.label for holder in hold.held_by] == ["ads (column sold)"]


def test_leader_under_policy_max() -> None:
    """With the policy max, the source with the newest events is the one that has to deliver newer ones."""
    made = TwoSources(policy="max").batch(5, 5, watermark=None, after=3)
    made.batch(0, 5, watermark=3, reached={SHOWN: 4, CLICKED: 2})
    hold = hold_of(made.batch(0, 5, watermark=3, reached={SHOWN: 4, CLICKED: 2.5}))
    assert hold is not None and hold.evidence == "event-times"
    assert [(holder.source, holder.reason) for holder in hold.held_by] == [("0", "idle")]


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_healthy_checkpoints(name: str) -> None:
    """No batch of the corpus is reported: all sources of its joins deliver in turn."""
    history = History(as_memory_files(name))
    assert watermark_holds(history.logs, history.batch_ids) == {}
