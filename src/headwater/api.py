"""The Python interface to a checkpoint. Modules that take long to import are imported when they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.checkpoint import revisions
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.locate import open_checkpoint
from headwater.checkpoint.record import FILES
from headwater.core.errors import UsageProblem
from headwater.core.ids import BatchId, StoreRef

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.checkpoint.watermark_hold import WatermarkHold
    from headwater.jobs.job import Job
    from headwater.timemachine.rewind import RewindPlan


class Checkpoint:
    """A streaming query's checkpoint, given by path, URL or job name.

    Every property and method reads the checkpoint as it is at that moment, so a running query's new batches are seen.
    """

    def __init__(self, path: str | Path) -> None:
        self.files: FileTree = open_checkpoint(str(path))

    def __repr__(self) -> str:
        return f"Checkpoint({self.location!r})"

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    @property
    def history(self) -> History:
        """The logs as batches. It reads only what is used."""
        return History(self.files)

    @property
    def batches(self) -> list[Batch]:
        """Every batch in the logs, oldest first."""
        return self.history.batches()

    def batch(self, revision: int | str) -> Batch:
        """Return a batch by number, or by revision as on the command line: ``41``, ``"HEAD~3"``, ``"@10:30"``."""
        history = self.history
        return history.batch(self.resolve(revision, history=history))

    def resolve(self, revision: int | str, *, history: History | None = None) -> BatchId:
        """Return the id of the batch that a revision names."""
        history = history or self.history
        return revisions.resolve(str(revision), history.batch_ids, history.committed_at_ms)

    def watermark_hold(self, at: int | str = "HEAD") -> WatermarkHold | None:
        """Return which source holds the watermark back as of a batch, and since when.

        Return None if the watermark moves, if the query has a single source, or if no source can be named. ``str()``
        of the result is a sentence.
        """
        from headwater.checkpoint.watermark_hold import watermark_hold  # noqa: PLC0415

        history = self.history
        return watermark_hold(history.logs, self.resolve(at, history=history))

    def state(
        self,
        at: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        schema: str | None = None,
        view: bool = False,
        job: Job | str | None = None,
    ) -> pa.Table:
        """Return the state as of a batch, in the columns of Spark's ``statestore`` source.

        These are ``key``, ``value`` and ``partition_id`` for most operators. If the query has several stores or state
        variables, choose one with ``operator``, ``store`` or ``var``. A store without a schema file has bytes for keys
        and values, unless ``schema`` describes it: ``"key: user STRING; value: count BIGINT"``.

        With ``view``, return the rows of the job's ``state_view``. The job is the recorded one, or ``job``.
        """
        ref = StoreRef(operator, store, var)
        if view:
            return self._state_view(self.resolve(at), ref, schema, job)
        from headwater.statefiles.reader import read_state  # noqa: PLC0415

        return read_state(self.files, self.resolve(at), ref, schema)

    def _state_view(self, at: int, ref: StoreRef, schema: str | None, job: Job | str | None) -> pa.Table:
        from headwater.spark.recorded_job import job_with_state_view  # noqa: PLC0415
        from headwater.statefiles.reader import read_answers  # noqa: PLC0415
        from headwater.views.job_view import view_table  # noqa: PLC0415

        if ref.store is not None or ref.var is not None:
            raise UsageProblem("bad-option", "a view needs every row of the state", remedy="omit store and var")
        found, state_view = job_with_state_view(self.files, job)
        return view_table(read_answers(self.files, at, ref, schema), state_view, found.name)

    def diff(
        self,
        a: int | str,
        b: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        schema: str | None = None,
    ) -> pa.Table:
        """Return the keys that differ between two batches: ``change``, ``key``, ``before``, ``after``, ``partition_id``."""
        from headwater.timemachine.diff import diff_table  # noqa: PLC0415

        return diff_table(self.files, self.resolve(a), self.resolve(b), StoreRef(operator, store, var), schema)

    def plan_rewind(self, *, to: int | str | None, replan: bool = False, sink: str | Path | None = None) -> RewindPlan:
        """Plan a rewind after which batch ``to`` is the last one; None undoes all batches. ``plan.apply()`` does it.

        ``sink`` is the folder of the query's file sink, if ``headwater run`` has not recorded it.
        """
        from headwater.kafka.offsets import earliest_offsets  # noqa: PLC0415
        from headwater.timemachine.rewind import plan_query_rewind  # noqa: PLC0415

        return plan_query_rewind(
            self.files,
            to=None if to is None else self.resolve(to),
            replan=replan,
            sink=None if sink is None else f"{FILES}{quote(str(sink))}",
            ask_kafka=earliest_offsets,
        )
