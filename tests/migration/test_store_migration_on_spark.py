"""State in another store on real Spark: the stream continues as if nothing had happened, and can be rewound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from headwater import Job
from headwater.migration.store_migration import plan_store_migration
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from migration import changed_jobs, state_functions
from migration.changed_jobs import count_rows, distinct, globally, joined, largest, sessions, total, updated, windows
from migration.migrating import ChangingStream, state_by_headwater, state_by_spark
from migration.test_migrate_on_spark import AFTER, BEFORE, CLICKED, CLOSING

# Python workers do not have the folder of the tests on their path.
cloudpickle.register_pickle_by_value(changed_jobs)
cloudpickle.register_pickle_by_value(state_functions)

AGGREGATION = updated(windows(count_rows, total, largest))
JOBS: dict[str, tuple[Job, list[Any], dict[str, str]]] = {
    "aggregation": (AGGREGATION, AFTER, {}),
    "global": (globally(count_rows, total), AFTER, {}),
    "session": (sessions(count_rows, total), CLOSING, {}),
    "dedup": (distinct("user", "at"), AFTER, {}),
    "dedup within": (distinct("user", within=True), AFTER, {}),
    "join": (joined(), CLICKED, {"storeName": "left-keyWithIndexToValue"}),
    "pandas state": (state_functions.group_state(state_functions.total, "total BIGINT"), AFTER, {}),
    "custom state": (state_functions.processor(state_functions.Purchases), CLOSING, {"stateVarName": "total"}),
}
FORMS: dict[str, dict[str, Any]] = {
    "hdfs": {"store": "hdfs"},
    "rocksdb": {"store": "rocksdb"},
    "changelog": {"store": "rocksdb-changelog"},
    "format2": {"store": "rocksdb-changelog", "checkpoint_format": 2},
}
PAIRS = [
    (old, new)
    for old in FORMS
    for new in FORMS
    if old not in (new, "format2")  # Spark cannot continue in format 1 next to the files of format 2
]


def follow_store(spark: SparkSession, folder: Path, name: str, old: str, new: str) -> None:
    """Run, migrate, undo, migrate again and continue; compare with an uninterrupted run; rewind and run with the old one."""
    job, after, options = JOBS[name]
    stream = ChangingStream(spark, folder / "changed", old)
    stream.run(job, *BEFORE)
    last = len(BEFORE) - 1
    before, by_spark = stream.state(), state_by_spark(spark, stream, last, **options)

    plan_store_migration(stream.files, **FORMS[new]).apply()
    assert stream.state(last) == before, "earlier batches have to stay readable"
    assert stream.state() == before
    plan_undo(stream.files).apply()
    assert stream.state() == before
    plan = plan_store_migration(stream.files, **FORMS[new])
    plan.apply()
    assert stream.problems() == []
    if new != "format2":  # next to its files, Spark's reader cannot list those of earlier batches
        assert state_by_spark(spark, stream, last, **options) == by_spark
    stream.store = new
    assert state_by_spark(spark, stream, plan.batch_id, **options) == state_by_headwater(
        stream, plan.batch_id, **options
    )
    found = stream.run(job, *after)
    uninterrupted = ChangingStream(spark, folder / "uninterrupted", old)
    expected = uninterrupted.run(job, *BEFORE, *after)
    assert found == expected[len(BEFORE) :]
    assert stream.state() == uninterrupted.state()
    assert stream.problems() == []

    plan_rewind(stream.files, to=last, replan=True).apply()
    stream.store = old
    assert (stream.state(), stream.problems()) == (before, [])
    stream.run(job, {})
    assert stream.problems() == []
    if name in ("aggregation", "global", "pandas state"):
        assert stream.state() == uninterrupted.state()


@pytest.mark.parametrize(("name", "old", "new"), [("aggregation", "changelog", "format2")])
def test_a_stream_continues_from_another_store(
    headwater_spark: SparkSession, tmp_path: Path, name: str, old: str, new: str
) -> None:
    """It emits what an uninterrupted run emits, has its state, and a rewind across the migration brings the old store back."""
    follow_store(headwater_spark, tmp_path, name, old, new)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), PAIRS, ids=[f"{old}-{new}" for old, new in PAIRS])
@pytest.mark.parametrize("name", JOBS)
def test_all_operators_between_all_stores(
    headwater_spark: SparkSession, tmp_path: Path, name: str, old: str, new: str
) -> None:
    """The same for all operators between all stores, except for custom state in HDFS-backed ones, which Spark lacks."""
    if not (name.startswith("custom") and "hdfs" in (old, new)):
        follow_store(headwater_spark, tmp_path, name, old, new)
