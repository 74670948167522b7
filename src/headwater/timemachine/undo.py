"""Plan to undo the last change: move back what it set aside, and set aside what has taken its place since.

Batches that ran since the change may have made Spark remove files that the restored ones need. Logs are then rebuilt, and
an undo after which Spark could not continue is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS, PLANS_FILE, parent_and_name
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import sink_of
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.tables import RewindableTable, TablePlan, TableUri, open_table
from headwater.timemachine.change import (
    OWN_RECORDS,
    Change,
    CommitToTable,
    Move,
    Preview,
    Put,
    Step,
    fingerprint,
    joined_fingerprint,
    new_change_id,
    quarantine_of,
    set_aside,
    shown_path,
    sink_part,
)
from headwater.timemachine.cuts import cut_batch_logs, cut_plans, cut_steps, has_sink_log, log_steps
from headwater.timemachine.effects import source_table
from headwater.timemachine.erased import ERASES
from headwater.timemachine.executor import Progress, apply_change, no_progress
from headwater.timemachine.journal import Entry, is_emptied, last_to_undo, read_entries, refuse_if_pending
from headwater.timemachine.moved_sources import MovedSource, OpenLog, moved_offsets, moved_sources
from headwater.timemachine.restore import is_restore, steps_back
from headwater.timemachine.rewind import WithEngine
from headwater.timemachine.startable import refuse_unstartable
from headwater.timemachine.tables import checkpointed, table_of
from headwater.timemachine.undo_checks import (
    Roots,
    complete_steps,
    log_names,
    present,
    refuse_incomplete_result,
)


@dataclass(frozen=True)
class UndoPlan:
    """An undo that was planned: ``change`` is what ``apply`` does. ``dropped`` are batches committed since."""

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    undoes: Entry
    dropped: tuple[int, ...]
    change: Change
    table: TablePlan | None = None
    writes_table: RewindableTable | None = field(default=None, repr=False, compare=False)
    moved_sources: tuple[MovedSource, ...] = ()
    """Sources that continue at another position, because the table that they read is restored as well."""

    def apply(self, progress: Progress = no_progress, *, by: str | None = None) -> Entry:
        """Undo the change. The query has to be stopped.

        ``by`` is who does it, as the journal records it; by default the user of this process.
        Raise ``CheckpointBusy`` if another process holds the lease, and ``ChangeRefused`` if the checkpoint has changed
        since the plan was made.
        """
        return apply_change(self.change, self.files, self.sink_files, table=self.writes_table, progress=progress, by=by)

    @property
    def restored(self) -> list[str]:
        """The paths of the files to move back; those in the sink have the prefix ``sink:``."""
        return [shown_path(step.root, step.target) for step in self._moves() if self._is_restored(step)]

    @property
    def set_aside(self) -> list[str]:
        """The paths of the files to set aside; those in the sink have the prefix ``sink:``."""
        return [shown_path(step.root, step.source) for step in self._moves() if not self._is_restored(step)]

    def _moves(self) -> Iterator[Move]:
        moves = (step for step in self.change.steps if isinstance(step, Move))
        return (step for step in moves if not {step.source, step.target} & {*OWN_RECORDS})

    def _is_restored(self, step: Move) -> bool:
        return step.source.startswith(f"{quarantine_of(self.undoes.change.change_id)}/")

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "undoes": self.undoes.change.change_id,
            "verb": self.undoes.change.verb,
            "to": self.undoes.change.to,
            "dropped": list(self.dropped),
            "restored": self.restored,
            "set_aside": self.set_aside,
            "table": self.table.as_dict() if self.table else None,
        }


def plan_query_undo(
    files: FileTree,
    *,
    sink: str | None = None,
    drop_newer: bool = False,
    keep_foreign: bool = False,
    with_engine: WithEngine = lambda table: table,
    in_cascade: bool = False,
) -> UndoPlan:
    """Plan to undo the last change to a query's checkpoint, sink and table.

    ``sink`` is their URI, by default the one that the journal names. For the rest see ``plan_undo``.
    """
    refuse_if_pending(files)
    entry = last_to_undo(files)
    recorded = entry.change.table if entry else None
    unrecorded = table_of(files, sink) if drop_newer and not recorded else None
    table = open_table(sink or recorded) if recorded else unrecorded
    return plan_undo(
        files,
        sink=sink_of(files, sink) if sink and not recorded else None,
        drop_newer=drop_newer,
        table=None if table is None else with_engine(table),
        keep_foreign=keep_foreign,
        in_cascade=in_cascade,
    )


def plan_undo(
    files: FileTree,
    *,
    sink: FileTree | None = None,
    drop_newer: bool = False,
    table: RewindableTable | None = None,
    keep_foreign: bool = False,
    in_cascade: bool = False,
) -> UndoPlan:
    """Plan to move back exactly what the last change set aside.

    ``sink`` is the sink folder of that change, and ``table`` its table, by default those that the journal names. Batches
    that were committed since have to be dropped: raise ``ChangeRefused`` unless ``drop_newer``, which sets them aside too.
    If the change itself did not modify the sink or the table, their rows are removed as in a rewind. With
    ``keep_foreign``, what other programs have done to the table since is kept. A part of a cascade is only undone together
    with the others, unless ``in_cascade``.
    """
    seen = fingerprint(files)
    refuse_if_pending(files, in_cascade=in_cascade)
    entry = _last_change(files)
    done = entry.change
    if done.verb == "promote":
        raise ChangeRefused(
            "part-of-a-promotion",
            "cannot undo this alone: the fork took over the sink of its original, and that is undone with the promotion",
            evidence={"fork": files.location},
            remedy=f"headwater undo {done.details.get('original', 'ORIGINAL')}",
        )
    if not in_cascade:
        refuse_part_of_cascade(done)
    history = History(files)
    next_batch = None if done.verb == "repair" else (0 if done.to is None else done.to + 1)
    newer = () if next_batch is None else _newer_batches(history, done, next_batch)
    sink = _sink_to_undo(files, done, newer, sink)
    seen = joined_fingerprint(seen, sink_part(sink))
    if newer and not drop_newer:
        raise ChangeRefused(
            "newer-batches",
            f"cannot undo the {done.verb}: batches have been committed since and would be dropped",
            evidence={"committed since": ", ".join(map(str, newer[:10])), "checkpoint": files.location},
            remedy=f"headwater undo {files.location} --drop-newer",
        )
    change_id = new_change_id("undo")
    roots: Roots = {"checkpoint": files} if sink is None else {"checkpoint": files, "sink": sink}
    replan = bool(done.details.get("replan"))
    action = done.table_action
    if action is not None and done.table is not None:
        table = table or open_table(done.table)
    elif not newer:
        table = None
    seen_table = table.fingerprint() if table else ""
    returned = None
    if table is not None and action is not None:
        returned = table.plan_undo(checkpointed(history), action, change_id=change_id, keep_foreign=keep_foreign)
    elif table is not None and next_batch is not None:
        returned = table.plan_rewind(
            checkpointed(history), next_batch - 1, change_id=change_id, keep_foreign=keep_foreign
        )
    table_step = (CommitToTable(returned.action),) if returned and returned.action else ()
    # The table is never to lack rows of a batch that the checkpoint has: it comes first to get rows, last to lose them.
    first, last = (table_step, ()) if action is not None else ((), table_step)
    if is_restore(done):
        steps: tuple[Step, ...] = (*first, *steps_back(roots, done, change_id), *last)
    else:
        cut: tuple[Step, ...] = ()
        if next_batch is not None:
            cut = tuple(cut_steps(history, sink, next_batch, change_id, replan=replan))
            # Earlier releases rewound without the record of plans, which then has the entries of all batches.
            is_cut = any(isinstance(step, Move) and step.source == PLANS_FILE for step in done.steps)
            if is_cut or newer or done.verb != "rewind":
                cut += tuple(cut_plans(history, next_batch, change_id, keep_next=True))
        steps = (*first, *steps_of_undo(roots, done, cut, change_id), *last)
    steps = complete_steps(roots, steps, done)
    if newer:
        refuse_incomplete_result(roots, steps, done)
    change = Change(
        change_id,
        "undo",
        f"undo the {done.verb} {done.change_id}",
        steps,
        joined_fingerprint(seen, seen_table if table_step else ""),
        sink.location if sink else None,
        done.to,
        undoes=done.change_id,
        table=table.reference if table and table_step else None,
    )
    return UndoPlan(files, sink, entry, newer, change, returned, table if table_step else None)


def with_moved_sources(plan: UndoPlan, open_log: OpenLog) -> UndoPlan:
    """Return the plan with sources that continue after the commit which restores the table that they read."""
    history = History(Preview(plan.files, plan.change.steps))
    last = history.last_committed

    def read_table(source: str) -> TableUri | None:
        return source_table(history, source)

    moved = () if last is None else moved_sources(history, last, read_table, open_log)
    if last is None or not moved:
        return plan
    change_id = plan.change.change_id
    more: list[Step] = []
    for path in cut_batch_logs(history.files, last + 1, replan=True):  # planned at the former position
        more.append(set_aside(change_id, "checkpoint", path))
    for cut in moved_offsets(history, last, moved, read_table, open_log):
        more += log_steps(history.files, "checkpoint", OFFSETS, cut, change_id)
    steps = [*plan.change.steps, *_beside(plan.change, more)]
    refuse_unstartable(plan.files, steps, last, None)
    return replace(plan, change=replace(plan.change, steps=tuple(steps)), moved_sources=moved)


def _beside(change: Change, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield further steps of a change. What they set aside may be a file that replaced another one set aside before."""
    taken = {step.target for step in change.steps if isinstance(step, Move)}
    quarantine = quarantine_of(change.change_id)
    for step in steps:
        if isinstance(step, Move) and step.target in taken:
            yield replace(step, target=f"{quarantine}/restored/{step.source}")
        else:
            yield step


