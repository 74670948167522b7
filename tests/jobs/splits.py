"""Records in any split: streamed through Spark, and modeled batch by batch in plain Python.

A split is a list of runs, a run is a list of batches, and a batch is a list of records. Each run starts the job again on
the same checkpoint. It drains its batches one after the other, then a batch without data if the watermark has advanced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession

from headwater import Files, Job
from headwater.jobs.endpoints import inherit_decoding
from headwater.spark.decoding import decode_lines
from headwater.spark.prepared import prepare_job
from headwater.spark.writing import Rows, capturing_writer

T = TypeVar("T")
Split = list[list[list[T]]]


class Record(NamedTuple):
    """A generated record: whose it is, its event time, and an amount."""

    who: int
    at_ms: int
    amount: int


def streamed(spark: SparkSession, job: Job, split: Split[Any], folder: Path) -> dict[int, Rows]:
    """Return what each batch emitted, including batches without data. The job is started once per run.

    For a job with named sources, a batch is a mapping from these names to lines.
    """
    emitted = dict[int, Rows]()
    inboxes = {name: folder / f"inbox{name}" for name in job.sources}
    for inbox in inboxes.values():
        inbox.mkdir(parents=True)
    limit = {"maxFilesPerTrigger": "1"}
    chosen = job.with_inputs(
        {name: inherit_decoding(Files(str(inboxes[name]), options=limit), one) for name, one in job.sources.items()}
    )
    number = 0
    for run in split:
        for batch in run:
            number += 1
            for name, inbox in inboxes.items():
                lines = batch[name] if name else batch
                file = inbox / f"{number:04d}.txt"
                file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
        prepared = prepare_job(spark, chosen)
        writer = prepared.frame.writeStream.outputMode(job.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.foreachBatch(capturing_writer(prepared.result_of, emitted.__setitem__)).start()
        query.awaitTermination()
    return emitted


def static(spark: SparkSession, job: Job, lines: Sequence[str], source: str = "") -> DataFrame:
    """Return the records as a static DataFrame, decoded as by the job's source."""
    raw = spark.createDataFrame([(line,) for line in lines], "value STRING")
    return decode_lines(spark, raw, job.sources[source].decoding, source=source)


@dataclass(frozen=True)
class ModelBatch:
    """One batch as Spark runs it: the records that are not late, and the watermark by which it evicts state."""

    on_time: list[Record]
    watermark_ms: int
    has_data: bool


@dataclass(frozen=True)
class Tracker:
    """The watermark of a query whose sources each have a watermark of their own: that of the slowest source.

    A query that starts again keeps its watermark, but no longer knows those of its sources: the watermark then stays
    until every source has delivered a record.
    """

    delay_ms: int
    latest_ms: dict[str, int]
    before_ms: int = 0
    own_ms: int = 0

    def after(self, times_ms: Mapping[str, Sequence[int]]) -> Tracker:
        """Return the tracker after a batch with records of these event times."""
        latest = {name: max([self.latest_ms[name], *times]) for name, times in times_ms.items()}
        slowest = min(max(0, one - self.delay_ms) if one else 0 for one in latest.values())
        return replace(self, latest_ms=latest, before_ms=self.own_ms, own_ms=max(self.own_ms, slowest))

    def restarted(self) -> Tracker:
        return replace(self, latest_ms=dict.fromkeys(self.latest_ms, 0))


def modeled_join(split: Split[dict[str, list[Record]]], *, delay_ms: int) -> dict[str, list[Record]]:
    """Return the records of each source that a join of the sources does not drop: it compares their event times."""
    kept: dict[str, list[Record]] = {name: [] for name in split[0][0]}
    tracker = Tracker(delay_ms, dict.fromkeys(kept, 0))
    for run in split:
        tracker = tracker.restarted()
        for batch in run:
            for name, records in batch.items():
                kept[name] += [one for one in records if one.at_ms > tracker.before_ms]
            tracker = tracker.after({name: [one.at_ms for one in records] for name, records in batch.items()})
        tracker = replace(tracker, before_ms=tracker.own_ms)  # a batch without data, if the watermark has advanced
    return kept


def modeled(
    split: Split[Record], *, delay_ms: int | None, compared_ms: Callable[[Record], int]
) -> Iterator[ModelBatch]:
    """Yield the batches of a model of Spark: batch N drops by the watermark of batch N - 1 and evicts by its own.

    ``compared_ms`` returns what the operator compares with the watermark. Without a delay there is no watermark.
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
    """Return what a sink that accepts updates has at the end."""
    latest: dict[str, dict[str, Any]] = {}
    for batch_id in sorted(emitted):
        for row in emitted[batch_id]:
            latest[str([row[name] for name in key])] = row
    return list(latest.values())
