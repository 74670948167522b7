"""What ``Checkpoint`` returns: values of the inner packages that also show themselves in a notebook.

The classes add only how a value is shown, and ``apply`` where it needs more than the inner packages may import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.checkpoint.history import Batch
from headwater.core.extras import naming_extras
from headwater.core.finding import Finding
from headwater.migration.comparison import Comparison
from headwater.migration.migration_plan import MigrationPlan
from headwater.migration.store_migration_plan import StoreMigrationPlan
from headwater.timemachine.edit_plan import EditPlan
from headwater.timemachine.executor import Progress, no_progress
from headwater.timemachine.fork import ForkPlan
from headwater.timemachine.journal import Entry
from headwater.timemachine.repartition import RepartitionPlan
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.seed import SeedPlan
from headwater.timemachine.undo import UndoPlan
from headwater.views import html
from headwater.views.code_check import comparison_lines
from headwater.views.plans import (
    PlanText,
    edit_text,
    fork_text,
    repartition_text,
    rewind_text,
    seed_text,
    undo_text,
)
from headwater.views.store_migration import store_migration_text

if TYPE_CHECKING:
    from headwater.spark.dropped.records import DroppedRecord
    from headwater.spark.seeding import Seeded

Shown = TypeVar("Shown")


def shown_as(kind: type[Shown], value: Any) -> Shown:
    """Return a dataclass as the subclass of it that notebooks can show."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(value)})


class ShownBatch(Batch):
    """A batch."""

    def _repr_html_(self) -> str:
        return html.batch_html(self)


class BatchList(list[Batch]):
    """Batches, oldest first."""

    def _repr_html_(self) -> str:
        return html.batches_html(self)


class FindingList(list[Finding]):
    """The findings of ``fsck``."""

    def _repr_html_(self) -> str:
        return html.findings_html(self)


class DroppedRecordList(list["DroppedRecord"]):
    """Late and malformed records."""

    def _repr_html_(self) -> str:
        return html.dropped_html([record.as_dict() for record in self])


class AppliedChange(Entry):
    """A change that was carried out, as the journal records it."""

    def __repr__(self) -> str:
        return f"AppliedChange({self.change.change_id!r}, {self.change.about!r})"

    def _repr_html_(self) -> str:
        return html.change_html(self.change, self.done_at_ms)


class ShownComparison(Comparison):
    """What changed between a checkpoint and a job's code."""

    def __repr__(self) -> str:
        return "\n".join(comparison_lines(self))

    def _repr_html_(self) -> str:
        return html.comparison_html(self)


class _ShownPlan:
    """Shows a plan in words, where its dataclass would list every file that moves."""

    def _text(self) -> PlanText:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self._text().lines())

    def _repr_html_(self) -> str:
        return html.plan_html(self._text())


class ShownRewindPlan(_ShownPlan, RewindPlan):
    """A planned rewind."""

    def apply(
        self, progress: Progress = no_progress, *, allow_missing_input: bool = False, by: str | None = None
    ) -> AppliedChange:
        return shown_as(AppliedChange, super().apply(progress, allow_missing_input=allow_missing_input, by=by))

    def _text(self) -> PlanText:
        return rewind_text(self)


class ShownUndoPlan(_ShownPlan, UndoPlan):
    """A planned undo."""

    def apply(self, progress: Progress = no_progress, *, by: str | None = None) -> AppliedChange:
        return shown_as(AppliedChange, super().apply(progress, by=by))

    def _text(self) -> PlanText:
        return undo_text(self)


class ShownEditPlan(_ShownPlan, EditPlan):
    """A planned edit or import of state."""

    def apply(self, progress: Progress = no_progress) -> AppliedChange:
        return shown_as(AppliedChange, super().apply(progress))

    def _text(self) -> PlanText:
        return edit_text(self)


class ShownMigrationPlan(_ShownPlan, MigrationPlan):
    """A planned migration."""

    def apply(self, progress: Progress = no_progress) -> AppliedChange:
        return shown_as(AppliedChange, super().apply(progress))

    def _text(self) -> PlanText:
        from headwater.views.migration import migration_text  # noqa: PLC0415 - its samples of rows need Arrow

        return migration_text(self)


class ShownStoreMigrationPlan(_ShownPlan, StoreMigrationPlan):
    """A planned migration to another state store."""

    def apply(self, progress: Progress = no_progress) -> AppliedChange:
        return shown_as(AppliedChange, super().apply(progress))

    def _text(self) -> PlanText:
        return store_migration_text(self)


class ShownForkPlan(_ShownPlan, ForkPlan):
    """A planned fork."""

    def _text(self) -> PlanText:
        return fork_text(self)


@dataclass(frozen=True, repr=False)
class ShownSeedPlan(_ShownPlan, SeedPlan):
    """A planned seed."""

    request: Any = None

    def apply(self, spark: Any = None, *, conf: Mapping[str, str] | None = None) -> Seeded:
        """Create the checkpoint with Spark. An interrupted seed continues if the same one is applied again.

        Uses ``spark``, the session of this process, or one that is started with the settings in ``conf`` and stopped at
        the end.
        """
        with naming_extras():
            from headwater.spark.seeding import seed, seed_in_program  # noqa: PLC0415

        if spark is not None:
            return seed(spark, self.request, self)
        return seed_in_program(self.request, self, conf=conf)

    def _text(self) -> PlanText:
        return seed_text(self)


class ShownRepartitionPlan(_ShownPlan, RepartitionPlan):
    """A planned repartition."""

    def apply(self, *, conf: Mapping[str, str] | None = None) -> AppliedChange:
        """Repartition the state with Spark. The query has to be stopped.

        Uses the Spark session of this process, or starts one with the settings in ``conf`` and stops it at the end.
        Raise ``CheckpointBusy`` if another process holds the lease.
        """
        with naming_extras():
            from headwater.spark.repartition import repartition_with_spark  # noqa: PLC0415

        return shown_as(AppliedChange, repartition_with_spark(self.files, self.partitions, conf=conf))

    def _text(self) -> PlanText:
        return repartition_text(self)
