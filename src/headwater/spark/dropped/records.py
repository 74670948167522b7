"""The records that a batch dropped: late and malformed ones, each with its position and the reason."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import Row, StringType, StructType

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.source_offsets import SourceRange
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.core.text import count
from headwater.core.times import iso_from_ms
from headwater.formats.columns import json_of
from headwater.formats.resolving import decoder_for
from headwater.formats.schema import MalformedRecord, RecordSchema
from headwater.jobs.endpoints import Decoding
from headwater.jobs.job import Frames, Job
from headwater.spark.decoding import CORRUPT, parse_schema, with_resolved_schema
from headwater.spark.dropped.lateness import LatenessRule, check_traceable, find_rules, late_records, source_order
from headwater.spark.dropped.rereading import RawBatch, cannot_reread, check_rereadable, reread
from headwater.spark.dropped.tagging import TAG
from headwater.spark.failures import SPARK_ERRORS
from headwater.spark.reading import read_inputs

SEVERAL_OPERATORS = "spark.sql.streaming.statefulOperator.allowMultiple"
RETAINED = "check --source: it must still have these records, which the retention of a topic may have deleted"
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


@dataclass(frozen=True)
class DroppedRecord:
    """One dropped record. ``position`` is topic, partition and offset, or path and line.

    ``value`` is the record's text or, for an Avro or Protobuf record that can be decoded, its fields as JSON.
    ``value_base64`` has the bytes of a record that is not text.
    For a late record, ``rule`` names what was compared with the watermark, and ``compared`` is that time. ``detail``
    explains in a sentence why the record is late or malformed.
    """

    batch_id: int
    reason: str
    kind: str
    position: dict[str, Any]
    value: str | None
    event_time: str | None
    watermark: str | None
    detail: str
    rule: str | None = None
    compared: str | None = None
    source: str | None = None
    """The name of the source, if the job names its sources."""
    value_base64: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "batch_id": self.batch_id,
            "reason": self.reason,
            "kind": self.kind,
            **self.position,
            "value": self.value,
            "event_time": self.event_time,
            "watermark": self.watermark,
            "rule": self.rule,
            "compared": self.compared,
            "detail": self.detail,
            "source": self.source,
            **({} if self.value_base64 is None else {"value_base64": self.value_base64}),
        }


class DroppedRecords:
    """Finds the records that a job dropped, batch by batch. ``tables`` are static tables that the job has read already."""

    def __init__(self, spark: SparkSession, job: Job, history: History, tables: Frames | None = None) -> None:
        self._spark = spark
        self._history = history
        for source in job.sources.values():
            check_rereadable(source)
        # One schema for all batches, even if a newer one is registered while the job runs.
        self._job = job.with_inputs({name: with_resolved_schema(source) for name, source in job.sources.items()})
        self._decoders = {
            name: decoder_for(schema)
            for name, source in self._job.sources.items()
            if isinstance(schema := source.decoding.schema, RecordSchema)
        }
        self._frames = read_inputs(spark, self._job, tables)
        self._order = source_order(self._job, self._frames)
        self._rules = find_rules(self._job, self._frames)
        for rule in self._rules:
            check_traceable(spark, self._job, self._frames, rule)

    @property
    def rules(self) -> list[LatenessRule]:
        """The rules by which the job drops late records, by source."""
        return self._rules

    def with_history(self, history: History) -> DroppedRecords:
        """Return a finder for newer logs of the same checkpoint, without analyzing the job's plan again."""
        other = copy(self)
        other._history = history
        return other

    def in_batch(self, batch_id: int) -> list[DroppedRecord]:
        """Return the dropped records of a batch, by source and sorted by position."""
        batch = self._history.batch(BatchId(batch_id))
        found: list[DroppedRecord] = []
        for source, part in self._parts(batch).items():
            records = reread(self._spark, self._job.sources[source], self._history, batch, part)
            if records is None:
                continue
            try:
                with records.cached():
                    malformed = self._malformed(batch, source, records) if records.decodes else ()
                    dropped = [*malformed, *self._late(batch, source, records)]
            except SPARK_ERRORS as error:
                raise cannot_reread(batch, error, RETAINED) from error
            found += sorted(dropped, key=lambda record: tuple(record.position.values()))
        return found

    def _parts(self, batch: Batch) -> dict[str, SourceRange]:
        """Return what the batch read of each source. Offsets without names are in the order of the plan."""
        by_name = {part.name: part for part in batch.sources if part.name in self._job.sources}
        if by_name:
            return by_name
        if len(batch.sources) != len(self._order):
            raise ChangeRefused(
                "several-sources",
                f"batch {batch.batch_id} read {count(len(batch.sources), 'source')}, and the job has {len(self._order)}",
                remedy="name the job that wrote this checkpoint: --job",
            )
        # A source that is used twice has the same offsets twice.
        found: dict[str, SourceRange] = {}
        for name, part in zip(self._order, batch.sources, strict=True):
            found.setdefault(name, part)
        return found

    def watermark_ms(self, batch_id: int) -> int | None:
        """Return the watermark by which a batch drops records: that of the previous batch. It evicts state by its own.

        This holds for every stateful operator of a query. If only one is allowed, as in Spark before 3.4, the batch's
        own watermark does both. The initial watermark is 1970: Spark always drops records from before that.
        """
        allows_several = (self._spark.conf.get(SEVERAL_OPERATORS, "true") or "true").lower() == "true"
        at = batch_id - 1 if allows_several else batch_id
        if at < 0:
            return 0
        entry = self._history.logs.offsets.get(at)
        return (entry.watermark_ms or 0) if entry else None

    def _late(self, batch: Batch, source: str, records: RawBatch) -> Iterator[DroppedRecord]:
        watermark_ms = self.watermark_ms(batch.batch_id)
        if watermark_ms is None:
            return
        seen: set[tuple[Any, ...]] = set()
        for rule in self._rules:
            if rule.source != source:
                continue
            for record in self._late_by(rule, batch, records, watermark_ms):
                # Both sides of a join of a stream with itself drop the same record.
                place = tuple(record.position.values())
                if place not in seen:
                    seen.add(place)
                    yield record

    def _late_by(
        self, rule: LatenessRule, batch: Batch, records: RawBatch, watermark_ms: int
    ) -> Iterator[DroppedRecord]:
        late = late_records(self._spark, self._job, self._frames, records.decoded, rule, watermark_ms)
        printed = late.select(TAG, _printed("event_time").alias("event_time"), _printed("compared").alias("compared"))
        watermark = iso_from_ms(watermark_ms)
        for row in _ordered(printed):
            detail = f"{rule.compares} {row['compared']} is not after the watermark {watermark}"
            yield DroppedRecord(
                batch.batch_id,
                "late",
                records.kind,
                _position(row),
                self._text(rule.source, row),
                row["event_time"],
                watermark,
                detail,
                rule.compares,
                row["compared"],
                rule.source or None,
                _base64(row),
            )

    def _malformed(self, batch: Batch, source: str, records: RawBatch) -> Iterator[DroppedRecord]:
        bad = records.raw.join(records.decoded.select(TAG), TAG, "left_anti")
        decoding = self._job.sources[source].decoding
        errors = _field_errors(self._spark, F.col(f"{TAG}.value"), decoding).alias("errors")
        for row in _ordered(bad.select(TAG, errors)):
            octets = row[TAG]["bytes"]
            detail = (
                _malformed_detail(row[TAG]["value"], row["errors"], decoding)
                if octets is None
                else self._problem(source, bytes(octets))
            )
            yield DroppedRecord(
                batch.batch_id,
                "malformed",
                records.kind,
                _position(row),
                self._text(source, row),
                None,
                None,
                detail,
                source=source or None,
                value_base64=_base64(row),
            )

    def _problem(self, source: str, octets: bytes) -> str:
        """Return why bytes are malformed."""
        decoder = self._decoders.get(source)
        if decoder is None:
            return "not valid UTF-8"
        return decoder.problem(octets) or "the record could not be decoded when the batch ran"

    def _text(self, source: str, row: Row) -> str | None:
        """Return a record's text; for a binary format its fields as JSON, or None if it cannot be decoded."""
        octets = row[TAG]["bytes"]
        if octets is None:
            text: str | None = row[TAG]["value"]
            return text
        decoder = self._decoders.get(source)
        if decoder is None:
            return bytes(octets).decode("utf-8", errors="replace")
        try:
            return json_of(decoder.decode(bytes(octets)))
        except MalformedRecord:
            return None


