"""What a Python program sees of a checkpoint. Rooms that cost more to import are entered only when they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.checkpoint import revisions
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.locate import open_checkpoint, open_files
from headwater.checkpoint.record import read_job_record
from headwater.core.ids import BatchId

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.timemachine.rewind import RewindPlan


class Checkpoint:
    """A streaming query's checkpoint, given by path, URL or job name.

    Every property reads the checkpoint as it is at that moment, so that a query that goes on is seen to go on.
    """

    def __init__(self, path: str | Path) -> None:
        self.files: FileTree = open_checkpoint(str(path))

    def __repr__(self) -> str:
        return f"Checkpoint({self.location!r})"

    @property
    def location(self) -> str:
        return self.files.location

    @property
    def history(self) -> History:
        """The logs as batches, read as far as they are asked for."""
        return History(self.files)

    @property
    def batches(self) -> list[Batch]:
        """Every batch in the logs, oldest first."""
        return self.history.batches()

    def batch(self, revision: int | str) -> Batch:
        """One batch, by number or as on the command line: ``41``, ``"HEAD~3"``, ``"@10:30"``."""
        history = self.history
        return history.batch(self.resolve(revision, history=history))

    def resolve(self, revision: int | str, *, history: History | None = None) -> BatchId:
        """The id of the batch that a revision names."""
        history = history or self.history
        return revisions.resolve(str(revision), history.batch_ids, history.committed_at_ms)

    def state(
        self,
        at: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
    ) -> pa.Table:
        """The state as of a batch, in the columns of Spark's ``statestore`` source: ``key``, ``value``, ``partition_id``.

        A query with several stores or state variables needs ``operator``, ``store`` or ``var`` to choose one.
        """
        from headwater.statefiles.reader import read_state  # noqa: PLC0415

        return read_state(self.files, self.resolve(at), operator=operator, store=store, var=var)

    def diff(
        self,
        a: int | str,
        b: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
    ) -> pa.Table:
        """The keys that differ between two batches: ``change``, ``key``, ``before``, ``after``, ``partition_id``."""
        from headwater.timemachine.diff import diff_tables  # noqa: PLC0415

        return diff_tables(self.files, self.resolve(a), self.resolve(b), operator=operator, store=store, var=var)

    def plan_rewind(self, *, to: int | str | None, replan: bool = False, sink: str | Path | None = None) -> RewindPlan:
        """What a rewind to a batch (None: to the very start) would do; ``plan.apply()`` does it.

        ``sink`` is the folder of the query's file sink, where ``headwater run`` did not write that down.
        """
        from headwater.kafka.offsets import earliest_offsets  # noqa: PLC0415
        from headwater.timemachine.rewind import plan_rewind  # noqa: PLC0415

        folder = str(sink) if sink is not None else read_job_record(self.files).sink_folder
        if folder and "://" not in folder:
            folder = str(Path(folder).absolute())  # the journal is read from elsewhere, too
        return plan_rewind(
            self.files,
            to=None if to is None else self.resolve(to),
            replan=replan,
            sink=open_files(folder) if folder else None,
            ask_kafka=earliest_offsets,
        )