def _sink_to_undo(files: FileTree, done: Change, newer: Sequence[int], given: FileTree | None) -> FileTree | None:
    """Return the file sink to undo the change in: its own, or the one that newer batches have written to since."""
    if done.sink is not None:
        return given or open_files(done.sink)
    sink = (given or sink_of(files)) if newer else None
    return sink if sink is not None and has_sink_log(sink) else None


def refuse_part_of_cascade(done: Change) -> None:
    """Raise ``ChangeRefused`` if a change was made together with those of other streams, and would be undone alone."""
    first = done.details.get("cascade_of")
    readers = done.details.get("readers") or ()
    others = [str(one["location"]) for one in readers]
    if first is not None and any(
        entry.change.undoes == first["change_id"] for entry in read_entries(open_files(first["location"]))
    ):
        return  # the others are undone already
    if first is None and not readers:
        return
    place = first["location"] if first is not None else "CKPT"
    raise ChangeRefused(
        "part-of-a-cascade",
        f"the last {done.verb} was made together with those of other streams, and can only be undone with them",
        evidence={"streams": ", ".join([place, *others])},
        remedy=f"headwater undo {place}",
    )


def _last_change(files: FileTree) -> Entry:
    entry = last_to_undo(files)
    if entry is None:
        raise ChangeRefused(
            "nothing-to-undo",
            "there is no change to undo",
            evidence={"checkpoint": files.location},
            remedy=f"headwater log {files.location}",
        )
    if ERASES in entry.change.details:
        raise ChangeRefused(
            "erased",
            "an erasure cannot be undone",
            evidence={"checkpoint": files.location, "change": entry.change.change_id},
        )
    if is_emptied(files, entry.change):
        raise ChangeRefused(
            "quarantine-emptied",
            f"cannot undo the last {entry.change.verb}: headwater compact has removed the files that it set aside",
            evidence={"checkpoint": files.location, "change": entry.change.change_id},
        )
    return entry


