"""What a Python program sees of a checkpoint. Rooms that cost more to import are entered only when they are needed."""

from __future__ import annotations

from pathlib import Path

from headwater.checkpoint import revisions
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.locate import open_checkpoint
from headwater.core.ids import BatchId


class Checkpoint:
    """A streaming query's checkpoint, given by path, URL or job name.

    Every property reads the checkpoint as it is at that moment, so that a query that goes on is seen to go on.
    """

    def __init__(self, path: str | Path) -> None:
        self.files: Files = open_checkpoint(str(path))

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
