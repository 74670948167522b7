"""Streams that change their code: run the old code, migrate, continue, and compare with a run of the new code alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Files, Job
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.plan_record import RecordedPlan, write_plan
from headwater.core.ids import StoreRef
from headwater.migration.comparison import Comparison
from headwater.migration.migration_plan import MigrationPlan
from headwater.spark.code_check import CurrentCode, check_code
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.migrate import MigrationRequest, plan_migration_of
from headwater.spark.ownership import Run, job_record
from headwater.spark.prepared import prepare_job
from headwater.spark.session import matching_checkpoint_format, temporary_settings
from headwater.statefiles.reader import read_answers, state_rows
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from headwater.views.edit_sample import plain
from timemachine.spark_runs import STORES

SMALL = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
Rows = list[dict[str, Any]]
Feed = Mapping[str, Rows]
REFERENCE = "jobs.py:CHANGED"


@dataclass
class ChangingStream:
    """A stream whose inboxes and checkpoint are below a folder. Each feed is one batch."""

    spark: SparkSession
    folder: Path
    store: str
    settings: Mapping[str, str] = field(default_factory=dict)
    fed: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)

    @property
    def conf(self) -> dict[str, str]:
        return {**SMALL, **STORES[self.store], **self.settings}

    def located(self, job: Job) -> Job:
        files = {name: source for name, source in job.sources.items() if isinstance(source, Files)}
        return job.with_inputs({name: replace(one, path=str(self.folder / one.path)) for name, one in files.items()})

    def feed(self, feed: Feed) -> None:
        """Put one file into each inbox."""
        for name in {"events", "clicks", "more", *feed}:
            rows = feed.get(name, [])
            file = self.folder / name / f"{self.fed:04d}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            os.utime(file, (1_000_000_000 + self.fed, 1_000_000_000 + self.fed))
        self.fed += 1

    def run(self, job: Job, *feeds: Feed) -> list[Rows]:
        """Run a job on each feed in turn, and record its plan as ``headwater run`` does. Return what it emitted."""
        job = self.located(job)
        emitted: list[Rows] = []

        def note(batch: DataFrame, _: int) -> None:
            lines = batch.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
            emitted.append(sorted((json.loads(line[0]) for line in lines), key=str))

        for feed in feeds:
            self.feed(feed)
            with temporary_settings(self.spark, self.conf):
                prepared = prepare_job(self.spark, job)
                self._record(job, CurrentCode.of(prepared))
                writer = prepared.frame.writeStream.foreachBatch(note).outputMode(job.mode).trigger(once=True)
                writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()
            unload_state_stores(self.spark)
        return emitted

    def _record(self, job: Job, code: CurrentCode) -> None:
        files = self.files
        files.write(JOB_FILE, job_record(Run(job, REFERENCE, files.location)).to_bytes())
        assert code.operators is not None
        last = CheckpointLogs(files).commits.latest
        write_plan(files, RecordedPlan(0 if last is None else last + 1, code.operators, self.spark.version))

    def migrate(self, job: Job, **requested: Any) -> MigrationPlan:
        """Plan a migration to a job."""
        with temporary_settings(self.spark, self.conf):
            request = MigrationRequest(reference=REFERENCE, **requested)
            return plan_migration_of(self.spark, self.located(job), self.files, request)

    def check(self, job: Job) -> Comparison:
        with temporary_settings(self.spark, self.conf):
            return check_code(self.spark, self.located(job), self.files, reference=REFERENCE)

    def state(self, at: int | None = None) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in state_rows(self.files, at))

    def problems(self) -> list[str]:
        return [str(one) for one in run_checks(CheckContext(self.files, 0)) if one.severity == "error"]


def values_only(text: str) -> Any:
    """Return JSON without the names of fields, which may repeat."""
    return json.loads(text, object_pairs_hook=lambda pairs: [value for _, value in pairs])


def state_by_headwater(stream: ChangingStream, batch: int, **options: str) -> list[str]:
    """Return the rows of a store in the columns and the form of ``state_by_spark``."""
    answer = read_answers(
        stream.files,
        batch,
        StoreRef(
            int(options["operatorId"]) if "operatorId" in options else None,
            options.get("storeName"),
            options.get("stateVarName"),
        ),
    )
    lines = [json.dumps(plain(row)) for one in answer for row in one.table.to_pylist()]
    return sorted(str(values_only(line)) for line in lines)


def state_by_spark(spark: SparkSession, stream: ChangingStream, batch: int, **options: Any) -> list[str]:
    """Return the values of all rows of a store as Spark's own reader shows them."""
    with matching_checkpoint_format(spark, stream.files, batch):
        reader = spark.read.format("statestore").option("batchId", batch)
        for name, value in options.items():
            reader = reader.option(name, value)
        rows = reader.load(str(stream.checkpoint))
        found = [row[0] for row in rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()]
    unload_state_stores(spark)
    return sorted(str(values_only(line)) for line in found)