def _newer_batches(history: History, done: Change, next_batch: int) -> tuple[int, ...]:
    own = set(done.details.get("added", ()))
    return tuple(number for number in history.logs.commits.ids if number >= next_batch and number not in own)


def steps_of_undo(roots: Roots, done: Change, cut: Iterable[Step], change_id: str) -> Iterator[Step]:
    """Yield the files to set aside first, then those to move back, then log files that Spark has since cleaned up."""
    quarantine = f"{quarantine_of(done.change_id)}/"
    returning = [
        Move(step.root, step.target, step.source)
        for step in reversed(done.steps)
        if isinstance(step, Move) and step.target.startswith(quarantine)
    ]
    added = [
        (step.root, step.path if isinstance(step, Put) else step.target)
        for step in done.steps
        if not isinstance(step, CommitToTable) and not (isinstance(step, Move) and step.target.startswith(quarantine))
    ]
    if done.verb == "repair":  # a leftover must not replace a file that was written since
        taken = set(present(roots, ((step.root, step.target) for step in returning)))
        returning = [step for step in returning if (step.root, step.target) not in taken]
    leaving = [step for step in cut if isinstance(step, Move)]
    left = {(step.root, step.source) for step in leaving}
    in_the_way = dict.fromkeys([*added, *((step.root, step.target) for step in returning)])
    for root, path in present(roots, (place for place in in_the_way if place not in left)):
        leaving.append(set_aside(change_id, root, path))
    yield from leaving
    yield from returning
    yield from _missing_log_files(roots, [*leaving, *returning], cut)


def _missing_log_files(roots: Roots, steps: Sequence[Step], cut: Iterable[Step]) -> Iterator[Put]:
    """Yield the log files that a cut would write, for logs that are incomplete after the steps."""
    puts = [step for step in cut if isinstance(step, Put)]
    previews = {root: Preview(files, steps, root) for root, files in roots.items()}
    for root, folder in dict.fromkeys((step.root, parent_and_name(step.path)[0]) for step in puts):
        names = log_names(previews[root], folder)
        if names.latest is None or names.missing_for(names.latest):
            wanted = [step for step in puts if (step.root, parent_and_name(step.path)[0]) == (root, folder)]
            yield from (step for step in wanted if not previews[root].exists(step.path))
