"""Migrated state on real Spark: the stream continues as if the new code had run from the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.timemachine.rewind import plan_rewind
from migration import changed_jobs, state_functions
from migration.changed_jobs import (
    count_rows,
    distinct,
    globally,
    joined,
    largest,
    letters,
    selected,
    sessions,
    total,
    updated,
    windows,
)
from migration.migrating import ChangingStream, Story, follow, state_by_headwater, state_by_spark
from timemachine.spark_runs import STORES

# Python workers do not have the folder of the tests on their path.
cloudpickle.register_pickle_by_value(changed_jobs)
cloudpickle.register_pickle_by_value(state_functions)


def event(user: str, amount: int, minute: int, kind: str = "view") -> dict[str, Any]:
    return {"user": user, "kind": kind, "amount": amount, "at": f"2024-05-01T10:{minute:02}:00Z"}


BEFORE = [
    {"events": [event("ann", 1, 1), event("bob", 2, 2), event("cem", 5, 6)]},
    {"events": [event("ann", 3, 3, "buy"), event("dan", 4, 7)]},
]
AFTER = [
    {"events": [event("ann", 10, 4), event("eve", 7, 8), event("cem", 1, 9)]},
    {"events": [event("bob", 1, 9), event("dan", 2, 8)]},
]

VIEWS = [
    {"events": [event("ann", 1, 1), event("bob", 2, 2), event("cem", 5, 6)]},
    {"events": [event("ann", 3, 3), event("dan", 4, 7)]},
]
CLICKED = [
    {"clicks": [{"ad": kind, "clicker": "zoe", "clicked_at": f"2024-05-01T10:{minute:02}:30Z"}], "events": events}
    for kind, minute, events in (("view", 6, [event("eve", 7, 5)]), ("buy", 8, []))
]
# Sessions are emitted when the watermark has passed them.
CLOSING = [*AFTER, {"events": [event("zoe", 1, 50)]}, {"events": [event("zoe", 1, 51)]}]


def average() -> Any:
    return F.avg("amount").alias("mean")


def kinds() -> Any:
    return F.collect_set("kind").alias("kinds")


def as_double(rows: Any) -> Any:
    return rows.withColumn("amount", F.expr("double(amount)"))


def distinct_amounts() -> Any:
    return F.approx_count_distinct("amount").alias("amounts")


def window(minute: int) -> dict[str, str]:
    return {"start": f"2024-05-01T10:{minute:02}:00.000Z", "end": f"2024-05-01T10:{minute + 5:02}:00.000Z"}


def after_adding(
    user: str, minute: int, n: int, last: int, mean: float, kinds: list[str], amounts: int
) -> dict[str, Any]:
    """A row of plain Python: ``n`` covers all records, the added aggregates those since the migration."""
    at = f"2024-05-01T10:{last:02}:00.000Z"
    return {
        "window": window(minute),
        "user": user,
        "n": n,
        "last": at,
        "mean": mean,
        "kinds": kinds,
        "amounts": amounts,
    }


def tens() -> Any:
    return F.sum(F.col("amount") * 10).alias("total")


def noted(user: str, total: int, note: str) -> dict[str, Any]:
    return {"user": user, "total": total, "note": note}


STORIES = {
    "aggregation dropped": Story(
        updated(windows(count_rows, total, largest)), updated(windows(count_rows, largest)), BEFORE, AFTER
    ),
    "aggregation reordered": Story(
        updated(windows(total, letters, count_rows)), updated(windows(count_rows, letters, total)), BEFORE, AFTER
    ),
    "aggregation selected in another order": Story(
        updated(windows(total, letters, count_rows)),
        updated(windows(total, letters, count_rows, after=selected("letters", "n", "total"))),
        BEFORE,
        AFTER,
    ),
    "aggregation set and selected in another order": Story(
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, average, after=selected("mean", "total", "n"))),
        BEFORE,
        AFTER,
        {"sum": "value.sum", "count": "value.count"},
    ),
    "aggregation widened": Story(
        updated(windows(count_rows, total)), updated(windows(count_rows, total, before=as_double)), BEFORE, AFTER
    ),
    "aggregation set": Story(
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, average)),
        BEFORE,
        AFTER,
        {"sum_2": "value.sum", "count_2": "value.count"},
    ),
    "aggregation added": Story(
        updated(windows(count_rows)),
        updated(windows(largest, average, count_rows, kinds, distinct_amounts)),
        BEFORE,
        AFTER,
        expected=[
            [
                after_adding("ann", 0, 3, 4, 10.0, ["view"], 1),
                after_adding("cem", 5, 2, 9, 1.0, ["view"], 1),
                after_adding("eve", 5, 1, 8, 7.0, ["view"], 1),
            ],
            [after_adding("bob", 5, 1, 9, 1.0, ["view"], 1), after_adding("dan", 5, 2, 8, 2.0, ["view"], 1)],
        ],
    ),
    "aggregation of another expression": Story(
        updated(windows(count_rows, total)), updated(windows(count_rows, tens)), BEFORE, AFTER, {"sum": "sum * 10"}
    ),
    "global": Story(
        globally(count_rows, total), globally(total, average), BEFORE, AFTER, {"sum_2": "sum", "count": "value.count"}
    ),
    "session dropped": Story(sessions(count_rows, total, largest), sessions(largest, count_rows), BEFORE, CLOSING),
    "session set": Story(
        sessions(count_rows, total),
        sessions(average, count_rows),
        BEFORE,
        CLOSING,
        {"sum": "value.sum", "count": "value.count"},
    ),
    "session added": Story(
        sessions(count_rows),
        sessions(count_rows, largest),
        BEFORE,
        CLOSING,
        {"max": 'session_window."end" - interval 4 minutes'},
    ),
    "key added": Story(
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, keys=("user", "kind"))),
        VIEWS,
        AFTER,
        keys="window, user, 'view'",
    ),
    "key merged": Story(
        updated(windows(count_rows, total, largest, keys=("user", "kind"))),
        updated(windows(count_rows, total, largest)),
        BEFORE,
        AFTER,
        keys="window, user",
        merge={"count": "sum", "sum": "sum", "max": "max"},
    ),
    "session key merged": Story(
        sessions(count_rows, total, keys=("user", "kind")),
        sessions(count_rows, total),
        [{"events": [event("ann", 1, 1), event("ann", 2, 1, "buy"), event("cem", 5, 6)]}],
        CLOSING,
        keys="user",
        merge={"session_window": "first", "count": "sum", "sum": "sum"},
    ),
    "key of another window": Story(
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, window=lambda: F.window("at", "10 minutes"))),
        VIEWS[:1],
        AFTER,
        keys="struct_pack(start := date_trunc('hour', window.start), \"end\" := date_trunc('hour', window.start) + "
        "interval 10 minutes), user",
    ),
    "key widened": Story(
        updated(windows(count_rows, keys=("amount",))),
        updated(
            windows(
                count_rows, keys=("amount",), before=lambda rows: rows.withColumn("amount", F.expr("bigint(amount)"))
            )
        ),
        BEFORE,
        AFTER,
    ),
    "session key": Story(
        sessions(count_rows, total), sessions(count_rows, keys=("kind", "user")), VIEWS, CLOSING, keys="'view', user"
    ),
    "dedup key": Story(distinct("user", "at"), distinct("user"), BEFORE, AFTER, keys="user"),
    "dedup within key": Story(
        distinct("user", "kind", within=True),
        distinct("user", within=True),
        BEFORE,
        AFTER,
        keys="user",
        merge={"expiresAtMicros": "min"},
    ),
    "pandas state": Story(
        state_functions.group_state(state_functions.total, "total BIGINT"),
        state_functions.group_state(state_functions.noted_total, "note STRING, total BIGINT"),
        BEFORE,
        AFTER,
        {"groupState.note": "'was ' || groupState.total"},
    ),
    "join": Story(
        joined(columns=("user", "clicker")),
        joined(columns=("user", "clicker", "amount")),
        BEFORE,
        CLICKED,
        {
            "left.amount": "case \"user\" when 'ann' then if(kind = 'buy', 3, 1) when 'bob' then 2 when 'cem' then 5 else 4 end"
        },
        options={"storeName": "left-keyWithIndexToValue"},
    ),
    "custom state": Story(
        state_functions.processor(state_functions.Purchases),
        state_functions.processor(state_functions.WiderPurchases),
        BEFORE,
        CLOSING,
        {"doubled": "2 * total", "recent.note": "'of ' || \"user\"", "by_kind.note": "'seen'"},
        options={"stateVarName": "total"},
    ),
    "custom state in pandas": Story(
        state_functions.pandas_processor(state_functions.PandasTotals),
        state_functions.pandas_processor(state_functions.WiderPandasTotals),
        BEFORE,
        AFTER,
        {"doubled": "2 * total"},
        options={"stateVarName": "total"},
    ),
    "custom state with a time-to-live": Story(
        state_functions.processor(state_functions.ExpiringTotals, "ProcessingTime"),
        state_functions.processor(state_functions.WiderExpiringTotals, "ProcessingTime"),
        BEFORE,
        AFTER,
        expected=[
            [noted("ann", 14, "(14, 28)"), noted("cem", 6, "(6, 12)"), noted("eve", 7, "(7, 14)")],
            [noted("bob", 3, "(3, 6)"), noted("dan", 6, "(6, 12)")],
        ],
        options={"stateVarName": "total"},
    ),
}
CHECKSUMS = {"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}
STORIES |= {
    f"{name} with row checksums": replace(STORIES[name], settings=CHECKSUMS)
    for name in ("aggregation reordered", "session key", "custom state")
}


def test_a_stream_continues_from_migrated_state(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Kept aggregates cover all records, added ones those since the migration; Spark reads what Headwater wrote."""
    stream = ChangingStream(headwater_spark, tmp_path, "hdfs")
    old, new = updated(windows(count_rows)), updated(windows(largest, count_rows))
    stream.run(old, {"events": [event("ann", 1, 1), event("bob", 2, 2)]})
    before = stream.state()
    plan = stream.migrate(new)
    assert plan.effects == ("max(at) covers only records from batch 2 on, for the 2 keys in the state",)
    plan.apply()
    assert (stream.state(0), stream.problems(), stream.check(new).verdict) == (before, [], "same")
    assert state_by_spark(headwater_spark, stream, 1) == state_by_headwater(stream, 1)
    assert stream.run(new, {"events": [event("ann", 3, 0)]}) == [
        [{"window": window(0), "user": "ann", "last": "2024-05-01T10:00:00.000Z", "n": 2}]
    ]
    plan_rewind(stream.files, to=0, replan=True).apply()
    assert (stream.state(), stream.problems()) == (before, [])


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", STORIES)
def test_all_changes_on_all_stores(headwater_spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """The same for all changes on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if not (name.startswith("custom") and store == "hdfs"):
        follow(headwater_spark, tmp_path, STORIES[name], store)
