"""Carry out a seed: Spark runs the job's own query over the history, and its checkpoint is given the sources' positions.

The run is an ordinary one, in a single batch, on a checkpoint next to the new one. By event time, the job then also reads
what its sources have now, without the records that the history has. A seed that was interrupted resumes where it stopped,
because a sink may already have its output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.file_logs import LogNames, log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import JOB_FILE, PLANS_FILE, SINK_LOG
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.plan_record import RecordedPlan, plans_file
from headwater.core.current_user import current_user
from headwater.core.errors import JobRefused
from headwater.core.times import iso_from_ms
from headwater.jobs.endpoints import Postgres
from headwater.jobs.job import Frames
from headwater.spark import postgres
from headwater.spark.code_check import CurrentCode
from headwater.spark.dropped.lateness import source_order
from headwater.spark.failures import explained, failure
from headwater.spark.history_frames import history_frame, later_frame
from headwater.spark.internals.state_stores import unload_stores_of
from headwater.spark.job_session import log_file, settings_of_job
from headwater.spark.ownership import holding_lease, job_record
from headwater.spark.prepared import PreparedJob, prepare_job
from headwater.spark.reading import read_inputs
from headwater.spark.runner import files_at
from headwater.spark.seed_request import SeedRequest, history_source
from headwater.spark.session import (
    DEFAULT_MASTER,
    active_session,
    add_jars,
    jars_for,
    own_or_active_session,
    start_session,
    stop_session,
    temporary_settings,
)
from headwater.spark.source_names import naming_settings
from headwater.timemachine.compacted_log import empty_log
from headwater.timemachine.seed import (
    SCRATCH_SUFFIX,
    STAGE_FILE,
    Progress,
    SeedPlan,
    adopt,
    read_progress,
    refuse_existing,
    refuse_other_seed,
    reserve,
    rewrite_positions,
    seed_record,
)
from headwater.timemachine.seed_record import SEED_FILE

Report = Callable[[int], None]
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Seeded:
    """A checkpoint that was seeded: its batches, the rows that they read, and the rows of its state."""

    checkpoint: str
    batches: tuple[int, ...]
    rows: int
    state_rows: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "done": self.checkpoint,
            "batches": list(self.batches),
            "rows": self.rows,
            "state_rows": self.state_rows,
            "seconds": self.seconds,
        }


def seed_in_program(request: SeedRequest, plan: SeedPlan, *, conf: Mapping[str, str] | None = None) -> Seeded:
    """Carry out a seed on the session of this process, or on one that is started for it.

    ``conf`` has settings besides those of the job.
    """
    request = replace(request, job=replace(request.job, conf={**request.job.conf, **(conf or {})}))
    with session_for(request) as spark:
        return seed(spark, request, plan)


@contextmanager
def session_for(request: SeedRequest, *, master: str | None = None) -> Iterator[SparkSession]:
    """Yield the session of this process, or one that is started for a seed and stopped at the end."""
    job = request.job
    jars = dict.fromkeys(jars_for(job, request.checkpoint))
    for name in job.sources:
        if (history := history_source(request, name)) is not None:
            jars |= dict.fromkeys(jars_for(job.with_inputs({name: history}), request.checkpoint))
    if active_session() is not None:
        with own_or_active_session(job.name, conf=job.conf, jars=list(jars)) as active:
            add_jars(active, list(jars))
            yield active
        return
    spark = start_session(
        job.name, master=master or DEFAULT_MASTER, conf=job.conf, jars=list(jars), log=log_file([job])
    )
    try:
        yield spark
    finally:
        stop_session(spark)


def seed(
    spark: SparkSession,
    request: SeedRequest,
    plan: SeedPlan,
    *,
    report: Report = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    complete: Callable[[FileTree], None] = lambda _: None,
) -> Seeded:
    """Seed a checkpoint, or continue a seed that was interrupted. ``report`` receives the rows read so far.

    ``complete`` may add batches to the checkpoint before it is put in place. The lease is held, and after an interruption
    it may be called again.
    """
    begun = time.monotonic()
    with settings_of_job(spark, request.job, warn), ExitStack() as resources:
        scratch = files_at(spark, f"{request.checkpoint}{SCRATCH_SUFFIX}")
        into = files_at(spark, request.checkpoint)
        refuse_existing(into)
        resources.enter_context(holding_lease(spark, scratch, request.job.name))
        with temporary_settings(spark, naming_settings(spark, request.job, scratch)):
            run = _SeedRun(spark, request, plan, scratch, report, resources)
            reserve(into)
            run.finish_from(read_progress(scratch), complete)
        batches = tuple(CheckpointLogs(scratch).commits.ids)
        record = seed_record(run.plan, batches=batches, rows=run.rows, by=current_user(), at=_now())
        adopt(scratch, into, {**run.records(), SEED_FILE: record})
    scratch.remove_folder("")
    seconds = round(time.monotonic() - begun, 2)
    return Seeded(request.checkpoint, batches, run.rows, run.state_rows, seconds)


class _SeedRun:
    """The stages of a seed on its scratch checkpoint: the history, the positions and, by event time, the sources."""

    def __init__(
        self,
        spark: SparkSession,
        request: SeedRequest,
        plan: SeedPlan,
        scratch: FileTree,
        report: Report,
        resources: ExitStack,
    ) -> None:
        self.spark, self.request, self.plan, self.scratch, self.report = spark, request, plan, scratch, report
        self.rows = self.state_rows = 0
        self.job = replace(request.job, trigger="available-now")
        self._resources = resources
        self._inputs = read_inputs(spark, self.job)
        live = prepare_job(spark, self.job, inputs=self._inputs)
        self._code = CurrentCode.of(live)
        if self._code.operators == ():
            raise JobRefused(
                "no-state",
                f"{self.job.name} keeps no state between batches, so there is nothing to seed",
                remedy="start it at a position: --source 'kafka://…?startingOffsets=…'",
            )
        several = len(self.job.sources) > 1
        self._order = source_order(self.job, self._inputs) if several else list(self.job.sources)

    def finish_from(self, progress: Progress | None, complete: Callable[[FileTree], None]) -> None:
        """Do the stages that an interrupted seed has not completed."""
        offsets = {source.name: source.offset for source in self.plan.sources}
        if progress is not None:
            refuse_other_seed(progress, self.plan)
            offsets = dict(progress.offsets)
            self.plan = self.plan.with_offsets(offsets)  # the topic may have grown since
            self.rows, self.state_rows = progress.rows, progress.state_rows
        current = progress or self._record(Progress("history", self.plan.asked, offsets))
        if current.stage == "history":
            self._run(self._history(), self.request.output)
            current = self._record(replace(current, stage="positions", rows=self.rows, state_rows=self.state_rows))
        if current.stage == "positions":
            rewrite_positions(self.scratch, [offsets[name] for name in self._order])
            complete(self.scratch)
            self._note_batches_in_sink()
            by_time = self.request.by == "event-time"
            current = self._record(replace(current, stage="live" if by_time else "complete"))
        if current.stage == "live":
            self._run({name: later_frame(self.request, self._inputs[name]) for name in self.job.sources}, "write")
            self._record(replace(current, stage="complete", rows=self.rows, state_rows=self.state_rows))

    def records(self) -> dict[str, bytes]:
        """Return what a run of the job would have recorded."""
        order = tuple(self._order) if len(self.job.sources) > 1 else ()
        record = replace(job_record(self.request.run), source_order=order)
        found = {JOB_FILE: record.to_bytes()}
        if self._code.operators is not None:
            plan = RecordedPlan(0, self._code.operators, self.spark.version, _now())
            found[PLANS_FILE] = plans_file([plan])
        return found

    def _record(self, progress: Progress) -> Progress:
        self.scratch.write(STAGE_FILE, progress.to_bytes())
        return progress

    def _history(self) -> dict[str, DataFrame]:
        # Until the end of the seed: the query reads an empty file there in place of a source without history.
        empty = Path(self._resources.enter_context(TemporaryDirectory(prefix="headwater-seed-")))
        offsets = {source.name: source.offset for source in self.plan.sources}
        return {
            name: history_frame(self.spark, self.request, name, self._inputs[name].schema, offsets[name], empty)
            for name in self.job.sources
        }

    def _run(self, streams: Frames, output: str) -> None:
        """Run the job on streams in place of its sources, until they have no more input."""
        prepared = prepare_job(self.spark, self.job, inputs={**self._inputs, **streams})
        with prepared.tables, explained(f"Spark cannot start {self.job.name}"):
            prepared.tables.load()
            query = self._start(prepared, output)
            try:
                self._await(query)
            finally:
                query.stop()
        unload_stores_of(self.spark, self.scratch)

    def _await(self, query: StreamingQuery) -> None:
        before = self.rows
        try:
            while not query.awaitTermination(POLL_SECONDS):
                self.report(before + _rows_of(query))
        except StreamingQueryException as error:
            raise failure(self.job.name, error) from error
        self.rows = before + _rows_of(query)
        if (last := query.lastProgress) is not None:
            self.state_rows = sum(int(operator["numRowsTotal"]) for operator in last["stateOperators"])
        self.report(self.rows)

    def _start(self, prepared: PreparedJob, output: str) -> StreamingQuery:
        if output == "write":
            if isinstance(self.job.writes, Postgres):
                postgres.prepare(self.job.writes, prepared.schema)
            return prepared.start(self.scratch.location)
        writer = prepared.frame.writeStream.outputMode(self.job.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", self.scratch.location)
        if output == "drop":
            return writer.format("noop").start()
        folder = self.request.aside_folder

        def keep(batch: DataFrame, batch_id: int) -> None:
            # A batch that runs again replaces what it wrote before.
            batch.write.mode("overwrite").parquet(f"{folder}/batch_id={batch_id}")

        return writer.foreachBatch(keep).start()

    def _note_batches_in_sink(self) -> None:
        """Give the log of a file sink entries for batches whose output went elsewhere: Spark expects one for each."""
        folder = job_record(self.request.run).sink_folder
        if folder is None or self.request.output == "write":
            return
        sink = files_at(self.spark, folder.removeprefix("file:"))
        last = CheckpointLogs(self.scratch).commits.latest
        entries = empty_log(LogNames.of(()), -1 if last is None else last, log_with(()))
        for name, data in entries.items():
            sink.write(f"{SINK_LOG}/{name}", data)


def _rows_of(query: StreamingQuery) -> int:
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def _now() -> str:
    return iso_from_ms(int(time.time() * 1000))
