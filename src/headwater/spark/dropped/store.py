"""Where dead letters are saved: a topic, a folder, a table, or a Delta or Iceberg table.

A record that is saved again replaces its file or is skipped by the table; in a topic it has the same key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import METADATA
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.jobs.endpoints import Console, Delta, Files, Iceberg, Kafka, Sink, Source, Table
from headwater.jobs.job import Job
from headwater.jobs.uris import sink_from_uri, uri_of
from headwater.spark import delta
from headwater.spark.iceberg import create_iceberg_table
from headwater.spark.table_formats import require_format
from headwater.spark.tables import add_columns, prepare_table
from headwater.spark.writing import kafka_options

DeadLetterSink: TypeAlias = Kafka | Files | Table | Delta | Iceberg
Record: TypeAlias = Mapping[str, Any]

COLUMNS = {
    "job": "STRING",
    "position": "STRING",
    "batch_id": "BIGINT",
    "reason": "STRING",
    "kind": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "path": "STRING",
    "line": "INT",
    "value": "STRING",
    "event_time": "TIMESTAMP",
    "watermark": "TIMESTAMP",
    "rule": "STRING",
    "compared": "TIMESTAMP",
    "detail": "STRING",
    "source": "STRING",
    "value_bytes": "BINARY",
}
# Columns that tables of earlier versions do not have.
ADDED_COLUMNS = ("source", "value_bytes")


def dead_letter_sink(uri: str) -> DeadLetterSink:
    """Return the sink of a URI, or refuse one that cannot hold dead letters."""
    sink: Sink = sink_from_uri(uri, Console())
    if isinstance(sink, Files) and (sink.format or "json") != "json":
        raise UsageProblem(
            "bad-option",
            f"dead letters are saved to a folder as JSON lines, not as {sink.format}",
            remedy=f"files:{sink.path}",
        )
    if isinstance(sink, Kafka) and sink.format != "json":
        raise UsageProblem(
            "bad-option",
            f"dead letters are sent to a topic as JSON, not as {sink.format}",
            remedy=f"kafka://{sink.servers}/{sink.topic}",
        )
    if not isinstance(sink, Kafka | Files | Table | Delta | Iceberg):
        raise UsageProblem(
            "bad-option",
            f"dead letters cannot be saved to {sink.kind}",
            remedy="kafka://HOST:PORT/TOPIC, files:DIR, table:NAME, delta:PATH or iceberg:CATALOG.DATABASE.TABLE",
        )
    return sink


def refuse_feedback_loop(job: Job, sink: DeadLetterSink) -> None:
    """Refuse a sink that the job reads from: it would drop its own dead letters again and again."""
    if any(_is_same(sink, source) for source in job.sources.values()):
        raise UsageProblem(
            "bad-option",
            f"{job.name} would read its own dead letters",
            evidence={"source and dead letters": uri_of(sink)},
            remedy="use another topic or folder for --dead-letters",
        )


def _is_same(sink: DeadLetterSink, source: Source) -> bool:
    if isinstance(sink, Kafka) and isinstance(source, Kafka):
        return sink.topic in {source.topic, *source.options.get("subscribe", "").split(",")}
    if isinstance(sink, Delta) and isinstance(source, Delta):
        return _place(sink) == _place(source)
    if isinstance(sink, Iceberg) and isinstance(source, Iceberg):
        return sink.table == source.table
    return isinstance(sink, Files) and isinstance(source, Files) and _place(sink) == _place(source)


def _place(files: Files | Delta) -> str:
    return files.path if "://" in files.path else str(Path(files.path.removeprefix("file:")).resolve())


def query_id_of(files: FileTree) -> str:
    """Return the id of a checkpoint's query; empty if it cannot be read."""
    try:
        return parse_query_metadata(files.read(METADATA)).query_id
    except (OSError, CheckpointUnreadable):
        return ""


def position_key(record: Record) -> str:
    """Return the key of a record, which is the same whenever it is saved."""
    if record["kind"] == "kafka":
        return f"{record['topic']}/{record['partition']}/{record['offset']}"
    return f"{record['path']}:{record['line']}"


