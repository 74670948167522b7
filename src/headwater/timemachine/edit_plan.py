"""A planned edit of state as a value: the rows that change, and the batch that changes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import PENDING_FILE
from headwater.timemachine.change import Change, scratch_of, written_paths
from headwater.timemachine.executor import Progress, apply_change, no_progress
from headwater.timemachine.journal import Entry
from headwater.timemachine.staged_files import StagedFiles


@dataclass(frozen=True)
class ExtraBatch:
    """A batch that was planned: ``change`` puts it into the checkpoint, after ``files`` were written to a scratch folder."""

    batch_id: int
    change: Change
    files: StagedFiles = field(repr=False)

    def apply(self, checkpoint: FileTree, sink: FileTree | None, progress: Progress = no_progress) -> Entry:
        """Add the batch. The query has to be stopped. If this raises ``HeadwaterError``, nothing has changed."""
        try:
            for path in self.files:
                checkpoint.write_blocks(path, self.files.blocks(path))
            return apply_change(self.change, checkpoint, sink, progress=progress)
        except Exception:
            if not checkpoint.exists(PENDING_FILE):
                checkpoint.remove_folder(scratch_of(self.change.change_id))
            raise


@dataclass(frozen=True)
class RowChanges:
    """How many rows an edit adds, changes, removes and finds as they are wanted, and some of them before and after."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    sample: tuple[tuple[dict[str, Any] | None, dict[str, Any] | None], ...] = ()

    @classmethod
    def sum(cls, parts: Iterable[RowChanges]) -> RowChanges:
        """Return the changes of several stores or variables together."""
        every = tuple(parts)
        return cls(
            sum(part.added for part in every),
            sum(part.changed for part in every),
            sum(part.removed for part in every),
            sum(part.unchanged for part in every),
            tuple(pair for part in every for pair in part.sample),
        )

    @property
    def total(self) -> int:
        return self.added + self.changed + self.removed

    def as_dict(self) -> dict[str, int]:
        return {"added": self.added, "changed": self.changed, "removed": self.removed, "unchanged": self.unchanged}


@dataclass(frozen=True)
class Erasure:
    """What an erasure deletes for good, besides the rows: batches that can no longer be rewound to, and their files."""

    batches: tuple[int, ...]
    """The batches whose state is deleted."""
    files: int
    points: tuple[str, ...] = ()
    """The restore points that are deleted."""
    changes: tuple[str, ...] = ()
    """The changes that can no longer be undone, because the files that they set aside are deleted."""

    def as_dict(self) -> dict[str, Any]:
        """Return the form in which the journal and JSON have it."""
        return {
            "batches": list(self.batches),
            "files": self.files,
            "points": list(self.points),
            "changes": list(self.changes),
        }


class AddsBatch:
    """What plans that add a batch have in common: where it goes, what is written, and how it is applied."""

    files: FileTree
    sink_files: FileTree | None
    batch: ExtraBatch

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    @property
    def batch_id(self) -> int:
        """The batch that is added, which reads no input."""
        return self.batch.batch_id

    @property
    def written(self) -> list[str]:
        """The paths of the files to write; those in the sink have the prefix ``sink:``."""
        return written_paths(self.batch.change)

    def apply(self, progress: Progress = no_progress) -> Entry:
        """Change the state. The query has to be stopped.

        Raise ``CheckpointBusy`` if another process holds the lease, and ``ChangeRefused`` if the checkpoint has changed
        since the plan was made.
        """
        return self.batch.apply(self.files, self.sink_files, progress)


@dataclass(frozen=True)
class EditPlan(AddsBatch):
    """An edit that was planned: ``batch`` is what ``apply`` adds, the rest is for people to judge it by."""

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    target: str
    rows: RowChanges
    batch: ExtraBatch
    reason: str | None
    warnings: tuple[str, ...]
    signs_of_life: tuple[str, ...]
    erasure: Erasure | None = None

    @property
    def verb(self) -> str:
        return self.batch.change.verb

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verb": self.verb,
            "batch_id": self.batch_id,
            "target": self.target,
            "rows": self.rows.as_dict(),
            "sample": [{"before": before, "after": after} for before, after in self.rows.sample],
            "written": self.written,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
            **({"erases": self.erasure.as_dict()} if self.erasure else {}),
        }