@dataclass(frozen=True)
class Story:
    """A stream before and after a change of its code.

    ``fields``, ``keys`` and ``merge`` are what ``--set``, ``--keys`` and ``--merge`` give. Without ``expected``, the
    continued stream has to emit what a run of the new code over all records emits, and to have its state.
    """

    old: Job
    new: Job
    before: Sequence[Feed]
    after: Sequence[Feed]
    fields: Mapping[str, str] = field(default_factory=dict)
    keys: str | None = None
    merge: Mapping[str, str] = field(default_factory=dict)
    expected: Sequence[Rows] | None = None
    accept_change: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Which store Spark's reader is to show."""
    new_options: Mapping[str, str] | None = None
    """The same after the migration, if it is another one."""
    source_map: Mapping[str, str] = field(default_factory=dict)
    oracle: Job | None = None
    """A job whose output from scratch is the right one, if it is not the new one's."""
    is_empty: bool = False
    """Whether an added operator has no state of earlier records, so that only the output is that of a run from scratch."""


def follow(spark: SparkSession, folder: Path, story: Story, store: str) -> None:
    """Run, migrate, undo, migrate again and continue; compare with the oracle; then rewind across the migration."""
    stream = ChangingStream(spark, folder / "changed", store, story.settings)
    stream.run(story.old, *story.before)
    last = len(story.before) - 1
    before = stream.state()
    by_spark = state_by_spark(spark, stream, last, **story.options)
    requested: dict[str, Any] = {"fields": story.fields, "keys": story.keys, "merge": story.merge}
    requested |= {"accept_change": story.accept_change, "source_map": story.source_map}

    stream.migrate(story.new, **requested).apply()
    assert stream.state(last) == before, "earlier batches have to stay readable"
    plan_undo(stream.files).apply()
    assert stream.state() == before
    assert state_by_spark(spark, stream, last, **story.options) == by_spark
    plan = stream.migrate(story.new, **requested)
    plan.apply()
    assert stream.problems() == []
    assert stream.check(story.new).verdict == "same"
    options = story.options if story.new_options is None else story.new_options
    assert state_by_spark(spark, stream, plan.batch_id, **options) == state_by_headwater(
        stream, plan.batch_id, **options
    )
    found = stream.run(story.new, *story.after)
    if story.expected is not None:
        assert found == [sorted(rows, key=str) for rows in story.expected], found
    else:
        scratch = ChangingStream(spark, folder / "scratch", store, story.settings)
        expected = scratch.run(story.oracle or story.new, *story.before, *story.after)
        assert found == expected[len(story.before) :], (found, expected)
        if not story.is_empty:
            assert stream.state() == scratch.state()

    plan_rewind(stream.files, to=last, replan=True).apply()
    assert stream.state() == before
    assert state_by_spark(spark, stream, last, **story.options) == by_spark
    assert stream.problems() == []
    assert stream.check(story.old).verdict == "same"
