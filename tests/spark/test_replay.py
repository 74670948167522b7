"""Replays of recorded batches on real Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater import Socket
from headwater.core.errors import ChangeRefused
from headwater.jobs.loading import load_job
from headwater.spark.replay import replay, replayable
from headwater.spark.session import temporary_settings
from headwater.views.comparison import compare_rows
from spark.replay_support import by_user, doubled, golden_steps, put, run_recorded, tree

JOB = load_job("browser-stats-stateful")


@pytest.fixture(scope="module")
def recorded(headwater_spark, tmp_path_factory):
    found = run_recorded(
        headwater_spark, JOB, tmp_path_factory.mktemp("replay"), golden_steps("browser_stats_stateful")
    )
    put(found.inbox, 900, ['{"userId": 9, "eventTime": "2024-10-06T11:00:00Z", "browser": "Newer"}'])
    return found


def test_batches_emit_the_recorded_rows(headwater_spark, recorded) -> None:
    """Each batch runs again with its own records, despite newer data, and the checkpoint is not modified."""
    before = tree(recorded.checkpoint), tree(recorded.inbox)
    first = replay(headwater_spark, recorded.job, recorded.files, 1, 3)
    assert [(one.batch_id, [(row["browser"], row["count"]) for row in one.rows]) for one in first] == [
        (1, [("Firefox", 3)]),
        (2, [("Firefox", 1)]),
        (3, []),
    ]
    assert first == replay(headwater_spark, recorded.job, recorded.files, 1, 3)
    assert (tree(recorded.checkpoint), tree(recorded.inbox)) == before


def test_from_the_first_batch(headwater_spark, recorded) -> None:
    """Batch 0 is replayed from empty state."""
    (only,) = replay(headwater_spark, recorded.job, recorded.files, 0, 0)
    assert sorted(row["browser"] for row in only.rows) == ["Chrome", "Firefox", "Safari"]


def test_changed_code_emits_other_rows(headwater_spark, recorded) -> None:
    """Changed code that starts from the same state emits rows that differ accordingly."""
    old = replay(headwater_spark, recorded.job, recorded.files, 1, 1)[0]
    new = replay(headwater_spark, replace(recorded.job, transform=doubled), recorded.files, 1, 1)[0]
    compared = compare_rows(1, old.rows, new.rows)
    ((before, after),) = compared.differ
    assert (before["count"], after["count"]) == (3, 6)
    assert not compared.only_before
    assert not compared.only_after


def test_incompatible_state(headwater_spark, recorded) -> None:
    """A job with another state schema is refused with a remedy; from empty state it runs."""
    other = replace(recorded.job, transform=by_user)
    with pytest.raises(ChangeRefused, match="different schema") as refused:
        replay(headwater_spark, other, recorded.files, 1, 1)
    assert "--from-empty-state" in (refused.value.remedy or "")
    found = replay(headwater_spark, other, recorded.files, 1, 2, from_empty_state=True)
    assert [(one.batch_id, [row["count"] for row in one.rows]) for one in found] == [(1, [2]), (2, [1])]


@pytest.mark.slow
@pytest.mark.parametrize("from_empty_state", [False, True])
def test_batches_around_a_compaction_of_the_source_log(headwater_spark, tmp_path, from_empty_state: bool) -> None:
    """Spark compacts the log at every tenth file, and looks for the compacted file when it reads the batch again."""
    line = '{"userId": 1, "eventTime": "2024-10-06T10:00:00Z", "browser": "B%d"}'
    found = run_recorded(headwater_spark, JOB, tmp_path, [[line % number] for number in range(12)])
    first = 0 if from_empty_state else 8
    again = replay(headwater_spark, found.job, found.files, first, 11, from_empty_state=from_empty_state)
    rows = [(one.batch_id, [row["browser"] for row in one.rows]) for one in again]
    assert rows == [(number, [f"B{number}"]) for number in range(first, 12)]


def test_unknown_batch_is_refused(headwater_spark, recorded) -> None:
    """A batch that is not in the log cannot be replayed."""
    with pytest.raises(ChangeRefused, match="batch 77"):
        replay(headwater_spark, recorded.job, recorded.files, 77, 77)


def test_checkpoints_of_format_two(headwater_spark, tmp_path) -> None:
    """The format of the checkpoint is detected, because Spark does not record it."""
    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    with temporary_settings(headwater_spark, {setting: "2"}):
        found = run_recorded(headwater_spark, JOB, tmp_path, golden_steps("browser_stats_stateful")[:3])
    again = replay(headwater_spark, found.job, found.files, 1, 2)
    assert [[(row["browser"], row["count"]) for row in one.rows] for one in again] == [
        [("Firefox", 3)],
        [("Firefox", 1)],
    ]


def test_socket_lines_are_refused() -> None:
    """A source that cannot be read again is refused before Spark starts."""
    with pytest.raises(ChangeRefused, match="socket cannot be read again"):
        replayable(replace(JOB, reads=Socket()))
