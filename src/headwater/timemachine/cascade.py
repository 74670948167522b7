"""Rewind a stream together with the streams that read what it writes, as one change with one undo.

Each reader returns to the batch before the first one that has undone output in it, and so do its own readers. Readers are
rewound first and the stream itself last: a reader that is rewound alone only reads again what it has read before. Undo
goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.core.errors import ChangeRefused
from headwater.timemachine.downstream import (
    Affected,
    OffsetsAt,
    Stream,
    first_affected,
    known_streams,
    open_stream,
    readers_of,
)
from headwater.timemachine.executor import Progress, no_progress
from headwater.timemachine.joint_change import Part, carry_out, hold_leases
from headwater.timemachine.moved_sources import OpenLog, log_after
from headwater.timemachine.rewind import RewindPlan, WithEngine, plan_query_rewind

PlanReader = Callable[[FileTree, int | None, OpenLog], RewindPlan]
CASCADE = "cascade"


@dataclass(frozen=True)
class CascadePlan:
    """A rewind of several streams. ``plans`` begin with the stream that was named; readers follow what they read."""

    plans: tuple[RewindPlan, ...]
    names: tuple[str, ...]
    affected: tuple[Affected, ...]
    unaffected: tuple[str, ...]
    """Readers that have read nothing of the undone output."""

    @property
    def first(self) -> RewindPlan:
        return self.plans[0]

    @property
    def again(self) -> tuple[str, ...]:
        """What readers read again although it was undone, because it cannot be taken out of a topic."""
        return tuple(f"{one.link.reader.name} will read again {one.again}" for one in self.affected if one.again)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: the plan of the stream that was named, and those of its readers."""
        readers = [
            {"job": name, "checkpoint": plan.location, "plan": plan.as_dict()}
            for name, plan in zip(self.names[1:], self.plans[1:], strict=True)
        ]
        return {
            **self.first.as_dict(),
            CASCADE: readers,
            "unaffected": list(self.unaffected),
            "read_twice": list(self.again),
        }

    def refuse_missing_input(self) -> None:
        """Raise ``ChangeRefused`` if a source of any stream has lost input that does not come from another one of them."""
        for plan in self.plans:
            plan.refuse_missing_input()

    def refuse_again(self) -> None:
        """Raise ``ChangeRefused`` if readers would see undone output a second time."""
        if self.again:
            raise ChangeRefused(
                "read-twice",
                "records cannot be removed from a topic: readers see both the undone output and what is written again",
                evidence={str(number): text for number, text in enumerate(self.again, 1)},
                remedy="add --allow-duplicates if the readers keep only the last record of a key",
            )

    def apply(self, progress: Progress = no_progress, *, allow_missing_input: bool = False) -> None:
        """Rewind all streams. All of them have to be stopped."""
        if not allow_missing_input:
            self.refuse_missing_input()
        with hold_leases([plan.files for plan in self.plans]):
            self.carry_out(progress)

    def carry_out(self, progress: Progress = no_progress) -> None:
        """Do what ``apply`` does. The caller holds the leases."""
        carry_out(self.first.files, [Part.of(plan) for plan in reversed(self.plans)], progress)


def plan_cascade(
    first: RewindPlan,
    *,
    named: Sequence[FileTree] = (),
    offsets_at: OffsetsAt | None = None,
    with_engine: WithEngine = lambda table: table,
    plan_reader: PlanReader | None = None,
) -> CascadePlan:
    """Plan to rewind everything that depends on what a plan undoes; ``named`` are checkpoints to consider as well.

    Raise ``ChangeRefused`` if the batches of a reader cannot be determined, or cannot be rewound to.
    """
    root = open_stream(first.files)
    streams = known_streams(first.files, named)
    plan_reader = plan_reader or _planner(with_engine)
    plans: dict[str, RewindPlan] = {root.location: first}
    members: dict[str, Stream] = {root.location: root}
    affected: dict[tuple[str, str, str], Affected] = {}
    unaffected: dict[str, str] = {}
    waiting = [root]
    while waiting:
        upstream = waiting.pop(0)
        plan = plans[upstream.location]
        for link in readers_of(upstream, streams):
            reader = link.reader
            if reader.location == root.location:
                raise _cycle(root)
            found = first_affected(link, plan, offsets_at)
            is_table = link.kind == "delta" and plan.table is not None and plan.table.action is not None
            if found.batch is None and not is_table:
                unaffected.setdefault(reader.location, reader.name)
                continue
            affected[upstream.location, reader.location, link.source] = found
            to = last_kept(reader, found)
            known = plans.get(reader.location)
            is_covered = known is not None and is_before(known.to, to)
            if known is not None and is_covered:
                if not is_table:
                    continue
                to = known.to  # planned again, because another table that it reads is rewound as well
            planned = plan_reader(reader.files, to, log_after(one.table for one in plans.values()))
            for one in (found, *(one for key, one in affected.items() if key[1] == reader.location and is_covered)):
                refuse_unmoved(one, planned, is_table=one.link.kind == "delta")
            if link.kind != "kafka":  # what it has read there leaves, and what is written again is new to it
                others = tuple(one for one in planned.rereads if one.source != link.source)
                planned = replace(planned, rereads=others)
            plans[reader.location], members[reader.location] = planned, reader
            if not is_covered:
                waiting.append(reader)
    order = _in_order(root, members, affected)
    return CascadePlan(
        tuple(joined_plans([plans[place] for place in order])),
        tuple(members[place].name for place in order),
        tuple(affected.values()),
        tuple(name for place, name in unaffected.items() if place not in plans),
    )


