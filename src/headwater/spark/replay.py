"""Run recorded batches again on a scratch copy and capture what they emit. The original checkpoint is only read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import ChangeRefused, HeadwaterError
from headwater.jobs.endpoints import Console, Kafka
from headwater.jobs.job import Job
from headwater.jobs.rules import check_job, has_socket
from headwater.spark.failures import condition_of, explained, failure, refuses_state, root_cause
from headwater.spark.prepared import PreparedJob, prepare_job
from headwater.spark.session import CHECKPOINT_FORMAT, temporary_settings
from headwater.spark.source_names import naming_settings
from headwater.spark.writing import Rows, capturing_writer
from headwater.timemachine.replay_scratch import (
    ReplayScratch,
    recorded_batches,
    scratch_with_state,
    scratch_without_state,
)

DATA_LOSS = ("KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange")


@dataclass(frozen=True)
class ReplayedBatch:
    """The rows that one recorded batch emitted when it ran again."""

    batch_id: int
    rows: Rows


def replayable(job: Job) -> Job:
    """Return the job as a replay runs it: without its sink, and failing if a record is missing.

    Without that, a replay of records that are no longer in the topic would silently emit wrong rows.
    """
    if has_socket(job):
        raise ChangeRefused(
            "cannot-reread",
            "lines from a socket cannot be read again",
            remedy="to replay a job, run it on a folder or a topic: --source files:DIR?format=text",
        )
    topics = {name: _strict(source) for name, source in job.sources.items() if isinstance(source, Kafka)}
    chosen = replace(job.with_inputs(topics), writes=Console())
    check_job(chosen)
    return chosen


def _strict(source: Kafka) -> Kafka:
    options = {name: value for name, value in source.options.items() if name.lower() != "failondataloss"}
    return replace(source, options={**options, "failOnDataLoss": "true"})


def replay(
    spark: SparkSession,
    job: Job,
    files: FileTree,
    first: int,
    last: int,
    *,
    from_empty_state: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> list[ReplayedBatch]:
    """Run a replayable job on batches ``first`` to ``last``, each as one micro-batch with its recorded offsets.

    The replay starts from the state that batch ``first`` started from or, with ``from_empty_state``, from none.
    """
    batches = recorded_batches(files, first, last)
    create_scratch = scratch_without_state if from_empty_state else scratch_with_state
    with (
        temporary_settings(spark, {CHECKPOINT_FORMAT: "2" if CheckpointLogs(files).is_format_two else "1"}),
        temporary_settings(spark, naming_settings(spark, job, files)),
        # Spark's state maintenance may still be writing in the folder when it is removed.
        tempfile.TemporaryDirectory(prefix="headwater-replay-", ignore_cleanup_errors=True) as folder,
    ):
        prepared = prepare_job(spark, job)
        with prepared.tables:
            prepared.tables.load()
            return list(_run(prepared, create_scratch(files, first, Path(folder) / "checkpoint"), batches, on_batch))


def _run(
    prepared: PreparedJob, scratch: ReplayScratch, batches: list[int], on_batch: Callable[[int], None]
) -> Iterator[ReplayedBatch]:
    for batch in batches:
        on_batch(batch)
        scratch.plan_batch(batch)
        captured = _run_planned_batch(prepared, scratch.checkpoint)
        yield ReplayedBatch(batch, captured[batch - scratch.rebased_by])


def _run_planned_batch(prepared: PreparedJob, scratch: LocalTree) -> dict[int, Rows]:
    """Run the one batch that is planned on the scratch checkpoint: ``Trigger.Once`` runs nothing else."""
    captured: dict[int, Rows] = {}
    job = prepared.job
    writer = prepared.frame.writeStream.outputMode(job.mode).option("checkpointLocation", scratch.location)
    try:
        with explained(f"Spark cannot start {job.name}"):
            query = (
                writer.trigger(once=True)
                .foreachBatch(capturing_writer(prepared.result_of, captured.__setitem__))
                .start()
            )
        query.awaitTermination()
    except StreamingQueryException as error:
        raise _replay_error(job, error) from error
    return captured


def _replay_error(job: Job, error: StreamingQueryException) -> HeadwaterError:
    cause = f"{condition_of(error)} {root_cause(error)} {error}"
    if refuses_state(error):
        return ChangeRefused(
            "state-incompatible",
            f"{job.name} cannot resume from the recorded state: its own state has a different schema",
            evidence={"reason": root_cause(error)},
            remedy="add --from-empty-state: both jobs then start from empty state at the first batch",
        )
    if any(sign in cause for sign in DATA_LOSS):
        return ChangeRefused(
            "data-gone",
            f"cannot replay {job.name}: the topic no longer has the records that the batch read",
            evidence={"reason": root_cause(error)},
            remedy="replay a later batch; a longer retention.ms keeps more records",
        )
    return failure(job.name, error)
