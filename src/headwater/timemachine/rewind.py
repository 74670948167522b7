"""Plan a rewind: which files are set aside, which are written, what is read again, and what the sink receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS
from headwater.checkpoint.record import sink_of
from headwater.checkpoint.restore_points import restore_points
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.lakehouse.tables import RewindableTable, TablePlan, TableUri
from headwater.timemachine.change import (
    OWN_RECORDS,
    Change,
    CommitToTable,
    Link,
    Move,
    Put,
    fingerprint,
    joined_fingerprint,
    new_change_id,
    shown_path,
)
from headwater.timemachine.cuts import cut_plans, cut_steps, has_sink_log, log_steps, must_replan
from headwater.timemachine.earlier_layout import FORMER_LAYOUT, history_before, refuse_other_layout
from headwater.timemachine.effects import (
    AskRetention,
    EarliestOffsets,
    Reread,
    find_rereads,
    other_sink_warnings,
    sink_effects,
    source_table,
    table_effects,
    table_warnings,
    with_retention,
)
from headwater.timemachine.executor import Progress, apply_change, no_progress
from headwater.timemachine.journal import Entry, refuse_if_pending
from headwater.timemachine.moved_sources import MovedSource, OpenLog, log_of, moved_offsets, moved_sources
from headwater.timemachine.seed_record import refuse_before_seed
from headwater.timemachine.startable import refuse_unstartable
from headwater.timemachine.tables import checkpointed, table_of

WithEngine = Callable[[RewindableTable], RewindableTable]
"""Chooses what writes to a table: Headwater itself, or Spark."""


@dataclass(frozen=True)
class RewindPlan:
    """A rewind that was planned: ``change`` is what ``apply`` does, the rest is for people to judge it by."""

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    to: int | None
    next_batch: int
    undone: tuple[int, ...]
    replan: bool
    change: Change
    rereads: tuple[Reread, ...]
    sink: str
    warnings: tuple[str, ...]
    signs_of_life: tuple[str, ...]
    table: TablePlan | None = None
    """What happens to the Delta table that the query writes to."""
    writes_table: RewindableTable | None = field(default=None, repr=False, compare=False)
    moved_sources: tuple[MovedSource, ...] = ()
    """Sources that continue elsewhere, because the table that they read was rewound."""

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    def apply(
        self, progress: Progress = no_progress, *, allow_missing_input: bool = False, by: str | None = None
    ) -> Entry:
        """Rewind the checkpoint, and the table if there is one. The query has to be stopped.

        ``by`` is who does it, as the journal records it; by default the user of this process.
        Raise ``CheckpointBusy`` if another process holds the lease, and ``ChangeRefused`` if the checkpoint has changed
        since the plan was made or, unless ``allow_missing_input``, if the source has lost the input of undone batches.
        """
        if not allow_missing_input:
            self.refuse_missing_input()
        return apply_change(self.change, self.files, self.sink_files, table=self.writes_table, progress=progress, by=by)

    def refuse_missing_input(self) -> None:
        """Raise ``ChangeRefused`` if a source has lost input: the re-run would silently give other results."""
        missing = [reread for reread in self.rereads if reread.still_there is False]
        if missing:
            which = "the source" if len(self.rereads) == 1 else " and ".join(reread.label for reread in missing)
            has = "has" if len(missing) == 1 else "have"
            raise ChangeRefused(
                "source-gone",
                f"{which} no longer {has} all the input that batch {self.next_batch} and later batches read",
                evidence={reread.label: reread.why or "missing" for reread in missing},
                remedy="rewind to a later batch, or add --allow-missing-input to accept wrong results",
            )

    @property
    def set_aside(self) -> list[str]:
        """The paths of the files to set aside; those in the sink have the prefix ``sink:``."""
        moves = (step for step in self.change.steps if isinstance(step, Move) and step.source not in OWN_RECORDS)
        return [shown_path(step.root, step.source) for step in moves]

    @property
    def rewritten(self) -> list[str]:
        """The paths of the files to write; those in the sink have the prefix ``sink:``."""
        puts = (step for step in self.change.steps if isinstance(step, Put) and step.path not in OWN_RECORDS)
        return [shown_path(step.root, step.path) for step in puts]

    @property
    def restored(self) -> list[str]:
        """The paths of the files that come back from a restore point or the quarantine; ``sink:`` as above."""
        return [shown_path(step.root, step.target) for step in self.change.steps if isinstance(step, Link)]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "to": self.to,
            "next_batch": self.next_batch,
            "undone": list(self.undone),
            "replan": self.replan,
            "set_aside": self.set_aside,
            "rewritten": self.rewritten,
            "restored": self.restored,
            "rereads": [reread.as_dict() for reread in self.rereads],
            "sink": self.sink,
            "table": self.table.as_dict() if self.table else None,
            "moved_sources": [source.as_dict() for source in self.moved_sources],
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
        }


def plan_with_retention(plan: RewindPlan, ask: AskRetention) -> RewindPlan:
    """Return a plan with the time until which Kafka retains what has to be read again."""
    return replace(plan, rereads=with_retention(plan.rereads, ask))


def plan_query_rewind(
    files: FileTree,
    *,
    to: int | None,
    replan: bool = False,
    sink: str | None = None,
    sources: Sequence[str] = (),
    ask_kafka: EarliestOffsets | None = None,
    keep_foreign: bool = False,
    with_engine: WithEngine = lambda table: table,
    open_log: OpenLog = log_of,
) -> RewindPlan:
    """Plan a rewind of a query together with its file sink or its Delta table, if it has one.

    ``sink`` and ``sources`` are URIs such as ``files:DIR``, ``delta:PATH`` and ``kafka://HOST:PORT/TOPIC``, by default
    those that ``headwater run`` recorded. A source may have a name: ``clicks=kafka://HOST:PORT/TOPIC``. For the rest see
    ``plan_rewind``.
    """
    return plan_rewind(
        files,
        to=to,
        replan=replan,
        ask_kafka=ask_kafka,
        keep_foreign=keep_foreign,
        open_log=open_log,
        **endpoints_of(files, sink, sources, with_engine),
    )


class Endpoints(TypedDict):
    """Where a query writes to and reads from, as ``plan_rewind`` and ``plan_restore`` take it."""

    sink: FileTree | None
    sink_uri: str | None
    source_uris: Sequence[str]
    table: RewindableTable | None


def endpoints_of(files: FileTree, sink: str | None, sources: Sequence[str], with_engine: WithEngine) -> Endpoints:
    """Return the sink and the sources of a query: those that are given as URIs, or else those that are recorded."""
    table = table_of(files, sink)
    opened = None if table is None else with_engine(table)
    return Endpoints(sink=sink_of(files, sink), sink_uri=sink, source_uris=sources, table=opened)


def plan_rewind(
    files: FileTree,
    *,
    to: int | None,
    replan: bool = False,
    sink: FileTree | None = None,
    sink_uri: str | None = None,
    source_uris: Sequence[str] = (),
    ask_kafka: EarliestOffsets | None = None,
    table: RewindableTable | None = None,
    keep_foreign: bool = False,
    open_log: OpenLog = log_of,
) -> RewindPlan:
    """Plan a rewind after which batch ``to`` is the last one; None undoes all batches.

    The next batch runs with its recorded offsets unless ``replan``. ``sink`` is the folder of a file sink, whose log is
    rewound too, and ``table`` a table that returns to the batch; with ``keep_foreign``, without undoing what other
    programs did to it. ``open_log`` opens the tables that the query reads. Raise ``ChangeRefused`` if the state of the
    batch cannot be rebuilt, with the nearest one that can.
    """
    sink = sink if sink is not None and has_sink_log(sink) else None
    seen, seen_table = fingerprint(files, sink), table.fingerprint() if table else ""
    refuse_if_pending(files)
    history = History(files)
    next_batch = 0 if to is None else to + 1
    refuse_before_seed(files, next_batch)
    _refuse_unreachable(history_before(history, next_batch), to)
    undone = tuple(number for number in history.batch_ids if number >= next_batch)
    change_id = new_change_id("rewind")
    returned = (
        None
        if table is None
        else table.plan_rewind(checkpointed(history), next_batch - 1, change_id=change_id, keep_foreign=keep_foreign)
    )
    table_step = (CommitToTable(returned.action),) if returned and returned.action else ()

    def read_table(source: str) -> TableUri | None:
        return source_table(history, source, source_uris)

    moved = () if to is None else moved_sources(history, to, read_table, open_log)
    if not undone and not table_step and not moved:
        raise ChangeRefused(
            "nothing-to-undo",
            f"nothing to rewind: batch {to} is the last one",
            evidence={"checkpoint": files.location, "batches": _range(history)},
        )
    # If the offsets before it change, the next batch can only be planned again.
    replan = replan or bool(moved) or must_replan(history, next_batch)
    if moved:
        refuse_other_layout(history, next_batch, "rewind to")
    moves = [
        step
        for cut in moved_offsets(history, next_batch - 1, moved, read_table, open_log)
        for step in log_steps(files, "checkpoint", OFFSETS, cut, change_id)
    ]
    steps = (*cut_steps(history, sink, next_batch, change_id, replan=replan), *moves)
    if replan:
        remedy = f"headwater rewind {files.location} --to {to}   (without --replan)"
        refuse_unstartable(files, steps, to, None if moved or must_replan(history, next_batch) else remedy)
    if not steps and not table_step:
        raise ChangeRefused(
            "nothing-to-undo",
            f"nothing to rewind: batch {next_batch} is already planned with these offsets and has written nothing",
            evidence={"checkpoint": files.location},
            remedy=f"headwater rewind {files.location} --redo {next_batch} --replan   (to plan it again)",
        )
    steps += (*cut_plans(history, next_batch, change_id), *table_step)
    if returned is not None:
        effects, warnings = table_effects(returned, to), list(returned.warnings)
    elif not undone:
        effects, warnings = "nothing is written again", []
    else:
        effects, warnings = sink_effects(sink_uri or history.logs.job.sink, has_log=sink is not None, undone=undone)
    warnings += table_warnings(history.logs.job.statics, undone)
    warnings += other_sink_warnings(history.logs.job.sink, sink_uri) if undone else []
    warnings += [FORMER_LAYOUT.format(batch=number) for number in history.logs.former.crossed(next_batch)[:1]]
    change = Change(
        change_id,
        "rewind",
        "rewind to the start of the stream" if to is None else f"rewind to batch {to}",
        steps,
        joined_fingerprint(seen, seen_table if table_step else ""),
        sink.location if sink else None,
        to,
        details={"undone": list(undone), "replan": replan},
        table=table.reference if table and table_step else None,
    )
    return RewindPlan(
        files,
        sink,
        to,
        next_batch,
        undone,
        replan,
        change,
        find_rereads(history, next_batch, ask_kafka, source_uris, replan=replan, moved=[one.source for one in moved]),
        effects,
        tuple(warnings),
        tuple(signs_of_life(history)),
        returned,
        table if table_step else None,
        moved,
    )


def _refuse_unreachable(history: History, to: int | None) -> None:
    if to is None:
        return
    if to not in history.batch_ids:
        raise ChangeRefused(
            "no-batch",
            f"cannot rewind to batch {to}: it is not in the logs",
            evidence={"checkpoint": history.files.location, "batches": _range(history)},
            remedy=_nearest(history, to),
        )
    batch = history.batch(BatchId(to))
    if not batch.can_rewind_to:
        raise ChangeRefused(
            "state-pruned" if batch.obstacle == "state" else "cannot-rewind",
            f"cannot rewind to batch {to}",
            evidence={"checkpoint": history.files.location, "why": batch.why_not or ""},
            remedy=_nearest(history, to),
        )


def _nearest(history: History, to: int) -> str | None:
    """Return a command with a restore point of the batch, or with the nearest batch that can be rewound to.

    Later batches come first: they undo less.
    """
    kept = [point.name for point in restore_points(history.files) if point.batch_id == to]
    if kept:
        return f"headwater rewind {history.files.location} --to {kept[-1]}"
    for number in sorted(history.batch_ids, key=lambda batch: (batch < to, abs(batch - to))):
        if number != to and history.batch(number).can_rewind_to:
            return f"headwater rewind {history.files.location} --to {number}"
    return None


def _range(history: History) -> str:
    ids = history.batch_ids
    return f"{ids[0]} to {ids[-1]}" if ids else "none"
