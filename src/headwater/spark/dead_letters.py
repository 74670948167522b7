"""Dropped records that are kept: after a batch that dropped something, those very records go to a topic or a folder.

At least once, and the same record always under the same key: its position. A batch without drops costs a comparison.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.files import Files, open_files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OURS
from headwater.core.errors import HeadwaterError, JobFailed, UsageProblem
from headwater.jobs.endpoints import Console, Kafka, Sink
from headwater.jobs.endpoints import Files as FilesEndpoint
from headwater.jobs.job import Job
from headwater.jobs.uris import sink_from_uri
from headwater.spark.dropped import DroppedRecords
from headwater.spark.failures import root_cause
from headwater.spark.progress import BatchProgress

MARK = f"{OURS}/dead_letters.json"
MARK_EVERY_SECONDS = 10.0


def dead_letter_sink(uri: str) -> Kafka | FilesEndpoint:
    """Where dropped records can go."""
    sink: Sink = sink_from_uri(uri, Console())
    if not isinstance(sink, Kafka | FilesEndpoint):
        raise UsageProblem(
            "bad-option",
            f"dropped records cannot be kept in {sink.kind}",
            remedy="kafka://HOST:PORT/TOPIC or files:DIR",
        )
    return sink


def save_records(spark: SparkSession, records: Sequence[dict[str, Any]], sink: Kafka | FilesEndpoint) -> None:
    """Each record as JSON with its reason and position; saving it again replaces it, or repeats it under its key."""
    by_batch: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        by_batch.setdefault(record["batch_id"], []).append(record)
    if isinstance(sink, FilesEndpoint):
        folder = open_files(sink.path)
        for batch_id, held in by_batch.items():
            folder.write(f"batch-{batch_id:09d}.json", "".join(f"{_json(one)}\n" for one in held).encode())
        return
    if records:
        rows = [(position_key(record), _json(record)) for record in records]
        options = {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **sink.options}
        spark.createDataFrame(rows, "key STRING, value STRING").write.format("kafka").options(**options).save()


def position_key(record: dict[str, Any]) -> str:
    """The same record has the same key whenever it is saved."""
    if record["kind"] == "kafka":
        return f"{record['topic']}/{record['partition']}/{record['offset']}"
    return f"{record['path']}:{record['line']}"


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


@contextmanager
def following(spark: SparkSession, job: Job, files: Files) -> Iterator[Callable[[BatchProgress], None]]:
    """While the block runs, what it yields is to be told of every batch. What could not be kept is said at the end."""
    if job.dead_letters is None:
        yield lambda _: None
        return
    letters = DeadLetters(spark, job, files, dead_letter_sink(job.dead_letters))
    letters.catch_up()
    try:
        yield letters.on_batch
    finally:
        letters.close()
    if letters.problem is not None:
        raise letters.problem


class DeadLetters:
    """Follows a running job. ``MARK`` in the checkpoint says from which batch on nobody has looked yet."""

    def __init__(self, spark: SparkSession, job: Job, files: Files, sink: Kafka | FilesEndpoint) -> None:
        self._spark = spark
        self._job = job
        self._files = files
        self._sink = sink
        self._todo: queue.Queue[int | None] = queue.Queue()
        self._marked_at = time.monotonic()
        self._seen = self._first_unseen()
        self.kept = 0
        self.problem: HeadwaterError | None = None
        self._thread = threading.Thread(target=self._work, name="headwater-dead-letters", daemon=True)
        self._thread.start()

    def catch_up(self) -> None:
        """Batches that were committed and not looked at before the process died."""
        for batch_id in History(self._files).logs.commits.ids:
            if batch_id >= self._seen:
                self._todo.put(batch_id)

    def on_batch(self, batch: BatchProgress) -> None:
        if batch.dropped or batch.malformed:
            self._todo.put(batch.batch_id)
        elif self._todo.empty():
            self._mark(batch.batch_id + 1, at_once=False)

    def close(self) -> None:
        """Finish what is still to be saved."""
        self._todo.put(None)
        self._thread.join()

    def _work(self) -> None:
        for batch_id in iter(self._todo.get, None):
            try:
                self._save([batch_id])
            except HeadwaterError as error:
                self.problem = error
                return
            except (PySparkException, Py4JError, OSError) as error:
                self.problem = JobFailed(
                    "dead-letters",
                    f"the dropped records of batch {batch_id} could not be kept",
                    evidence={"to": self._job.dead_letters, "why": root_cause(error)},
                    remedy="start the job again when that works: it goes on from this batch",
                )
                return
            self._mark(batch_id + 1, at_once=True)

    def _save(self, batches: Iterable[int]) -> None:
        finder = DroppedRecords(self._spark, self._job, History(self._files))
        for batch_id in batches:
            records = [record.as_dict() for record in finder.of(batch_id)]
            save_records(self._spark, records, self._sink)
            self.kept += len(records)

    def _first_unseen(self) -> int:
        try:
            return int(json.loads(self._files.read(MARK))["next_batch"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            latest = History(self._files).last_committed
            return 0 if latest is None else latest + 1

    def _mark(self, next_batch: int, *, at_once: bool) -> None:
        if next_batch <= self._seen or not (at_once or time.monotonic() - self._marked_at > MARK_EVERY_SECONDS):
            return
        self._seen, self._marked_at = next_batch, time.monotonic()
        self._files.write(MARK, json.dumps({"next_batch": next_batch}).encode())
