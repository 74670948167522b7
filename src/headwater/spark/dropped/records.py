"""The very records that a batch did not count: late ones and malformed ones, each with its position and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import Row, StringType, StructType

from headwater.checkpoint.history import Batch, History
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.core.times import iso_from_ms
from headwater.jobs.endpoints import Decoding
from headwater.jobs.job import Job
from headwater.spark.decoding import CORRUPT, parse_schema
from headwater.spark.dropped.lateness import LatenessRule, check_followable, find_rule, late_records
from headwater.spark.dropped.rereading import RawBatch, check_rereadable, reread
from headwater.spark.dropped.tagging import TAG
from headwater.spark.failures import SPARK_ERRORS, root_cause
from headwater.spark.reading import read_stream

SEVERAL_OPERATORS = "spark.sql.streaming.statefulOperator.allowMultiple"
TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


@dataclass(frozen=True)
class DroppedRecord:
    """``position`` is topic, partition and offset, or path and line.

    Of a late record ``rule`` says what was compared with the watermark, and ``compared`` is that time; ``detail`` says
    the same in words, or what is wrong with a malformed record.
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
        }


class DroppedRecords:
    """Finds them for one job on one checkpoint."""

    def __init__(self, spark: SparkSession, job: Job, history: History) -> None:
        self._spark = spark
        self._job = job
        self._history = history
        check_rereadable(job.reads)
        stream = read_stream(spark, job.reads)
        self._rule = find_rule(job, stream)
        if self._rule is not None:
            check_followable(spark, job, stream, self._rule)

    @property
    def rule(self) -> LatenessRule | None:
        return self._rule

    def looking_at(self, history: History) -> DroppedRecords:
        """The same for the same job with newer logs, without another look at the job's plan."""
        other = copy(self)
        other._history = history
        return other

    def of(self, batch_id: int) -> list[DroppedRecord]:
        """In the order of their positions."""
        batch = self._history.batch(BatchId(batch_id))
        records = reread(self._spark, self._job.reads, self._history, batch)
        if records is None:
            return []
        try:
            with records.held():
                found = [*self._malformed(batch, records), *self._late(batch, records)]
        except SPARK_ERRORS as error:
            raise _cannot_reread(batch, error) from error
        return sorted(found, key=lambda one: tuple(one.position.values()))

    def watermark_ms(self, batch_id: int) -> int | None:
        """A batch drops by the watermark that the batch before it worked with (and evicts by its own).

        That holds for every stateful operator of a query. With one operator only, as in Spark before 3.4, the batch's
        own watermark did both. Before there is one it stands at 1970: Spark drops what lies before that in every batch.
        """
        several = (self._spark.conf.get(SEVERAL_OPERATORS, "true") or "true").lower() == "true"
        at = batch_id - 1 if several else batch_id
        if at < 0:
            return 0
        entry = self._history.logs.offsets.get(at)
        return (entry.watermark_ms or 0) if entry else None

    def _late(self, batch: Batch, records: RawBatch) -> Iterator[DroppedRecord]:
        watermark_ms = self.watermark_ms(batch.batch_id)
        if self._rule is None or watermark_ms is None:
            return
        late = late_records(self._spark, self._job, records.decoded, self._rule, watermark_ms)
        found = late.select(TAG, _printed("event_time").alias("event_time"), _printed("compared").alias("compared"))
        watermark = iso_from_ms(watermark_ms)
        for row in _ordered(found):
            detail = f"{self._rule.compares} {row['compared']} is not after the watermark {watermark}"
            yield DroppedRecord(
                batch.batch_id,
                "late",
                records.kind,
                _position(row),
                _value(row),
                row["event_time"],
                watermark,
                detail,
                self._rule.compares,
                row["compared"],
            )

    def _malformed(self, batch: Batch, records: RawBatch) -> Iterator[DroppedRecord]:
        bad = records.raw.join(records.decoded.select(TAG), TAG, "left_anti")
        decoding = self._job.reads.decoding
        wrong = _wrong_fields(self._spark, F.col(f"{TAG}.value"), decoding).alias("wrong")
        for row in _ordered(bad.select(TAG, wrong)):
            why = _why(_value(row), row["wrong"], decoding)
            yield DroppedRecord(batch.batch_id, "malformed", records.kind, _position(row), _value(row), None, None, why)


def _cannot_reread(batch: Batch, error: Exception) -> ChangeRefused:
    return ChangeRefused(
        "cannot-reread",
        f"the records of batch {batch.batch_id} cannot be read again",
        evidence={"why": root_cause(error)},
        remedy="the source has to hold what it held: look at its retention, and at --source",
    )


def _wrong_fields(spark: SparkSession, text: Column, decoding: Decoding) -> Column:
    """Names of the fields that do not fit, each tried by itself; null where the record is no object at all."""
    if (decoding.format or "json") != "json":
        return F.lit(None).cast("array<string>")
    options = {**decoding.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    tried = []
    for field in parse_schema(spark, decoding).fields:
        alone = F.from_json(text, StructType([field]).add(CORRUPT, StringType()), options)
        tried.append(F.when(alone[CORRUPT].isNotNull(), F.lit(f"{field.name} is no {field.dataType.simpleString()}")))
    whole = F.from_json(text, "map<string,string>", {**decoding.options, "mode": "PERMISSIVE"})
    return F.when(whole.isNotNull(), F.filter(F.array(*tried), lambda item: item.isNotNull()))


def _why(value: str | None, wrong: list[str] | None, decoding: Decoding) -> str:
    if value is None:
        return "it has no value"
    kind = decoding.format or "json"
    if wrong is None:
        return f"it is no {kind} record"
    return "; ".join(wrong) or f"there is more in it than one {kind} record"


def _printed(name: str) -> Column:
    return F.date_format(F.col(name).cast("timestamp"), TIME)


def _position(row: Row) -> dict[str, Any]:
    return {name: part for name, part in row[TAG].asDict().items() if name != "value"}


def _value(row: Row) -> str | None:
    value: str | None = row[TAG]["value"]
    return value


def _ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: tuple(row[TAG])[:-1])
