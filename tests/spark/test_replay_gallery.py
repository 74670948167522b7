"""Replays of every job of the gallery emit the recorded rows."""

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
from jobs.golden import with_tables
from spark.replay_support import GOLDEN, in_folder, put_step

FORMS: dict[str, dict[str, Any]] = {
    "running-totals/pandas": {"form": "pandas"},
    "sliding-counts/deduplicate": {"deduplicate": True},
    "user-sessions/transform_with_state": {"form": "transform_with_state"},
    "user-sessions/pandas": {"form": "pandas"},
    "weekly-totals/window": {"form": "window"},
}
# A join, a static table, an aggregation and custom state are replayed every time; the others are marked slow.
IN_EVERY_RUN = {
    "ad-attribution",
    "enriched-sales",
    "user-sessions",
    "weekly-totals",
}
GOLDEN_FILES = [json.loads(file.read_text()) for file in sorted(GOLDEN.glob("*.json"))]
GOLDEN_BY_JOB = {golden["job"]: golden for golden in GOLDEN_FILES if "settings" not in golden}


def first_lines(job: str) -> list[list[Any]]:
    """Return the lines of two batches, or of three if fewer emit no row; a single golden step is split in half."""
    golden = GOLDEN_BY_JOB[job]
    first, *rest = [step["send"] for step in (golden["steps"] if "steps" in golden else golden["complete"])]
    if not rest:
        return [first[: len(first) // 2], first[len(first) // 2 :]]
    return [first, *rest[: 2 if job == "user-sessions" else 1]]


def test_every_job_is_covered() -> None:
    """Every job of the gallery has golden records."""
    assert set(GOLDEN_BY_JOB) == set(gallery_names())


def parameter(name: str) -> Any:
    return pytest.param(name, marks=[] if name in IN_EVERY_RUN else [pytest.mark.slow])


@pytest.mark.parametrize("name", [parameter(name) for name in [*sorted(gallery_names()), *FORMS]])
def test_replay(headwater_spark, tmp_path: Path, name: str) -> None:
    """A replay from recorded state emits the recorded rows, although the source has newer records."""
    job = load_job(name.partition("/")[0])
    job = replace(job, settings={**job.settings, **FORMS.get(name, {})})
    steps = first_lines(job.name)
    job, _ = in_folder(with_tables(job, tmp_path, GOLDEN_BY_JOB[job.name].get("tables", {})), tmp_path, steps)
    emitted: dict[int, list[Any]] = {}
    record(headwater_spark, job, str(tmp_path / "checkpoint"), emitted)
    put_step({name: Path(source.path) for name, source in job.sources.items()}, 900, steps[0])
    last = max(emitted)
    again = replay(headwater_spark, job, LocalTree(tmp_path / "checkpoint"), 1, last)
    assert {one.batch_id: texts(one.rows) for one in again} == {
        number: texts(rows) for number, rows in emitted.items() if number > 0
    }
    assert any(emitted.values())
    assert unstable_expressions(headwater_spark, job) == []


def record(spark: Any, job: Any, checkpoint: str, emitted: dict[int, list[Any]]) -> None:
    """Run the job with a sink that records the rows of each batch."""
    prepared = prepare_job(spark, job)

    def record_rows(batch: Any, number: int) -> None:
        emitted[number] = [row.asDict(recursive=True) for row in (job(batch) if job.per_batch else batch).collect()]

    writer = prepared.frame.writeStream.outputMode(job.mode).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).foreachBatch(record_rows).start().awaitTermination()


def texts(rows: list[Any]) -> list[str]:
    """Return sorted rows as JSON, with times as Spark prints them."""
    return sorted(json.dumps(row, sort_keys=True, default=as_spark_prints) for row in rows)


def as_spark_prints(value: Any) -> str:
    return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
