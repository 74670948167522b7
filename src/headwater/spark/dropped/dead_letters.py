"""Dead letters of a running job: after each batch that dropped records, those records are found and saved.

Each record is saved at least once, always under the same key: its position. A batch without drops costs one comparison.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History, clean_batches
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, HeadwaterError, InternalError, JobFailed
from headwater.jobs.job import Frames, Job
from headwater.spark.dropped.records import DroppedRecords
from headwater.spark.dropped.store import (
    DeadLetterSink,
    DeadLetterStore,
    dead_letter_sink,
    query_id_of,
    refuse_feedback_loop,
)
from headwater.spark.failures import root_cause

POSITION_FILE = f"{HEADWATER_FOLDER}/dead_letters.json"
POSITION_INTERVAL_SECONDS = 10.0
RETRY_INTERVAL_SECONDS = 30.0
PERMANENT_ERRORS = {"no-batch", "source-log-gone", "several-sources", "cannot-follow"}


@contextmanager
def collecting_dead_letters(
    spark: SparkSession,
    job: Job,
    files: FileTree,
    warn: Callable[[str], None] = lambda _: None,
    tables: Frames | None = None,
) -> Iterator[Callable[[ProgressRecord], None]]:
    """Yield a function to call after each batch; it saves the records that the batch dropped.

    ``warn`` is called at once if records cannot be saved. If they are still not saved at the end, the error is raised.
    ``tables`` are static tables that the job has read already.
    """
    if job.dead_letters is None:
        yield lambda _: None
        return
    collector = DeadLetterCollector(spark, job, files, dead_letter_sink(job.dead_letters), warn, tables)
    collector.start()
    try:
        yield collector.on_batch
    finally:
        collector.close()
    if collector.problem is not None:
        raise collector.problem


class DeadLetterCollector:
    """Saves the dead letters of a running job from a thread of its own.

    ``POSITION_FILE`` in the checkpoint records the first batch whose dropped records may not be saved yet.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        files: FileTree,
        sink: DeadLetterSink,
        warn: Callable[[str], None] = lambda _: None,
        tables: Frames | None = None,
    ) -> None:
        self._spark, self._job, self._files, self._sink, self._warn = spark, job, files, sink, warn
        refuse_feedback_loop(job, sink)
        DeadLetterStore(spark, sink, job.name).prepare()
        self._finder = DroppedRecords(spark, job, History(files), tables)
        self._changed = threading.Condition()
        self._pending: dict[int, float] = {}
        """Batches whose records are not saved yet, and when to try (again)."""
        self._next_batch = 0
        self._written_position = -1
        self._is_position_failing = False
        self._closing = False
        self._problems: dict[int, HeadwaterError] = {}
        self._failure: InternalError | None = None
        """Why the thread ended early."""
        self._thread = threading.Thread(target=self._work, name="headwater-dead-letters", daemon=True)

    @property
    def problem(self) -> HeadwaterError | None:
        """Why the records of the first failed batch could not be saved."""
        return self._failure or (self._problems[min(self._problems)] if self._problems else None)

    def start(self) -> None:
        """Start with the committed batches that the previous run did not get to."""
        history = History(self._files)
        committed = history.logs.commits.ids
        after_last = committed[-1] + 1 if committed else 0
        # After a rewind the recorded position is ahead of the checkpoint.
        first = min(self._read_position(default=after_last), after_last)
        unchecked = [number for number in committed if number >= first]
        clean = clean_batches(history, unchecked)
        self._pending = {number: 0.0 for number in unchecked if number not in clean}
        self._next_batch = after_last
        self._write_position()
        self._thread.start()

    def on_batch(self, batch: ProgressRecord) -> None:
        """Queue a batch that dropped records."""
        with self._changed:
            self._next_batch = max(self._next_batch, batch.batch_id + 1)
            if batch.dropped or batch.malformed:
                self._pending[batch.batch_id] = 0.0
                self._changed.notify()

    def close(self) -> None:
        """Save what is pending, with one more attempt for each batch that failed before."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._save_until_closed()
        except Exception as error:
            self._failure = InternalError(error)
            self._failure.__cause__ = error
            self._report("dropped records are no longer saved", self._failure)

    def _save_until_closed(self) -> None:
        tried_while_closing: set[int] = set()
        while True:
            batch_id = self._next_due(tried_while_closing)
            if batch_id is None and self._closing:
                break
            if batch_id is not None:
                if self._closing:
                    tried_while_closing.add(batch_id)
                self._save_or_defer(batch_id)
            self._write_position()
        self._write_position()

    def _next_due(self, excluded: set[int]) -> int | None:
        """Wait for the oldest batch that is due; return None if the position is to be written, or at the end."""
        until = time.monotonic() + POSITION_INTERVAL_SECONDS
        with self._changed:
            while True:
                now = time.monotonic()
                due = [number for number, at in self._pending.items() if at <= now or self._closing]
                due = [number for number in due if number not in excluded]
                if due:
                    return min(due)
                if self._closing or now >= until:
                    return None
                self._changed.wait(min([until, *self._pending.values()]) - now)

    def _save_or_defer(self, batch_id: int) -> None:
        problem = self._save(batch_id)
        with self._changed:
            if problem is None:
                self._problems.pop(batch_id, None)
                del self._pending[batch_id]
                return
            is_new = batch_id not in self._problems
            self._problems[batch_id] = problem
            if problem.code in PERMANENT_ERRORS:
                del self._pending[batch_id]
            else:
                self._pending[batch_id] = time.monotonic() + RETRY_INTERVAL_SECONDS
        if is_new:
            self._report(problem.problem, problem)

    def _report(self, text: str, problem: HeadwaterError | None = None) -> None:
        reasons = list(problem.evidence.values()) if problem else []
        with suppress(Exception):  # a warning that cannot be printed must not end the thread
            self._warn(f"warning: {text}" + (f": {'; '.join(reasons)}" if reasons else ""))

    def _save(self, batch_id: int) -> HeadwaterError | None:
        try:
            found = self._finder.with_history(History(self._files)).in_batch(batch_id)
            store = DeadLetterStore(self._spark, self._sink, self._job.name, query_id_of(self._files))
            store.save([record.as_dict() for record in found])
        except (ChangeRefused, CheckpointUnreadable) as error:
            return self._not_saved(batch_id, "; ".join([error.problem, *error.evidence.values()]), error.code)
        except HeadwaterError as error:
            return error
        except (PySparkException, Py4JError, OSError, ValueError) as error:
            return self._not_saved(batch_id, root_cause(error))
        except Exception as error:
            problem = InternalError(error)
            problem.__cause__ = error
            return problem
        return None

    def _not_saved(self, batch_id: int, reason: str, code: str = "dead-letters") -> JobFailed:
        retryable = code not in PERMANENT_ERRORS
        return JobFailed(
            code,
            f"the dropped records of batch {batch_id} could not be saved",
            evidence={"target": self._job.dead_letters, "reason": reason},
            remedy="fix the cause and start the job again; it resumes from this batch" if retryable else None,
        )

    def _read_position(self, default: int) -> int:
        try:
            return int(json.loads(self._files.read(POSITION_FILE))["next_batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return default

    def _write_position(self) -> None:
        with self._changed:
            position = min(self._pending, default=self._next_batch)
        if position == self._written_position:
            return
        try:
            self._files.write(POSITION_FILE, json.dumps({"next_batch": position}).encode())
        except (HeadwaterError, OSError, PySparkException, Py4JError) as error:
            # The next attempt may succeed, and an older position only makes the next run check more batches.
            if not self._is_position_failing:
                reason = error.problem if isinstance(error, HeadwaterError) else error
                self._report(f"{POSITION_FILE} could not be written: {reason}")
            self._is_position_failing = True
            return
        self._written_position = position
        self._is_position_failing = False
