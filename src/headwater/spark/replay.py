"""Run recorded batches again on a scratch copy, and catch what they emit. Production is only read."""

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
from headwater.jobs.endpoints import Console, Kafka, Socket, Source
from headwater.jobs.job import Job
from headwater.spark.failures import condition_of, explained, failure, root_cause
from headwater.spark.prepared import PreparedJob, prepare_job
from headwater.spark.session import CHECKPOINT_FORMAT, temporary_settings
from headwater.spark.writing import Rows, capturing
from headwater.timemachine.recorded import Stage, empty_stage, forked_stage, recorded_batches

OTHER_STATE = (
    "SCHEMA_NOT_COMPATIBLE",
    "SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
DATA_GONE = ("KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange")


@dataclass(frozen=True)
class ReplayedBatch:
    """What one recorded batch emitted this time."""

    batch_id: int
    rows: Rows


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
    """Batches ``first`` to ``last``, each as one micro-batch with its recorded offsets.

    They start from the state that the first of them had, or from none with ``from_empty_state``.
    """
    wanted = recorded_batches(files, first, last)
    job = replace(job, reads=_whole_or_not_at_all(job.reads), writes=Console())
    stage_at = empty_stage if from_empty_state else forked_stage
    with (
        temporary_settings(spark, {CHECKPOINT_FORMAT: "2" if CheckpointLogs(files).is_format_two else "1"}),
        # Maintenance of state may still be at work in it.
        tempfile.TemporaryDirectory(prefix="headwater-replay-", ignore_cleanup_errors=True) as folder,
    ):
        prepared = prepare_job(spark, job)
        return list(_run(prepared, stage_at(files, first, Path(folder) / "checkpoint"), wanted, on_batch))


def _whole_or_not_at_all(source: Source) -> Source:
    """Records that are gone have to end the replay: without them its rows would be wrong, and nobody would know."""
    if isinstance(source, Socket):
        raise ChangeRefused(
            "cannot-reread",
            "lines from a socket cannot be read again",
            remedy="run the job on a folder or a topic if you want to replay it: --source files:DIR?format=text",
        )
    if not isinstance(source, Kafka):
        return source
    rest = {name: value for name, value in source.options.items() if name.lower() != "failondataloss"}
    return replace(source, options={**rest, "failOnDataLoss": "true"})


def _run(
    prepared: PreparedJob, stage: Stage, wanted: list[int], on_batch: Callable[[int], None]
) -> Iterator[ReplayedBatch]:
    for batch in wanted:
        on_batch(batch)
        stage.lay_in(batch)
        caught = _run_planned_batch(prepared, stage.scratch)
        yield ReplayedBatch(batch, caught[batch - stage.rebased_by])


def _run_planned_batch(prepared: PreparedJob, scratch: LocalTree) -> dict[int, Rows]:
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
    if any(name in cause for name in OTHER_STATE):
        return ChangeRefused(
            "state-incompatible",
            f"{job.name} cannot go on from this state: its own has another shape",
            evidence={"Spark says": root_cause(error)},
            remedy="add --from-empty-state: both jobs then start from nothing at the first batch",
        )
    if any(sign in cause for sign in DATA_GONE):
        return ChangeRefused(
            "data-gone",
            f"{job.name} cannot be replayed: the topic no longer holds what the batch read",
            evidence={"Kafka says": root_cause(error)},
            remedy="replay a later batch; a longer retention.ms keeps more",
        )
    return failure(job.name, error)
