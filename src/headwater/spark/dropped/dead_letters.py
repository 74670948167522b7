"""Dropped records that are kept while a job runs: after a batch that dropped something, those very records are saved.

At least once, and the same record always under the same key: its position. A batch without drops costs a comparison.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History, clean_batches
from headwater.checkpoint.layout import OURS
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, HeadwaterError, JobFailed
from headwater.jobs.job import Job
from headwater.spark.dropped.records import DroppedRecords
from headwater.spark.dropped.store import DeadLetterSink, DeadLetterStore, dead_letter_sink, query_id_of, refuse_circle
from headwater.spark.failures import root_cause
from headwater.spark.progress import BatchProgress

MARK = f"{OURS}/dead_letters.json"
MARK_EVERY_SECONDS = 10.0
RETRY_EVERY_SECONDS = 30.0
LOST_FOR_GOOD = {"no-batch", "source-log-gone", "several-sources", "cannot-follow"}


@contextmanager
def following(
    spark: SparkSession, job: Job, files: FileTree, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Callable[[BatchProgress], None]]:
    """While the block runs, what it yields is to be told of every batch.

    ``tell`` hears at once of records that could not be kept; if that is still so at the end, it is raised.
    """
    if job.dead_letters is None:
        yield lambda _: None
        return
    letters = DeadLetters(spark, job, files, dead_letter_sink(job.dead_letters), tell)
    letters.start()
    try:
        yield letters.on_batch
    finally:
        letters.close()
    if letters.problem is not None:
        raise letters.problem


class DeadLetters:
    """Follows a running job. ``MARK`` in the checkpoint says from which batch on nobody has looked yet."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        files: FileTree,
        sink: DeadLetterSink,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark, self._job, self._files, self._sink, self._tell = spark, job, files, sink, tell
        refuse_circle(job, sink)
        DeadLetterStore(spark, sink, job.name).prepare()
        self._finder = DroppedRecords(spark, job, History(files))
        self._changed = threading.Condition()
        self._waiting: dict[int, float] = {}
        """Batches whose records are not saved yet, and when to try (again)."""
        self._heard = 0
        self._marked = -1
        self._closing = False
        self._problems: dict[int, HeadwaterError] = {}
        self._thread = threading.Thread(target=self._work, name="headwater-dead-letters", daemon=True)

    @property
    def problem(self) -> HeadwaterError | None:
        """Why the records of a batch, the first such one, could not be kept."""
        return self._problems[min(self._problems)] if self._problems else None

    def start(self) -> None:
        """From where the last run got to: batches that it committed and did not look at are looked at now."""
        history = History(self._files)
        committed = history.logs.commits.ids
        after_last = committed[-1] + 1 if committed else 0
        # After a rewind the mark lies ahead of the checkpoint.
        first = min(self._recorded_mark(default=after_last), after_last)
        unseen = [number for number in committed if number >= first]
        skipped = clean_batches(history, unseen)
        self._waiting = {number: 0.0 for number in unseen if number not in skipped}
        self._heard = after_last
        self._write_mark()
        self._thread.start()

    def on_batch(self, batch: BatchProgress) -> None:
        with self._changed:
            self._heard = max(self._heard, batch.batch_id + 1)
            if batch.dropped or batch.malformed:
                self._waiting[batch.batch_id] = 0.0
                self._changed.notify()

    def close(self) -> None:
        """Finish what is still to be saved; what failed before is tried once more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        tried_at_the_end: set[int] = set()
        while True:
            batch_id = self._next_due(tried_at_the_end)
            if batch_id is None and self._closing:
                break
            if batch_id is not None:
                if self._closing:
                    tried_at_the_end.add(batch_id)
                self._look_at(batch_id)
            self._write_mark()
        self._write_mark()

    def _next_due(self, leave_out: set[int]) -> int | None:
        """The oldest batch that can be tried now; None when it is time to write the mark, or to end."""
        until = time.monotonic() + MARK_EVERY_SECONDS
        with self._changed:
            while True:
                now = time.monotonic()
                due = [number for number, at in self._waiting.items() if at <= now or self._closing]
                due = [number for number in due if number not in leave_out]
                if due:
                    return min(due)
                if self._closing or now >= until:
                    return None
                self._changed.wait(min([until, *self._waiting.values()]) - now)

    def _look_at(self, batch_id: int) -> None:
        problem = self._save(batch_id)
        with self._changed:
            if problem is None:
                self._problems.pop(batch_id, None)
                del self._waiting[batch_id]
                return
            is_news = batch_id not in self._problems
            self._problems[batch_id] = problem
            if problem.code in LOST_FOR_GOOD:
                del self._waiting[batch_id]
            else:
                self._waiting[batch_id] = time.monotonic() + RETRY_EVERY_SECONDS
        if is_news:
            self._tell(f"warning: {problem.problem}: {'; '.join(problem.evidence.values())}")

    def _save(self, batch_id: int) -> HeadwaterError | None:
        try:
            records = [record.as_dict() for record in self._finder.looking_at(History(self._files)).of(batch_id)]
            DeadLetterStore(self._spark, self._sink, self._job.name, query_id_of(self._files)).save(records)
        except (ChangeRefused, CheckpointUnreadable) as error:
            return self._not_kept(batch_id, error.problem, error.code)
        except HeadwaterError as error:
            return error
        except (PySparkException, Py4JError, OSError, ValueError) as error:
            return self._not_kept(batch_id, root_cause(error))
        return None

    def _not_kept(self, batch_id: int, why: str, code: str = "dead-letters") -> JobFailed:
        gone = code in LOST_FOR_GOOD
        return JobFailed(
            code,
            f"the dropped records of batch {batch_id} could not be kept",
            evidence={"to": self._job.dead_letters, "why": why},
            remedy=None if gone else "start the job again when that works: it goes on from this batch",
        )

    def _recorded_mark(self, default: int) -> int:
        try:
            return int(json.loads(self._files.read(MARK))["next_batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return default

    def _write_mark(self) -> None:
        with self._changed:
            mark = min(self._waiting, default=self._heard)
        if mark == self._marked:
            return
        try:
            self._files.write(MARK, json.dumps({"next_batch": mark}).encode())
        except (OSError, PySparkException, Py4JError) as error:
            # The next mark may fare better, and an older one only costs time.
            self._tell(f"warning: {MARK} could not be written: {error}")
            return
        self._marked = mark
