"""A job built on a session: its plan has passed Spark's checks, and no query has started."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType

from headwater.core.errors import HeadwaterError, JobRefused, SetupProblem
from headwater.jobs.endpoints import Delta, Files, Iceberg, Kafka, Postgres, Source, Static
from headwater.jobs.job import Frames, Job
from headwater.jobs.triggers import parse_trigger
from headwater.spark import delta, postgres
from headwater.spark.failures import explained, first_sentence, user_code_place
from headwater.spark.internals.plans import count_reads
from headwater.spark.plan_checks import check_plan
from headwater.spark.reading import read_inputs, require_columns
from headwater.spark.static_tables import StaticTables
from headwater.spark.table_formats import require_format
from headwater.spark.writing import BatchWriter, batch_writer, check_encodable, encode_for, start_stream


@dataclass(frozen=True)
class PreparedJob:
    """A job with its plan. ``frame`` is the job's result or, for a per-batch job, the decoded source.

    ``tables`` are the static tables. Their rows are kept from ``start`` until ``tables`` is closed as a context manager.
    """

    spark: SparkSession
    job: Job
    frame: DataFrame
    schema: StructType
    tables: StaticTables
    warnings: tuple[str, ...] = ()
    inputs: Mapping[str, DataFrame] = field(default_factory=dict)
    """What the job's function received."""

    def start(self, checkpoint: str, generation: int = 0) -> StreamingQuery:
        """Start a query into the job's own sink. ``generation`` counts the changes made to the checkpoint so far."""
        job = self.job
        self.tables.load()
        rows = self.frame if job.per_batch else encode_for(job.writes, self.frame)
        writer = rows.writeStream.outputMode(job.mode).option("checkpointLocation", checkpoint)
        arguments = parse_trigger(job.trigger).spark_arguments()
        if arguments:
            writer = writer.trigger(**arguments)
        if job.per_batch:
            write = batch_writer(self.spark, job.writes, self.schema, generation)
            return writer.foreachBatch(self._on_each_batch(write)).start()
        return start_stream(self.spark, writer, job.writes, self.frame, generation)

    def result_of(self, batch: DataFrame) -> DataFrame:
        """Return what a micro-batch of ``frame`` emits."""
        if not self.job.per_batch:
            return batch
        return self.job.apply({**self.tables.for_batch(), **dict.fromkeys(self.job.sources, batch)})

    def _on_each_batch(self, write: BatchWriter) -> Callable[[DataFrame, int], None]:
        def run_batch(batch: DataFrame, batch_id: int) -> None:
            result = self.result_of(batch)
            # Otherwise a function that uses its batch twice would read the source, and count its records, twice.
            shared = count_reads(result) > 1 + len(self.tables.frames)
            if shared:
                batch.persist()
            try:
                write(result, batch_id)
            finally:
                if shared:
                    batch.unpersist()

        return run_batch


def prepare_job(spark: SparkSession, job: Job, *, inputs: Frames | None = None) -> PreparedJob:
    """Build and check the plan of a job that has passed ``check_job``. ``inputs`` replace the job's own, for tests."""
    _check_trigger(job)
    require_format(spark, job.writes)
    frames = read_inputs(spark, job) if inputs is None else inputs
    tables = StaticTables(spark, job, frames)
    if job.per_batch:
        (name,) = job.sources
        stream = frames[name]
        result = apply_function(job, {**frames, name: spark.createDataFrame([], stream.schema)})
        _check_sink_columns(job, result)
        return PreparedJob(spark, job, stream, result.schema, tables, inputs=frames)
    result = apply_function(job, frames)
    if not result.isStreaming:
        raise JobRefused(
            "not-a-stream",
            f"{job.name} returns a static DataFrame",
            remedy="build the result from a stream that the function receives, or set per_batch=True",
        )
    _check_sink_columns(job, result)
    warnings = check_plan(spark, job, result)
    return PreparedJob(spark, job, result, result.schema, tables, warnings=tuple(warnings), inputs=frames)


def check_only(spark: SparkSession, job: Job) -> tuple[str, ...]:
    """Refuse the plan that ``run`` would refuse; return its warnings. Services and folders need not exist."""
    with prepared_offline(spark, job) as prepared:
        return prepared.warnings


@contextmanager
def prepared_offline(spark: SparkSession, job: Job) -> Iterator[PreparedJob]:
    """Yield a job that is only to be planned: an empty folder takes the place of each input folder that does not exist."""
    with tempfile.TemporaryDirectory() as empty:
        sources: dict[str, Source | Static] = {
            name: replace(source, path=empty)
            for name, source in job.sources.items()
            if isinstance(source, Files) and _is_missing(source)
        }
        sources |= {
            name: Files(empty, source.schema)
            for name, source in job.sources.items()
            if isinstance(source, Delta) and source.schema is not None and not delta.is_table(source)
        }
        statics = {
            name: replace(static, table=replace(static.table, path=empty))
            for name, static in job.statics.items()
            if isinstance(static.table, Files) and _is_missing(static.table)
        }
        statics |= {
            name: replace(static, table=Files(empty, static.table.schema))
            for name, static in job.statics.items()
            if isinstance(static.table, Delta) and static.table.schema is not None and not delta.is_table(static.table)
        }
        yield prepare_job(spark, job.with_inputs({**sources, **statics}))


def _is_missing(files: Files) -> bool:
    return "://" not in files.path and not Path(files.path).exists()


def apply_function(job: Job, frames: Frames) -> DataFrame:
    """Call the job's function. An error in it becomes a refusal that names the line of the user's file."""
    try:
        with explained(f"Spark cannot analyze the function of {job.name}"):
            result = job.apply(frames)
            if isinstance(result, DataFrame):
                result.schema  # noqa: B018  forces Spark to resolve the columns
    except HeadwaterError:
        raise
    except Exception as error:
        if isinstance(error, AttributeError) and error.name == "transformWithState":
            raise _needs_pyspark(f"transformWithState in {job.name}", "4.1") from error
        place = user_code_place(error, inspect.getsourcefile(job.transform) or "")
        raise JobRefused(
            "job-function",
            f"the function of {job.name} raised {type(error).__name__}: {first_sentence(error)}",
            evidence={"in": place} if place else None,
            remedy="add --debug to see the traceback",
        ) from error
    if not isinstance(result, DataFrame):
        raise JobRefused(
            "job-function",
            f"the function of {job.name} returns {type(result).__name__}, not a DataFrame",
            remedy="return the DataFrame that the function builds",
        )
    return result


def _check_trigger(job: Job) -> None:
    arguments = parse_trigger(job.trigger).spark_arguments()
    if not arguments.keys() <= inspect.signature(DataStreamWriter.trigger).parameters.keys():
        raise _needs_pyspark("the real-time trigger", "4.2")


def _needs_pyspark(what: str, since: str) -> SetupProblem:
    return SetupProblem(
        "pyspark-version",
        f"{what} needs PySpark {since} or newer",
        evidence={"installed": pyspark.__version__},
        remedy=f"pip install 'pyspark>={since},<4.4'",
    )


def _check_sink_columns(job: Job, result: DataFrame) -> None:
    sink = job.writes
    if isinstance(sink, Kafka) and sink.key is not None:
        require_columns(result, tuple(name.partition(".")[0] for name in sink.key_names), "the Kafka key")
    check_encodable(sink, result.schema)
    if isinstance(sink, Postgres):
        postgres.key_columns(sink, postgres.table_columns(result.schema))
    if isinstance(sink, Delta):
        delta.check_columns(sink, result.schema)
    if isinstance(sink, Iceberg):
        require_columns(result, sink.partition_names, "partition_by")