def _planner(with_engine: WithEngine) -> PlanReader:
    def plan(files: FileTree, to: int | None, open_log: OpenLog) -> RewindPlan:
        # Always planned again: the recorded offsets include what is undone.
        with naming_restart(files):
            return plan_query_rewind(files, to=to, replan=True, with_engine=with_engine, open_log=open_log)

    return plan


@contextmanager
def naming_restart(files: FileTree) -> Iterator[None]:
    """Name the way out if a reader cannot plan a batch again: with the recorded offsets it would read undone output."""
    try:
        yield
    except ChangeRefused as refusal:
        if refusal.code != "cannot-replan":
            raise
        raise ChangeRefused(
            "cannot-replan",
            refusal.problem,
            evidence=refusal.evidence,
            remedy=f"start it from scratch: headwater rewind {files.location} --redo 0",
        ) from None


def last_kept(reader: Stream, found: Affected) -> int | None:
    """Return the last batch of a reader that has no undone output in it; None if there is none."""
    if found.batch is None:
        return max(History(reader.files).logs.commits.ids, default=None)
    return found.batch - 1 if found.batch > 0 else None


def is_before(known: int | None, to: int | None) -> bool:
    """Return whether a rewind to one batch undoes at least as much as a rewind to another; None is before all batches."""
    return known is None or (to is not None and known <= to)


def refuse_unmoved(found: Affected, plan: RewindPlan, *, is_table: bool) -> None:
    """Raise ``ChangeRefused`` if a reader would read the commits of a Delta table that are taken back."""
    link = found.link
    if is_table and plan.to is not None and link.source not in {one.source for one in plan.moved_sources}:
        raise ChangeRefused(
            "cannot-cascade",
            f"{link.reader.name} cannot continue in {link.through} after batch {plan.to}",
            evidence={"why": "the files that it has read will not be the first files of the table after the rewind"},
            remedy=f"start it from scratch: headwater rewind {link.reader.location} --redo 0",
        )


def _cycle(root: Stream) -> ChangeRefused:
    return ChangeRefused(
        "cannot-cascade",
        f"{root.name} reads, through other streams, what it writes itself",
        evidence={"checkpoint": root.location},
        remedy="rewind the streams one by one, without --cascade",
    )


def _in_order(
    root: Stream, members: Mapping[str, Stream], affected: Mapping[tuple[str, str, str], Affected]
) -> list[str]:
    """Return the locations so that every reader follows what it reads."""
    order: list[str] = []
    left = dict.fromkeys([root.location, *(place for place in members if place != root.location)])
    while left:
        ready = [
            place
            for place in left
            if not any(reader == place and upstream in left for upstream, reader, _ in affected if upstream != place)
        ]
        if not ready:
            raise _cycle(root)
        order += ready
        for place in ready:
            del left[place]
    return order


def joined_plans(plans: Sequence[RewindPlan]) -> Iterator[RewindPlan]:
    """Yield the plans with what leads from each change to the others, for undo."""
    first = plans[0]
    readers = [{"location": plan.location, "change_id": plan.change.change_id} for plan in plans[1:]]
    origin = {"location": first.location, "change_id": first.change.change_id}
    for plan in plans:
        joined = {"readers": readers} if plan is first else {"cascade_of": origin}
        yield replace(plan, change=replace(plan.change, details={**plan.change.details, **joined}))
