"""The jobs of one ``headwater run`` on a terminal: their batches, their failures and their summaries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.run_log import TextLog
from headwater.core.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.checkpoint.record import ProgressRecord
    from headwater.checkpoint.stop_request import StopRequest
    from headwater.spark.followers import Follower
    from headwater.spark.ownership import Run
    from headwater.spark.running import RunningJob

Start = Callable[..., "RunningJob"]
POLL_SECONDS = 0.2
SEPARATOR = "   "


@dataclass
class SupervisedJob:
    """A job of the command: what accompanies it, its handle once it has started, and its failure."""

    run: Run
    followers: Sequence[Follower] = ()
    handle: RunningJob | None = None
    failure: HeadwaterError | None = None
    is_done: bool = False
    is_stop_shown: bool = False

    @property
    def name(self) -> str:
        return self.run.job.name

    @property
    def last_batch_id(self) -> int | None:
        progress = self.handle.progress if self.handle else None
        return progress.batch_id if progress else None


class Supervision:
    """Starts jobs on one session and shows what they do, until all have ended or ``stop`` is set.

    The failure of one job does not stop the others, unless ``fail_together`` is set.
    """

    def __init__(
        self, jobs: Sequence[SupervisedJob], stop: threading.Event, log: TextLog, *, fail_together: bool = False
    ) -> None:
        self.jobs = jobs
        self._stop = stop
        self._log = log
        self._fail_together = fail_together
        self._stopped_for: SupervisedJob | None = None

    @property
    def failures(self) -> list[HeadwaterError]:
        """The failures, in the order of the jobs."""
        return [job.failure for job in self.jobs if job.failure]

    def run(self, start: Start, on_poll: Callable[[SupervisedJob], None] | None = None) -> None:
        """Run the jobs to their end. ``start`` is ``start_job`` on a session.

        ``on_poll`` is called several times a second. If it raises, all jobs end after their current batches.
        """
        for job in self.jobs:
            if not self._is_stopping:
                self._start(start, job)
        try:
            while any(not job.is_done for job in self.jobs):
                self._poll(on_poll)
        except HeadwaterError:
            for job in self.jobs:
                if job.handle:
                    job.handle.stop()
            raise
        for job in self.jobs:
            self._summarize(job)

    @property
    def _is_stopping(self) -> bool:
        return self._stop.is_set() or self._stopped_for is not None

    def _start(self, start: Start, job: SupervisedJob) -> None:
        def show_batch(batch: ProgressRecord) -> None:
            self._log.batch(job.name, batch)

        try:
            job.handle = start(job.run, on_batch=show_batch, warn=self._log.warning, followers=job.followers)
        except HeadwaterError as error:
            self._end(job, error)

    def _poll(self, on_poll: Callable[[SupervisedJob], None] | None) -> None:
        running = [job for job in self.jobs if not job.is_done]
        for job in running:
            if job.handle is None:
                job.is_done = True
            elif not job.handle.is_active:
                self._end(job, job.handle.failure)
            elif job.handle.stop_request and not job.is_stop_shown:
                self._show_request(job, job.handle.stop_request)
            elif self._is_stopping:
                job.handle.stop(wait=False)
            elif on_poll:
                on_poll(job)
        if self._log.is_live and not self._is_stopping:
            self._show_status()
        time.sleep(POLL_SECONDS)

    def _show_request(self, job: SupervisedJob, request: StopRequest) -> None:
        job.is_stop_shown = True
        when = "immediately" if request.now else "after the current batch"
        self._log.message(f"stopping {when}: requested by {request.requested_by}", job.name)

    def _end(self, job: SupervisedJob, failure: HeadwaterError | None) -> None:
        job.is_done = True
        job.failure = failure
        if failure is None or len(self.jobs) == 1:
            return
        self._log.failure(job.name, failure)
        if self._fail_together and not self._is_stopping:
            self._stopped_for = job
            self._log.message(f"stopping the other jobs after their current batches, because {job.name} failed")

    def _show_status(self) -> None:
        handles = [job.handle for job in self.jobs if job.handle and job.handle.is_active]
        self._log.show(SEPARATOR.join(f"{handle.job.name}: {handle.status}" for handle in handles))

    def _summarize(self, job: SupervisedJob) -> None:
        if len(self.jobs) == 1 and job.failure:
            return  # the command ends with this error
        outcome = "no more data"
        if job.failure:
            outcome = f"failed ({job.failure.code})"
        elif job.handle is None:
            outcome = "not started"
        elif job.handle.is_stopping:
            outcome = "stopped"
        self._log.ended(job.name, outcome, job.handle.totals if job.handle else None)
