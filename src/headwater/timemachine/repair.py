"""Plan to repair what fsck can prove: leftovers that nothing reads are set aside, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import hadoop_crc_of
from headwater.core.finding import Finding
from headwater.timemachine.change import Change, fingerprint, new_change_id, set_aside
from headwater.timemachine.executor import Progress, carry_out, no_progress
from headwater.timemachine.journal import Entry

LEFTOVERS = frozenset({"stale-crc", "stale-checksum", "temporary-file"})


@dataclass(frozen=True)
class RepairPlan:
    """What a person reads before leftovers are set aside; ``undo`` puts them back."""

    files: FileTree = field(repr=False, compare=False)
    change: Change
    set_aside: tuple[str, ...]

    def apply(self, progress: Progress = no_progress) -> Entry:
        return carry_out(self.change, self.files, progress=progress)

    def as_dict(self) -> dict[str, Any]:
        return {"repair": self.change.change_id, "set_aside": list(self.set_aside)}


def plan_repair(files: FileTree, findings: Iterable[Finding]) -> RepairPlan | None:
    """The plan for the leftovers among the findings, None when there are none."""
    leftovers = [finding.path for finding in findings if finding.repairable and finding.code in LEFTOVERS]
    if not leftovers:
        return None
    # Format 2's checksum files have a crc file of Hadoop's in their turn.
    paths = dict.fromkeys(
        path for leftover in leftovers for path in (leftover, hadoop_crc_of(leftover)) if files.exists(path)
    )
    change_id = new_change_id("repair")
    change = Change(
        change_id,
        "repair",
        f"set {len(paths)} leftover files aside",
        tuple(set_aside(change_id, "checkpoint", path) for path in paths),
        fingerprint(files, None),
    )
    return RepairPlan(files, change, tuple(paths))
