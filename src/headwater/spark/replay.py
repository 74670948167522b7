"""Run recorded batches again on a scratch copy, and catch what they emit. Production is only read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headwater.checkpoint.files import Files, LocalFiles
from headwater.core.errors import ChangeRefused, HeadwaterError
from headwater.jobs.job import Job
from headwater.spark.capture import Rows, capturing
from headwater.spark.failures import condition_of, explained, failure, root_cause
from headwater.spark.plan_checks import nodes
from headwater.spark.prepared import PreparedJob, prepare_job
from headwater.timemachine.rebased import empty_stage
from headwater.timemachine.recorded import Stage, forked_stage, recorded_batches


@dataclass(frozen=True)
class ReplayedBatch:
    """What one recorded batch emitted this time."""

    batch_id: int
    rows: Rows


def replay(
    spark: SparkSession,
    job: Job,
    files: Files,
    first: int,
    last: int,
    *,
    from_empty_state: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> list[ReplayedBatch]:
    """Batches ``first`` to ``last``, each as one micro-batch with its recorded offsets.

    They start from the state that the first of them had, or from none with ``from_empty_state``.
    """
    wanted = recorded_batches(files, first, last)
    prepared = prepare_job(spark, job)
    stage_at = empty_stage if from_empty_state else forked_stage
    with tempfile.TemporaryDirectory(prefix="headwater-replay-") as folder:
        return list(_run(prepared, stage_at(files, first, Path(folder) / "checkpoint"), wanted, on_batch))


def nondeterministic_parts(spark: SparkSession, job: Job) -> list[str]:
    """Expressions of the job that give something else each time, such as ``rand()``: replays of it mean little."""
    frame = prepare_job(spark, job).frame
    plan = frame._jdf.queryExecution().analyzed()
    found = []
    for node in nodes(plan):
        expressions = node.expressions()
        for place in range(expressions.size()):
            if not expressions.apply(place).deterministic():
                found.append(str(expressions.apply(place).sql()))
    return found


def _run(
    prepared: PreparedJob, stage: Stage, wanted: list[int], on_batch: Callable[[int], None]
) -> Iterator[ReplayedBatch]:
    for batch in wanted:
        on_batch(batch)
        stage.lay_in(batch)
        caught = _run_planned_batch(prepared, stage.scratch)
        yield ReplayedBatch(batch, caught[batch - stage.rebased_by])


def _run_planned_batch(prepared: PreparedJob, scratch: LocalFiles) -> dict[int, Rows]:
    """``Trigger.Once`` on a checkpoint with one planned batch runs exactly that batch."""
    caught: dict[int, Rows] = {}
    job = prepared.job
    writer = prepared.frame.writeStream.outputMode(job.mode).option("checkpointLocation", scratch.location)
    try:
        with explained(f"Spark does not start {job.name}"):
            query = writer.trigger(once=True).foreachBatch(capturing(job, caught.__setitem__)).start()
        query.awaitTermination()
    except StreamingQueryException as error:
        raise _explained(job, error) from error
    return caught


def _explained(job: Job, error: StreamingQueryException) -> HeadwaterError:
    cause = f"{condition_of(error)} {root_cause(error)} {error}"
    if "SCHEMA_NOT_COMPATIBLE" in cause or "STATE_STORE_COLUMN_FAMILY_SCHEMA" in cause:
        return ChangeRefused(
            "state-incompatible",
            f"{job.name} cannot go on from this state: its own has another shape",
            evidence={"Spark says": root_cause(error)},
            remedy="add --from-empty-state: both jobs then start from nothing at the first batch",
        )
    return failure(job.name, error)
