"""Plan a repair: set aside leftover files that fsck has proven to be unused, and change nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import hadoop_crc_of
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.timemachine.change import Change, fingerprint, new_change_id, set_aside
from headwater.timemachine.executor import Progress, apply_change, no_progress
from headwater.timemachine.journal import Entry

LEFTOVERS = frozenset({"stale-crc", "stale-checksum", "temporary-file"})


@dataclass(frozen=True)
class RepairPlan:
    """A repair that was planned. ``undo`` moves the leftovers back."""

    files: FileTree = field(repr=False, compare=False)
    change: Change
    set_aside: tuple[str, ...]

    def apply(self, progress: Progress = no_progress) -> Entry:
        """Set the leftovers aside. The query has to be stopped."""
        return apply_change(self.change, self.files, progress=progress)


def plan_repair(files: FileTree, findings: Iterable[Finding]) -> RepairPlan | None:
    """Return a plan for the leftovers among the findings; None if there are none."""
    leftovers = [finding.path for finding in findings if finding.repairable and finding.code in LEFTOVERS]
    if not leftovers:
        return None
    seen = fingerprint(files)
    # The checksum files of format 2 have Hadoop checksum files of their own.
    paths = dict.fromkeys(
        path for leftover in leftovers for path in (leftover, hadoop_crc_of(leftover)) if files.exists(path)
    )
    change_id = new_change_id("repair")
    change = Change(
        change_id,
        "repair",
        f"set aside {count(len(paths), 'leftover file')}",
        tuple(set_aside(change_id, "checkpoint", path) for path in paths),
        seen,
    )
    return RepairPlan(files, change, tuple(paths))
