"""Compare the sources of a checkpoint with those of new code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.core.errors import ChangeRefused
from headwater.migration.compare_endpoints import SourceShape
from headwater.migration.comparison import Commands, Difference, Verdict
from headwater.migration.source_changes import SourceChanges, refuse_join_sides

_WHY_ORDER = "Spark finds the offsets of a source by its place in the plan"
_WHY_COUNT = "Spark refuses to start if the number of sources is not that of the recorded offsets"
_WHY_KIND = "the recorded offsets are those of another source"


def compare_sources(changes: SourceChanges, commands: Commands, *, has_join: bool = False) -> Iterator[Difference]:
    """Yield the sources that were added, dropped, moved or replaced."""
    for mine, theirs in changes.pairs:
        if not mine.matches(theirs):
            name = theirs.name or str(changes.new.index(theirs))
            remedy = f"use the recorded source, or: {commands.new_checkpoint}"
            yield Difference(f"source {name}", str(mine), str(theirs), "needs-new-checkpoint", _WHY_KIND, remedy)
    if not changes.is_changed:
        return
    verdict: Verdict = "needs-migrate"
    remedy, why = commands.migrate, ""
    try:
        refuse_join_sides(changes, has_join=has_join)
    except ChangeRefused as refused:
        verdict, remedy = "needs-new-checkpoint", commands.new_checkpoint
        why = f"; a migration is refused: {refused.problem}"
    for one in changes.added:
        yield Difference(f"source {one.name or one}", None, str(one), verdict, f"{_WHY_COUNT}{why}", remedy)
    for one in changes.dropped:
        yield Difference(f"source {one.name or one}", str(one), None, verdict, f"{_WHY_COUNT}{why}", remedy)
    if changes.is_reordered:
        names = [", ".join(one.name or str(one) for one in side) for side in (changes.old, changes.new)]
        shown = [", ".join(map(str, side)) for side in (changes.old, changes.new)]
        old, new = shown if names[0] == names[1] else names
        yield Difference("order of sources", old, new, verdict, f"{_WHY_ORDER}{why}", remedy)


def unclear_sources(
    old: Sequence[SourceShape], new: Sequence[SourceShape], problem: ChangeRefused, commands: Commands
) -> Difference:
    """Return the difference between sources that cannot be matched with certainty."""
    shown = (", ".join(map(str, old)), ", ".join(map(str, new)))
    remedy = f"{commands.migrate} {problem.remedy}"
    return Difference("sources", *shown, "needs-migrate", f"{_WHY_COUNT}; {problem.problem}", remedy)


def compare_named(old: Sequence[SourceShape], new: Sequence[SourceShape], commands: Commands) -> Iterator[Difference]:
    """Yield the differences between sources whose offsets have names: Spark itself adds and removes them."""
    before, after = {one.name: one for one in old}, {one.name: one for one in new}
    for name in [*before, *(one for one in after if one not in before)]:
        if name in before and name in after:
            if not before[name].matches(after[name]):
                shown = (str(before[name]), str(after[name]))
                yield Difference(f"source {name}", *shown, "needs-new-checkpoint", _WHY_KIND, commands.new_checkpoint)
            continue
        found = (str(before[name]) if name in before else None, str(after[name]) if name in after else None)
        why = "the offsets have the names of the sources, so Spark adds and removes them by itself"
        yield Difference(f"source {name}", *found, "compatible", why)
