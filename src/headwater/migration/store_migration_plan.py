"""A planned migration to another state store as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.checkpoint.filetree import FileTree
from headwater.timemachine.edit_plan import AddsBatch, ExtraBatch

if TYPE_CHECKING:  # reading verbs show plans too, and do without Arrow
    from headwater.timemachine.store_files import StoreForm

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class StoredForm:
    """A form, and whether RocksDB writes changelogs. The settings of a run decide on these, and no log records them."""

    form: StoreForm
    changelog: bool | None = None

    @property
    def text(self) -> str:
        kind = "HDFS-backed" if self.form.hdfs else "RocksDB"
        changelogs = {None: "", True: " with changelogs", False: " without changelogs"}[self.changelog]
        return f"{kind}{changelogs}, checkpoint format {self.form.checkpoint_format}"

    @property
    def store(self) -> str:
        if self.form.hdfs:
            return "hdfs"
        return "rocksdb-changelog" if self.changelog else "rocksdb"

    @property
    def conf(self) -> dict[str, str]:
        """The settings with which Spark continues in this form, beyond those that it reads from the checkpoint."""
        found = {_FORMAT: "2"} if self.form.unique_ids else {}
        return found | ({} if self.changelog is None else {_CHANGELOG: str(self.changelog).lower()})

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"store": self.store, "checkpoint_format": self.form.checkpoint_format}


@dataclass(frozen=True)
class StoreMigrationPlan(AddsBatch):
    """A migration to another store that was planned: ``batch`` is what ``apply`` adds."""

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    before: StoredForm
    after: StoredForm
    rows: int
    batch: ExtraBatch
    reason: str | None
    warnings: tuple[str, ...]
    signs_of_life: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verb": self.batch.change.verb,
            "batch_id": self.batch_id,
            "rows": self.rows,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "conf": self.after.conf,
            "written": self.written,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
        }
