"""Every job of the gallery: its recorded batches give again what they gave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint.local_tree import LocalTree
from headwater.jobs.loading import gallery_names, load_job
from headwater.spark.nondeterminism import unstable_expressions
from headwater.spark.prepared import prepare_job
from headwater.spark.replay import replay
from spark.replay_support import GOLDEN, in_folder, put

FORMS: dict[str, dict[str, Any]] = {
    "user-sessions/transform_with_state": {"form": "transform_with_state"},
    "user-sessions/pandas": {"form": "pandas"},
}
# One job of each kind of operator stands for the others in every test run; the long one has them all.
IN_EVERY_RUN = {
    "browser-stats-stateless",
    "deduplicated-events",
    "running-totals",
    "user-sessions",
    "weekly-totals",
    "word-count",
}
TOLD = {told["job"]: told for told in map(json.loads, (file.read_text() for file in sorted(GOLDEN.glob("*.json"))))}


def first_lines(job: str) -> list[list[str]]:
    """Two batches, or three where it takes that to give a row; a single golden step is cut in the middle."""
    told = TOLD[job]
    first, *rest = [step["send"] for step in (told["steps"] if "steps" in told else told["complete"])]
    if not rest:
        return [first[: len(first) // 2], first[len(first) // 2 :]]
    return [first, *rest[: 2 if job == "user-sessions" else 1]]


def test_every_job_is_here() -> None:
    """The golden records feed the whole gallery."""
    assert set(TOLD) == set(gallery_names())


def parameter(name: str) -> Any:
    return pytest.param(name, marks=[] if name in IN_EVERY_RUN else [pytest.mark.slow])


@pytest.mark.parametrize("name", [parameter(name) for name in [*sorted(gallery_names()), *FORMS]])
def test_replay(headwater_spark, tmp_path: Path, name: str) -> None:
    """From the state that its first batch had, a job gives the recorded rows, although its source has more by now."""
    job = load_job(name.partition("/")[0])
    job = replace(job, settings={**job.settings, **FORMS.get(name, {})})
    steps = first_lines(job.name)
    job, inbox = in_folder(job, tmp_path, steps)
    given: dict[int, list[Any]] = {}
    record(headwater_spark, job, str(tmp_path / "checkpoint"), given)
    put(inbox, 900, steps[0])
    last = max(given)
    again = replay(headwater_spark, job, LocalTree(tmp_path / "checkpoint"), 1, last)
    assert {one.batch_id: texts(one.rows) for one in again} == {
        number: texts(rows) for number, rows in given.items() if number > 0
    }
    assert any(given.values())
    assert unstable_expressions(headwater_spark, job) == []


def record(spark: Any, job: Any, checkpoint: str, given: dict[int, list[Any]]) -> None:
    """Run the job as it is, with a sink that remembers the rows of each batch."""
    prepared = prepare_job(spark, job)

    def remember(batch: Any, number: int) -> None:
        given[number] = [row.asDict(recursive=True) for row in (job(batch) if job.per_batch else batch).collect()]

    writer = prepared.frame.writeStream.outputMode(job.mode).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).foreachBatch(remember).start().awaitTermination()


def texts(rows: list[Any]) -> list[str]:
    """Rows of either shape: times as Spark's JSON prints them."""
    return sorted(json.dumps(row, sort_keys=True, default=as_spark_prints) for row in rows)


def as_spark_prints(value: Any) -> str:
    return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
