"""Sources and stateful operators that are added, removed or moved: the stream continues on real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headwater.timemachine.rewind import plan_rewind
from migration import changed_jobs, state_functions
from migration.changed_jobs import (
    AGGREGATION,
    CHAINED,
    count_rows,
    deduplicated_windows,
    distinct,
    event_job,
    joined,
    largest,
    one_named_source,
    total,
    two_sources,
    united,
    updated,
    windows,
    windows_of_named,
)
from migration.migrating import ChangingStream, Story, follow

# Python workers do not have the folder of the tests on their path.
cloudpickle.register_pickle_by_value(changed_jobs)
cloudpickle.register_pickle_by_value(state_functions)


def event(user: str, amount: int, minute: int, kind: str = "view") -> dict[str, Any]:
    return {"user": user, "kind": kind, "amount": amount, "at": f"2024-05-01T10:{minute:02}:00Z"}


def united_backwards(events: DataFrame, more: DataFrame) -> DataFrame:
    return windows()(more.unionByName(events))


def united_and_wider(events: DataFrame, more: DataFrame) -> DataFrame:
    return windows(largest, total, count_rows)(more.unionByName(events))


ONE = one_named_source(windows_of_named)
TWO, BACKWARDS = two_sources(united), two_sources(united_backwards)
EVENTS = [
    {"events": [event("ann", 1, 1), event("bob", 2, 2), event("cem", 5, 6)]},
    {"events": [event("ann", 3, 3), event("dan", 4, 7)]},
]
BOTH = [
    {"events": [event("ann", 1, 1), event("bob", 2, 2)], "more": [event("cem", 5, 6)]},
    {"events": [event("ann", 3, 3)], "more": [event("ann", 8, 4), event("dan", 4, 7)]},
]
LATER = [
    {"events": [event("ann", 10, 4), event("eve", 7, 8)], "more": [event("cem", 1, 9), event("ann", 20, 2)]},
    {"events": [event("bob", 1, 9)], "more": [event("dan", 2, 8)]},
]
LATER_EVENTS = [{"events": one["events"]} for one in LATER]
AFTER = [
    {"events": [event("ann", 10, 4), event("eve", 7, 8), event("eve", 7, 8)]},
    {"events": [event("bob", 1, 9), event("eve", 7, 8)]},
]
# Windows are emitted when the watermark has passed them.
CLOSING = [*AFTER, {"events": [event("zoe", 1, 50)]}, {"events": [event("zoe", 1, 51)]}]


def window(minute: int) -> dict[str, str]:
    return {"start": f"2024-05-01T10:{minute:02}:00.000Z", "end": f"2024-05-01T10:{minute + 5:02}:00.000Z"}


def row(minute: int, user: str, n: int, total: int) -> dict[str, Any]:
    return {"window": window(minute), "user": user, "n": n, "total": total}


def joined_once(shown: DataFrame, clicked: DataFrame) -> DataFrame:
    rows = JOINED.transform(shown, clicked)
    return rows.dropDuplicates(["kind", "user", "clicker"])


JOINED = joined(columns=("user", "clicker"))
JOINED_ONCE = changed_jobs.join_job(joined_once)
CLICKED = [
    {"clicks": [{"ad": kind, "clicker": "zoe", "clicked_at": f"2024-05-01T10:{minute:02}:30Z"}], "events": events}
    for kind, minute, events in (("view", 6, [event("eve", 7, 5)]), ("buy", 8, []))
]


def purchases(once: str = "") -> Any:
    """Custom state, with duplicates dropped before or after it."""

    def transform(events: DataFrame) -> DataFrame:
        rows = events.withWatermark("at", "1 minute")
        rows = rows.dropDuplicates(["user", "at"]) if once == "before" else rows
        made = state_functions.Purchases()
        found = rows.groupBy("user").transformWithState(made, state_functions.OUTPUT, "Append", "EventTime")
        return found.dropDuplicates(["user", "note"]) if once == "after" else found

    return event_job(transform, "append")


def purchases_of_distinct(events: DataFrame) -> DataFrame:
    rows = events.withWatermark("at", "10 minutes").dropDuplicates(["user", "at"])
    made = state_functions.Purchases()
    return rows.groupBy("user").transformWithState(made, state_functions.OUTPUT, "Append", "EventTime")


def purchase(user: str, total: int) -> dict[str, Any]:
    """The first purchase of a user, as far as the state knows."""
    return {"user": user, "total": total, "note": f"(({total},), [({total},)], [(('view',), (1,))])"}


def expired(user: str) -> dict[str, Any]:
    return {"user": user, "total": 0, "note": "expired"}


STORIES = {
    "source added": Story(ONE, TWO, EVENTS, LATER),
    "source added in front": Story(ONE, BACKWARDS, EVENTS, LATER),
    "source dropped": Story(
        TWO,
        ONE,
        BOTH,
        LATER_EVENTS,
        expected=[[row(0, "ann", 4, 22), row(5, "eve", 1, 7)], [row(5, "bob", 1, 1)]],
    ),
    "first source dropped": Story(
        BACKWARDS,
        ONE,
        BOTH,
        LATER_EVENTS,
        expected=[[row(0, "ann", 4, 22), row(5, "eve", 1, 7)], [row(5, "bob", 1, 1)]],
    ),
    "sources swapped": Story(TWO, BACKWARDS, BOTH, LATER),
    "sources swapped and an aggregate moved": Story(
        two_sources(lambda events, more: windows(count_rows, total, largest)(events.unionByName(more))),
        two_sources(united_and_wider),
        BOTH,
        LATER,
    ),
    "dedup added": Story(
        AGGREGATION, updated(deduplicated_windows), EVENTS, AFTER, is_empty=True, options={"operatorId": "0"}
    ),
    "dedup removed": Story(updated(deduplicated_windows), AGGREGATION, EVENTS, AFTER, options={"operatorId": "0"}),
    "outer aggregation removed": Story(
        CHAINED, event_job(windows(count_rows), "append"), EVENTS, CLOSING, options={"operatorId": "0"}
    ),
    "outer aggregation added": Story(
        event_job(windows(count_rows), "append"), CHAINED, EVENTS, CLOSING, options={"operatorId": "0"}
    ),
    "dedup added above a join": Story(
        JOINED,
        JOINED_ONCE,
        EVENTS,
        CLICKED,
        is_empty=True,
        options={"operatorId": "0", "storeName": "left-keyWithIndexToValue"},
        new_options={"operatorId": "1", "storeName": "left-keyWithIndexToValue"},
    ),
    "dedup removed above a join": Story(
        JOINED_ONCE,
        JOINED,
        EVENTS,
        CLICKED,
        options={"operatorId": "1", "storeName": "left-keyWithIndexToValue"},
        new_options={"operatorId": "0", "storeName": "left-keyWithIndexToValue"},
    ),
    "dedup added below custom state": Story(
        purchases(),
        purchases("before"),
        EVENTS,
        AFTER,
        is_empty=True,
        options={"operatorId": "0", "stateVarName": "total"},
    ),
    "dedup added above custom state": Story(
        purchases(),
        purchases("after"),
        EVENTS,
        AFTER,
        oracle=purchases(),  # no row occurs twice after the migration
        is_empty=True,
        options={"operatorId": "0", "stateVarName": "total"},
        new_options={"operatorId": "1", "stateVarName": "total"},
    ),
    "dedup removed above custom state": Story(
        purchases("after"),
        purchases(),
        EVENTS,
        AFTER,
        options={"operatorId": "1", "stateVarName": "total"},
        new_options={"operatorId": "0", "stateVarName": "total"},
    ),
    "custom state added": Story(
        distinct("user", "at"),
        event_job(purchases_of_distinct, "append"),
        EVENTS,
        AFTER,
        expected=[
            [purchase("ann", 10), purchase("eve", 7)],
            [expired("ann"), purchase("bob", 1), expired("eve")],
        ],
        options={"operatorId": "0"},
        new_options={"operatorId": "1"},
    ),
}


def distinct_of_both(events: DataFrame, more: DataFrame) -> DataFrame:
    return deduplicated_windows(more.unionByName(events))


def test_a_source_and_an_operator_are_added(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A source in front and a deduplication below the aggregation: the counts go on, and old duplicates are not known."""
    stream = ChangingStream(headwater_spark, tmp_path, "hdfs")
    stream.run(ONE, {"events": [event("ann", 1, 1), event("bob", 2, 2)]})
    before, old_files = stream.state(), spark_files_of(stream)
    new = two_sources(distinct_of_both)
    assert stream.check(new).verdict == "needs-migrate"
    plan = stream.migrate(new)
    assert [one["old_place"] for one in plan.sources] == [None, 0]
    assert len(plan.effects) == 2
    plan.apply()
    assert (stream.state(0), stream.problems(), stream.check(new).verdict) == (before, [], "same")
    found = stream.run(
        new, {"events": [event("ann", 1, 1), event("eve", 4, 2), event("eve", 4, 2)], "more": [event("bob", 8, 3)]}
    )
    assert found == [[row(0, "ann", 2, 2), row(0, "bob", 2, 10), row(0, "eve", 1, 4)]]
    plan_rewind(stream.files, to=0).apply()
    assert (stream.state(), stream.problems(), stream.check(ONE).verdict) == (before, [], "same")
    assert spark_files_of(stream) == old_files
    assert stream.run(ONE, {"events": []}) == [[row(0, "ann", 2, 2), row(0, "eve", 2, 8)]]