def _field_errors(spark: SparkSession, text: Column, decoding: Decoding) -> Column:
    """Return a message for each field that cannot be decoded by itself; null if the record is not an object."""
    if (decoding.format or "json") != "json":
        return F.lit(None).cast("array<string>")
    options = {**decoding.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    errors = []
    for field in parse_schema(spark, decoding).fields:
        alone = F.from_json(text, StructType([field]).add(CORRUPT, StringType()), options)
        error = F.lit(f"{field.name} is not a valid {field.dataType.simpleString()}")
        errors.append(F.when(alone[CORRUPT].isNotNull(), error))
    as_object = F.from_json(text, "map<string,string>", {**decoding.options, "mode": "PERMISSIVE"})
    return F.when(as_object.isNotNull(), F.filter(F.array(*errors), lambda item: item.isNotNull()))


def _malformed_detail(value: str | None, errors: list[str] | None, decoding: Decoding) -> str:
    if value is None:
        return "the record has no value"
    kind = decoding.format or "json"
    if errors is None:
        return f"not a valid {kind} record"
    return "; ".join(errors) or f"text after the {kind} record"


def _printed(name: str) -> Column:
    return F.date_format(F.col(name).cast("timestamp"), TIME_FORMAT)


def _position(row: Row) -> dict[str, Any]:
    return {name: part for name, part in row[TAG].asDict().items() if name not in ("value", "bytes")}


def _base64(row: Row) -> str | None:
    octets = row[TAG]["bytes"]
    return None if octets is None else base64.b64encode(bytes(octets)).decode()


def _ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: tuple(_position(row).values()))