@dataclass(frozen=True)
class DeadLetterStore:
    """Saves the records that one query dropped. ``query_id`` separates the files of queries that share a folder."""

    spark: SparkSession
    sink: DeadLetterSink
    job: str
    query_id: str = ""

    def prepare(self) -> None:
        """Refuse an existing table with other columns. A table of an earlier version gets the columns that it lacks."""
        if isinstance(self.sink, Delta):
            require_format(self.spark, self.sink)
            delta.create_table(self.spark, self.sink, StructType.fromDDL(_ddl(COLUMNS)))
            self._refuse_columns(
                self.spark.read.format("delta").load(delta.location(self.sink)).columns, self.sink.path
            )
        if isinstance(self.sink, Iceberg):
            require_format(self.spark, self.sink)
            create_iceberg_table(self.sink, self._rows(()))
            self._refuse_columns(self.spark.table(self.sink.table).columns, self.sink.table)
        if not isinstance(self.sink, Table):
            return
        prepare_table(self.spark, self.sink, StructType.fromDDL(_ddl(COLUMNS)))
        columns = self.spark.table(self.sink.name).columns
        missing = {name: COLUMNS[name] for name in ADDED_COLUMNS if name not in columns}
        if missing and columns == [name for name in COLUMNS if name not in missing]:
            add_columns(self.spark, self.sink, missing)
            columns = self.spark.table(self.sink.name).columns
        self._refuse_columns(columns, self.sink.name)

    def _refuse_columns(self, columns: list[str], name: str) -> None:
        if columns != list(COLUMNS):
            raise UsageProblem(
                "bad-option",
                f"table {name} exists and is not a table of dead letters",
                evidence={"columns": ", ".join(columns), "required": ", ".join(COLUMNS)},
                remedy=f"use another table: {self.sink.kind}:{name}_dropped",
            )

    def save(self, records: Sequence[Record]) -> None:
        """Save records at least once. After a failure they can be saved again."""
        dead_letters = [{"job": self.job, **record} for record in records]
        if not dead_letters:
            return
        match self.sink:
            case Files():
                self._to_folder(self.sink, dead_letters)
            case Kafka():
                self._to_topic(self.sink, dead_letters)
            case Table():
                self.prepare()
                # Another process may have added files that this session's catalog has not seen.
                self.spark.catalog.refreshTable(self.sink.name)
                new = self._new_rows(self.sink.name, dead_letters)
                if new is not None:
                    new.write.insertInto(self.sink.name)
            case Delta():
                self.prepare()
                delta.insert_new(self.sink, self._rows(dead_letters), ("job", "position"))
            case Iceberg():
                self.prepare()
                self.spark.catalog.refreshTable(self.sink.table)
                new = self._new_rows(self.sink.table, dead_letters)
                if new is not None:
                    new.writeTo(self.sink.table).options(**self.sink.options).append()

    def _to_folder(self, sink: Files, records: Sequence[Record]) -> None:
        """Write one file per batch, which replaces the file of an earlier attempt."""
        folder = open_files(sink.path)
        origin = f"{self.job}-{self.query_id[:8]}" if self.query_id else self.job
        for batch_id in sorted({record["batch_id"] for record in records}):
            lines = [f"{_json(record)}\n" for record in records if record["batch_id"] == batch_id]
            folder.write(f"{origin}-batch-{batch_id:09d}.json", "".join(lines).encode())

    def _to_topic(self, sink: Kafka, records: Sequence[Record]) -> None:
        rows = [(position_key(record), _json(record)) for record in records]
        frame = self.spark.createDataFrame(rows, "key STRING, value STRING").coalesce(1)
        frame.write.format("kafka").options(**kafka_options(sink)).save()

    def _new_rows(self, table: str, records: Sequence[Record]) -> DataFrame | None:
        """Return the records that a table does not have yet, as rows; None if it has all of them."""
        saved = self.spark.table(table).where(F.col("job") == self.job)
        for column in ("offset", "line"):
            numbers = [record[column] for record in records if column in record]
            if numbers:
                saved = saved.where(F.col(column).between(min(numbers), max(numbers)))
        known = {row["position"] for row in saved.select("position").collect()}
        new = [record for record in records if position_key(record) not in known]
        return self._rows(new) if new else None

    def _rows(self, records: Sequence[Record]) -> DataFrame:
        """Return records as rows of a table."""
        rows = [{"position": position_key(record), "value_bytes": _octets(record), **record} for record in records]
        values = [tuple(row.get(name) for name in COLUMNS) for row in rows]
        as_text = {name: "STRING" if kind == "TIMESTAMP" else kind for name, kind in COLUMNS.items()}
        typed = [F.col(f"`{name}`").cast(kind).alias(name) for name, kind in COLUMNS.items()]
        return self.spark.createDataFrame(values, StructType.fromDDL(_ddl(as_text))).coalesce(1).select(*typed)


def _octets(record: Record) -> bytes | None:
    text = record.get("value_base64")
    return None if text is None else base64.b64decode(text)


def _json(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False)


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