def large_amounts(events: DataFrame) -> DataFrame:
    return events.where("amount > 1")


def large_amounts_of_both(events: DataFrame, more: DataFrame) -> DataFrame:
    return more.unionByName(events).where("amount > 1")


@pytest.mark.slow
def test_a_query_without_state_gets_another_source(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Sources can be added to a query without state too, and a rewind leads back to the one that it had."""
    stream = ChangingStream(headwater_spark, tmp_path, "hdfs")
    old, new = one_named_source(large_amounts), two_sources(large_amounts_of_both)
    stream.run(old, {"events": [event("ann", 1, 1), event("bob", 2, 2)]})
    stream.migrate(new).apply()
    assert (stream.problems(), stream.check(new).verdict) == ([], "same")
    (found,) = stream.run(new, {"events": [event("cem", 3, 3)], "more": [event("dan", 4, 4)]})
    assert [one["user"] for one in found] == ["cem", "dan"]
    plan_rewind(stream.files, to=0).apply()
    (found,) = stream.run(old, {"events": [event("eve", 5, 5)]})
    assert [one["user"] for one in found] == ["cem", "eve"]


def spark_files_of(stream: ChangingStream) -> set[str]:
    found = (path.relative_to(stream.checkpoint) for path in stream.checkpoint.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "_headwater"}


@pytest.mark.slow
@pytest.mark.parametrize("store", ["hdfs", "changelog", "format2", "rocksdb"])
@pytest.mark.parametrize("name", STORIES)
def test_all_changes_on_all_stores(headwater_spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """The stream continues as if the new code had run from the start, except for what a new operator cannot know."""
    if not ("custom" in name and store == "hdfs"):
        follow(headwater_spark, tmp_path, STORIES[name], store)
