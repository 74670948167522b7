"""The very records that a batch did not count: late ones and malformed ones, each with its position and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import Row, StringType, StructType

from headwater.checkpoint.history import Batch, History
from headwater.core.ids import BatchId
from headwater.core.times import iso_from_ms
from headwater.jobs.endpoints import Decoding
from headwater.jobs.job import Job
from headwater.spark.decoding import CORRUPT, parse_schema
from headwater.spark.lateness import TAG, LatenessRule, find_rule, late_records
from headwater.spark.reading import read_stream
from headwater.spark.rereading import RawBatch, reread

TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


@dataclass(frozen=True)
class DroppedRecord:
    """``position`` is topic, partition and offset, or path and line. ``detail`` says what was wrong, or by how much."""

    batch_id: int
    reason: str
    kind: str
    position: dict[str, Any]
    value: str | None
    event_time: str | None
    watermark: str | None
    detail: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "batch_id": self.batch_id,
            "reason": self.reason,
            "kind": self.kind,
            **self.position,
            "value": self.value,
            "event_time": self.event_time,
            "watermark": self.watermark,
            "detail": self.detail,
        }


class DroppedRecords:
    """Finds them for one job on one checkpoint."""

    def __init__(self, spark: SparkSession, job: Job, history: History) -> None:
        self._spark = spark
        self._job = job
        self._history = history
        self._rule = find_rule(job, read_stream(spark, job.reads))

    @property
    def rule(self) -> LatenessRule | None:
        return self._rule

    def of(self, batch_id: int) -> list[DroppedRecord]:
        """In the order of their positions."""
        batch = self._history.batch(BatchId(batch_id))
        records = reread(self._spark, self._job.reads, self._history, batch)
        if records is None:
            return []
        return [*self._malformed(batch, records), *self._late(batch, records)]

    def watermark_ms(self, batch_id: int) -> int | None:
        """A batch drops by the watermark that the batch before it worked with (and evicts by its own)."""
        before = self._history.logs.offsets.get(batch_id - 1) if batch_id > 0 else None
        return before.watermark_ms or None if before else None

    def _late(self, batch: Batch, records: RawBatch) -> Iterator[DroppedRecord]:
        watermark_ms = self.watermark_ms(batch.batch_id)
        if self._rule is None or watermark_ms is None:
            return
        late = late_records(self._spark, self._job, records.decoded, self._rule, watermark_ms)
        found = records.raw.join(late, TAG).select(
            TAG,
            F.col("value").cast("string").alias("value"),
            _printed("event_time").alias("event_time"),
            _printed("compared").alias("compared"),
        )
        watermark = iso_from_ms(watermark_ms)
        for row in _ordered(found):
            detail = f"{self._rule.compares} {row['compared']} is not after the watermark"
            yield DroppedRecord(
                batch.batch_id, "late", records.kind, _position(row), row["value"], row["event_time"], watermark, detail
            )

    def _malformed(self, batch: Batch, records: RawBatch) -> Iterator[DroppedRecord]:
        bad = records.raw.join(records.decoded.select(TAG), TAG, "left_anti")
        decoding = self._job.reads.decoding
        text = F.col("value").cast("string")
        wrong = _wrong_fields(self._spark, text, decoding).alias("wrong")
        for row in _ordered(bad.select(TAG, text.alias("value"), wrong)):
            yield DroppedRecord(
                batch.batch_id, "malformed", records.kind, _position(row), row["value"], None, None, _why(row, decoding)
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


def _why(row: Row, decoding: Decoding) -> str:
    if row["value"] is None:
        return "it has no value"
    kind = decoding.format or "json"
    if row["wrong"] is None:
        return f"it is no {kind} record"
    return "; ".join(row["wrong"]) or f"there is more in it than one {kind} record"


def _printed(name: str) -> Column:
    return F.date_format(F.col(name).cast("timestamp"), TIME)


def _position(row: Row) -> dict[str, Any]:
    return dict(row[TAG].asDict())


def _ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: tuple(row[TAG]))
