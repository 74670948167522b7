"""Where dropped records can be kept: a topic, a folder or a table. The same record saved twice is there once, or twice
under the same key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import METADATA
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.jobs.endpoints import Console, Files, Kafka, Sink, Table
from headwater.jobs.job import Job
from headwater.jobs.uris import sink_from_uri, uri_of
from headwater.spark.tables import prepare_table

DeadLetterSink: TypeAlias = Kafka | Files | Table
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
}


def dead_letter_sink(uri: str) -> DeadLetterSink:
    """What a URI names, if dropped records can be kept there."""
    sink: Sink = sink_from_uri(uri, Console())
    if isinstance(sink, Files) and (sink.format or "json") != "json":
        raise UsageProblem(
            "bad-option",
            f"dropped records go to a folder as lines of JSON, not as {sink.format}",
            remedy=f"files:{sink.path}",
        )
    if not isinstance(sink, Kafka | Files | Table):
        raise UsageProblem(
            "bad-option",
            f"dropped records cannot be kept in {sink.kind}",
            remedy="kafka://HOST:PORT/TOPIC, files:DIR or table:NAME",
        )
    return sink


def refuse_circle(job: Job, sink: DeadLetterSink) -> None:
    """Records that a job drops must not come back to it: they would be dropped again, and again."""
    same = (
        isinstance(sink, Kafka)
        and isinstance(job.reads, Kafka)
        and sink.topic in {job.reads.topic, *job.reads.options.get("subscribe", "").split(",")}
    ) or (isinstance(sink, Files) and isinstance(job.reads, Files) and _place(sink) == _place(job.reads))
    if same:
        raise UsageProblem(
            "bad-option",
            f"{job.name} would read its own dead letters, and drop them again",
            evidence={"reads and keeps them in": uri_of(sink)},
            remedy="name another topic or folder for --dead-letters",
        )


def _place(files: Files) -> str:
    return files.path if "://" in files.path else str(Path(files.path.removeprefix("file:")).resolve())


def query_id_of(files: FileTree) -> str:
    """The id that Spark gave the query of a checkpoint; empty where there is none to be read."""
    try:
        return parse_query_metadata(files.read(METADATA)).query_id
    except (OSError, CheckpointUnreadable):
        return ""


def position_key(record: Record) -> str:
    """The same record has the same key whenever it is saved."""
    if record["kind"] == "kafka":
        return f"{record['topic']}/{record['partition']}/{record['offset']}"
    return f"{record['path']}:{record['line']}"


@dataclass(frozen=True)
class DeadLetterStore:
    """Keeps the records that one query dropped. ``query_id`` keeps apart the files of queries that share a folder."""

    spark: SparkSession
    sink: DeadLetterSink
    job: str
    query_id: str = ""

    def prepare(self) -> None:
        """Refuse a table that is there and has other columns."""
        if not isinstance(self.sink, Table):
            return
        prepare_table(self.spark, self.sink, StructType.fromDDL(_ddl(COLUMNS)))
        held = self.spark.table(self.sink.name).columns
        if held != list(COLUMNS):
            raise UsageProblem(
                "bad-option",
                f"table {self.sink.name} is there and is no table of dropped records",
                evidence={"its columns": ", ".join(held), "wanted": ", ".join(COLUMNS)},
                remedy=f"name another: table:{self.sink.name}_dropped",
            )

    def save(self, records: Sequence[Record]) -> None:
        """At least once: what fails half-way can be saved again."""
        letters = [{"job": self.job, **record} for record in records]
        if not letters:
            return
        match self.sink:
            case Files():
                self._to_folder(self.sink, letters)
            case Kafka():
                self._to_topic(self.sink, letters)
            case Table():
                self._to_table(self.sink, letters)

    def _to_folder(self, sink: Files, letters: Sequence[Record]) -> None:
        """One file for each batch, replaced as a whole when the batch is saved again."""
        folder = open_files(sink.path)
        origin = f"{self.job}-{self.query_id[:8]}" if self.query_id else self.job
        for batch_id in sorted({letter["batch_id"] for letter in letters}):
            lines = [f"{_json(letter)}\n" for letter in letters if letter["batch_id"] == batch_id]
            folder.write(f"{origin}-batch-{batch_id:09d}.json", "".join(lines).encode())

    def _to_topic(self, sink: Kafka, letters: Sequence[Record]) -> None:
        rows = [(position_key(letter), _json(letter)) for letter in letters]
        options = {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **sink.options}
        frame = self.spark.createDataFrame(rows, "key STRING, value STRING").coalesce(1)
        frame.write.format("kafka").options(**options).save()

    def _to_table(self, sink: Table, letters: Sequence[Record]) -> None:
        self.prepare()
        # Another process may have added files that this session's catalog has not seen.
        self.spark.catalog.refreshTable(sink.name)
        mine = self.spark.table(sink.name).where(F.col("job") == self.job)
        for column in ("offset", "line"):
            places = [letter[column] for letter in letters if column in letter]
            if places:
                mine = mine.where(F.col(column).between(min(places), max(places)))
        known = {row["position"] for row in mine.select("position").collect()}
        rows = [{"position": position_key(letter), **letter} for letter in letters]
        new = [tuple(row.get(name) for name in COLUMNS) for row in rows if row["position"] not in known]
        if new:
            as_texts = {name: "STRING" if kind == "TIMESTAMP" else kind for name, kind in COLUMNS.items()}
            typed = [F.col(f"`{name}`").cast(kind).alias(name) for name, kind in COLUMNS.items()]
            frame = self.spark.createDataFrame(new, StructType.fromDDL(_ddl(as_texts)))
            frame.coalesce(1).select(*typed).write.insertInto(sink.name)


def _json(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False)


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
