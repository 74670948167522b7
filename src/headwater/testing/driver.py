"""The engine of a scenario: a real query on a real checkpoint, run exactly as far as the test requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.layout import log_id
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.log_entries import parse_commit, parse_offsets
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import JobRefused
from headwater.jars.versions import has_release
from headwater.jobs.endpoints import Console, Decoding, Delta, Iceberg, Kafka, Rate, Table
from headwater.jobs.job import Job
from headwater.jobs.rules import check_job
from headwater.spark.decoding import parse_schema
from headwater.spark.failures import root_cause
from headwater.spark.internals import captured_batches
from headwater.spark.internals.captured_batches import CapturedBatches
from headwater.spark.internals.query_end import end_after_batch
from headwater.spark.prepared import PreparedJob, prepare_job
from headwater.spark.session import temporary_settings
from headwater.spark.static_tables import StaticTables
from headwater.spark.table_formats import require_format
from headwater.spark.writing import captured_rows
from headwater.testing.kafka_feed import decode_fed, kafka_decoding
from headwater.testing.records import Crash, Fed, Inbox
from headwater.testing.tables import DeltaSinkTable, IcebergSinkTable, TableFolder
from headwater.testing.transcript import BatchRun

RATE_SCHEMA = "timestamp TIMESTAMP, value BIGINT"
INJECTED_CRASH = "headwater: injected crash"


class UnexpectedFailure(Exception):
    """The job failed, and not by an injected crash."""


class Driver:
    """Runs a job on a folder of lines for each source, and captures its output batch by batch."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        folder: Path,
        schemas: Mapping[str, str],
        tables: Mapping[str, Sequence[Fed]] | None = None,
    ) -> None:
        check_job(job)
        self.sink = _sink_table(job, folder)
        self.sink_kind = job.writes.kind
        if self.sink is not None:
            _require_format(spark, self.sink.table)
        self.spark = spark
        self.tables = {name: TableFolder(folder, job, name, schemas.get(name)) for name in tables or {}}
        for name, rows in (tables or {}).items():
            self.tables[name].replace(rows)
        self.job = job.with_inputs({name: table.static for name, table in self.tables.items()})
        if isinstance(job.writes, Delta | Iceberg):
            self.job = replace(self.job, writes=self.sink.table if self.sink else Console())
        self.checkpoint = folder / "checkpoint"
        self.inboxes = {name: Inbox(folder, name) for name in job.sources}
        self.decodings = {name: _decoding_of(job, name, schemas.get(name)) for name in job.sources}
        self._runs: list[BatchRun] = []
        self._crash: Crash | None = None
        self._query: StreamingQuery | None = None
        self._has_run = False
        self._prepared = self._prepare()
        self._captured = CapturedBatches(spark) if self._can_capture_in_jvm() else None

    def _can_capture_in_jvm(self) -> bool:
        """Return whether no code in Python has to see a batch. Columns with the same name are left to Spark to refuse."""
        names = self._prepared.schema.fieldNames()
        needs_python = self.job.per_batch or self.sink is not None or len(set(names)) < len(names)
        return not needs_python and captured_batches.probe(self.spark)

    @property
    def prepared(self) -> PreparedJob:
        """The job on its inboxes."""
        return self._prepared

    def columns(self, source: str) -> list[str]:
        decoding = self.decodings[source]
        return parse_schema(self.spark, decoding).fieldNames() if decoding.format == "csv" else []

    def put(self, fed: Mapping[str, Sequence[str]]) -> None:
        """Feed every source. One without records gets an empty file, so that a re-run sees the same batches."""
        for name, inbox in self.inboxes.items():
            inbox.put(fed.get(name, ()))

    def frames(self) -> dict[str, DataFrame]:
        """Return what the job's function receives: a stream for each inbox, and the static tables."""
        return {
            **{name: self._stream(name) for name in self.inboxes},
            **StaticTables(self.spark, self.job).frames,
        }

    def _stream(self, source: str) -> DataFrame:
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.inboxes[source].folder))
        return decode_fed(self.spark, lines, self.decodings[source], source=source)

    def _prepare(self) -> PreparedJob:
        with temporary_settings(self.spark, self.job.conf):
            return prepare_job(self.spark, self.job, inputs=self.frames())

    def start(self) -> None:
        if self._has_run and self.job.statics:  # a job that starts again reads its static tables again
            self._prepared = self._prepare()
        self._has_run = True
        self._prepared.tables.load()
        writer = self._prepared.frame.writeStream.outputMode(self.job.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = self._captured.capture(writer) if self._captured else writer.foreachBatch(self._on_batch)
        with temporary_settings(self.spark, self.job.conf):  # the query keeps the settings that it starts with
            self._query = writer.start()

    def drain(self, crash: Crash | None = None) -> tuple[list[BatchRun], str | None]:
        """Run until all input is processed. Return the batches that ran, and how the job crashed if it did."""
        self._crash = crash
        if self._captured and crash:
            self._captured.surround(self._before_output, self._after_output)
        if self._query is None:
            self.start()
        assert self._query is not None
        try:
            self._query.processAllAvailable()
            outcome = self._crash_after_commit() if crash is Crash.AFTER_COMMIT else None
        except StreamingQueryException as error:
            if INJECTED_CRASH not in str(error):
                raise UnexpectedFailure(root_cause(error)) from error
            self._end()
            outcome = f"crashed {crash.value}" if crash else None
        self._crash = None
        if self._captured and crash:
            self._captured.surround()
        return self._take_runs(), outcome

    def _take_runs(self) -> list[BatchRun]:
        if self._captured:
            return [BatchRun(batch_id, rows) for batch_id, rows in self._captured.take()]
        runs, self._runs = self._runs, []
        return runs

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._end()

    def _end(self) -> None:
        self._query = None
        self._prepared.tables.release()

    @property
    def next_watermark_ms(self) -> int | None:
        """The watermark of the next batch."""
        commits = self._ids("commits")
        if not commits:
            return None
        path = f"commits/{commits[-1]}"
        return parse_commit(LocalTree(self.checkpoint).read(path), path).next_watermark_ms

    def reading_batch(self, runs: Sequence[BatchRun]) -> int | None:
        """Return the last of some batches that read input; None if none did. Earlier ones may have run again after a crash."""
        logs = CheckpointLogs(LocalTree(self.checkpoint))
        for number in sorted({run.batch_id for run in runs}, reverse=True):
            planned, before = logs.offsets.get(number), logs.offsets.get(number - 1)
            if planned is not None and (before is None or planned.sources != before.sources):
                return number
        return None

    def late_watermark_ms(self, batch_id: int) -> int:
        """Return the watermark by which a batch drops late rows: that of the previous batch."""
        if batch_id == 0:
            return 0
        path = f"offsets/{batch_id - 1}"
        return parse_offsets(LocalTree(self.checkpoint).read(path), path).watermark_ms or 0

    def _ids(self, folder: str) -> list[int]:
        ids = (log_id(entry.name) for entry in LocalTree(self.checkpoint).entries(folder))
        return sorted(number for number in ids if number is not None)

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        self._before_output()
        result = self._prepared.result_of(batch)
        rows = captured_rows(result) if self.sink is None else self.sink.write(result, batch_id)
        self._runs.append(BatchRun(batch_id, rows))
        self._after_output()

    def _before_output(self) -> None:
        if self._crash is Crash.BEFORE_BATCH:
            raise RuntimeError(INJECTED_CRASH)

    def _after_output(self) -> None:
        if self._crash is Crash.AFTER_OUTPUT:
            raise RuntimeError(INJECTED_CRASH)
        if self._crash is Crash.AFTER_COMMIT:
            assert self._query is not None
            end_after_batch(self._query)

    def _crash_after_commit(self) -> str:
        assert self._query is not None
        self._query.awaitTermination()
        self._end()
        return f"crashed {Crash.AFTER_COMMIT.value}"


def _sink_table(job: Job, folder: Path) -> DeltaSinkTable | IcebergSinkTable | None:
    """Return the table that stands for the job's own. Without an Iceberg for this PySpark, rows are only captured."""
    if isinstance(job.writes, Delta):
        return DeltaSinkTable(job.writes, job.mode, folder)
    if isinstance(job.writes, Iceberg) and has_release("iceberg"):
        return IcebergSinkTable(job.writes, job.mode, folder)
    return None


def _require_format(spark: SparkSession, table: Delta | Iceberg) -> None:
    """Refuse a session that was started without the format of the table."""
    try:
        require_format(spark, table)
    except JobRefused as refused:
        refused.remedy = (
            f'headwater_jars = ["{table.kind}"] in the pytest configuration, as in [tool.pytest.ini_options]'
        )
        raise


def _decoding_of(job: Job, name: str, schema: str | None) -> Decoding:
    """Return how the lines fed to a source are decoded. Sources whose records are not lines are fed JSON."""
    source = job.sources[name]
    if isinstance(source, Kafka):
        return kafka_decoding(source, schema)
    if isinstance(source, Rate):
        return Decoding(schema or RATE_SCHEMA, "json")
    if isinstance(source, Table | Delta | Iceberg) or source.decoding.format in {"parquet", "orc"}:
        chosen = schema or source.decoding.schema
        if chosen is None:
            raise ValueError(
                f"{job.name} reads a {source.kind}, so the scenario needs a schema: scenario(JOB, schema=...)"
            )
        return Decoding(chosen, "json")
    return Decoding(schema or source.decoding.schema, source.decoding.format or "json", source.decoding.options)
