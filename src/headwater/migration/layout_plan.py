"""Plan the places of sources and stateful operators that a migration changes, in the batch that it adds."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.migrated import LayoutChange
from headwater.core.times import iso_from_ms
from headwater.migration.new_metadata import new_metadata
from headwater.migration.operator_changes import leaving_files, new_stores
from headwater.migration.operator_matching import OperatorMatch, operator_effects
from headwater.migration.source_changes import SourceChanges, source_effects, source_files
from headwater.migration.state_shapes import read_shapes
from headwater.timemachine.new_layout import NewLayout


def operator_names(logs: CheckpointLogs, batch: int) -> list[str]:
    """Return Spark's names of the operators as of a batch, in the order of their numbers."""
    return [one.name for one in read_shapes(logs, batch)]


def plan_layout(
    logs: CheckpointLogs, last: int, planned: FileTree, match: OperatorMatch, sources: SourceChanges | None
) -> NewLayout | None:
    """Return what changes about the places of sources and operators; None if nothing does.

    ``planned`` is an empty checkpoint for which Spark has planned the new state.
    """
    if not match.is_changed and sources is None:
        return None
    before = logs.operators(last)
    if not match.is_changed:
        change = LayoutChange(before, before, sources=True)
    else:
        change = LayoutChange(before, CheckpointLogs(planned).state.operators, sources=sources is not None)
    leaving: list[str] = []
    written: dict[str, bytes] = {}
    stores = None
    if match.is_changed:
        moved = {new for old, new in match.pairs if old != new} | set(match.added)
        leaving += leaving_files(logs, match)
        written |= new_metadata(logs, planned, last + 1, moved)
        stores = new_stores(CheckpointLogs(planned), logs.offsets.read(last).shuffle_partitions)
    if sources is None:
        return NewLayout(change, tuple(leaving), {}, written, None, stores)
    files = source_files(logs, last, sources)
    return NewLayout(
        change, (*leaving, *files.leaving), files.placed, {**written, **files.written}, files.offsets, stores
    )


def layout_effects(
    logs: CheckpointLogs, last: int, planned: FileTree, match: OperatorMatch, sources: SourceChanges | None
) -> Iterator[str]:
    """Yield what the continued stream differs in because sources or operators were added or removed."""
    if sources is not None:
        commit = logs.commits.get(last)
        reached = commit.next_watermark_ms if commit else None
        yield from source_effects(sources, last + 1, iso_from_ms(reached) if reached else None)
    if match.is_changed:
        names = operator_names(logs, last), operator_names(CheckpointLogs(planned), 0)
        yield from operator_effects(match, *names, last + 1)


def operator_places(
    logs: CheckpointLogs, last: int, planned: FileTree, match: OperatorMatch
) -> Iterator[dict[str, str | int | None]]:
    """Yield the old and the new number of each operator, for ``--json``."""
    old, new = operator_names(logs, last), operator_names(CheckpointLogs(planned), 0)
    origins = match.origins
    for number, name in enumerate(new):
        yield {"operator": name, "old_number": origins.get(number), "new_number": number}
    for number in match.removed:
        yield {"operator": old[number], "old_number": number, "new_number": None}
