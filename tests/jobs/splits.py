"""The same records in any split: streamed through Spark, and modelled batch by batch in plain Python.

A split is a list of runs, a run a list of batches, a batch a list of records. Each run is the job started once more on
the same checkpoint; it drains its batches one after the other, then the batch without data that a moved watermark brings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession

from headwater import Files, Job
from headwater.jobs.endpoints import decoded_like
from headwater.spark.decoding import decode_lines
from headwater.spark.prepared import prepare_job
from headwater.spark.writing import Rows, capturing

T = TypeVar("T")
Split = list[list[list[T]]]


class Record(NamedTuple):
    """What generated records have in common: whose, when, how much."""

    who: int
    at_ms: int
    amount: int


def streamed(spark: SparkSession, job: Job, split: Split[str], folder: Path) -> dict[int, Rows]:
    """What each batch emitted, with one start of the job for each run. Batches without data are among them."""
    inbox, emitted = folder / "inbox", dict[int, Rows]()
    inbox.mkdir(parents=True)
    source = decoded_like(Files(str(inbox), options={"maxFilesPerTrigger": "1"}), job.reads)
    number = 0
    for run in split:
        for lines in run:
            number += 1
            file = inbox / f"{number:04d}.txt"
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
        prepared = prepare_job(spark, replace(job, reads=source))
        writer = prepared.frame.writeStream.outputMode(job.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.foreachBatch(capturing(job, lambda batch_id, rows: emitted.update({batch_id: rows}))).start()
        query.awaitTermination()
    return emitted


def static(spark: SparkSession, job: Job, lines: Sequence[str]) -> DataFrame:
    """The records as a static DataFrame, decoded as the job's source would."""
    raw = spark.createDataFrame([(line,) for line in lines], "value STRING")
    return decode_lines(spark, raw, job.reads.decoding)


@dataclass(frozen=True)
class ModelBatch:
    """One batch as Spark runs it: ``kept`` are the records that were not late, ``watermark_ms`` the one that evicts."""

    kept: list[Record]
    watermark_ms: int
    has_data: bool


def modelled(
    split: Split[Record], *, delay_ms: int | None, compared_ms: Callable[[Record], int]
) -> Iterator[ModelBatch]:
    """Which records are late: batch N drops by the watermark of batch N - 1 and evicts by its own.

    ``compared_ms`` is what the operator holds against the watermark; without a delay there is none.
    """
    before_ms = own_ms = 0
    for run in split:
        for records in run:
            yield ModelBatch([one for one in records if compared_ms(one) > before_ms], own_ms, has_data=True)
            latest_ms = max((one.at_ms for one in records), default=0)
            before_ms, own_ms = own_ms, max(own_ms, latest_ms - delay_ms if delay_ms is not None else 0)
        if own_ms > before_ms:
            yield ModelBatch([], own_ms, has_data=False)
            before_ms = own_ms


def last_by_key(emitted: dict[int, Rows], key: Sequence[str]) -> Rows:
    """What a sink that takes updates holds in the end."""
    held: dict[str, dict[str, Any]] = {}
    for batch_id in sorted(emitted):
        for row in emitted[batch_id]:
            held[str([row[name] for name in key])] = row
    return list(held.values())
