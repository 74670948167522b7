"""Plan a rewind: which files leave, which are written, what is read again and what the sink will see. Moves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import SINK_LOG, SOURCES, join
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.timemachine.change import Change, Move, Put, Root, Step, fingerprint, new_change_id, set_aside
from headwater.timemachine.cuts import LogCut, cut_batch_logs, cut_sink, cut_sources, cut_state, has_sink_log, with_crc
from headwater.timemachine.effects import EarliestOffsets, Reread, find_rereads, sink_effects
from headwater.timemachine.executor import Progress, carry_out, no_progress, refuse_if_pending
from headwater.timemachine.journal import Entry
from headwater.timemachine.signs_of_life import signs_of_life


@dataclass(frozen=True)
class RewindPlan:
    """What a person reads before anything moves; ``change`` is what would be done."""

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

    @property
    def location(self) -> str:
        return self.files.location

    def apply(self, progress: Progress = no_progress) -> Entry:
        """Carry it out. The query has to be stopped; a live lease or a checkpoint that moved on is refused."""
        return carry_out(self.change, self.files, self.sink_files, progress=progress)

    @property
    def set_aside(self) -> list[str]:
        return [_shown(step.root, step.source) for step in self.change.steps if isinstance(step, Move)]

    @property
    def rewritten(self) -> list[str]:
        return [_shown(step.root, step.path) for step in self.change.steps if isinstance(step, Put)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "to": self.to,
            "next_batch": self.next_batch,
            "undone": list(self.undone),
            "replan": self.replan,
            "set_aside": self.set_aside,
            "rewritten": self.rewritten,
            "rereads": [reread.as_dict() for reread in self.rereads],
            "sink": self.sink,
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
        }


def plan_rewind(
    files: FileTree,
    *,
    to: int | None,
    replan: bool = False,
    sink: FileTree | None = None,
    sink_uri: str | None = None,
    source_uri: str | None = None,
    ask_kafka: EarliestOffsets = lambda servers, topics: None,  # noqa: ARG005
) -> RewindPlan:
    """Keep everything up to batch ``to`` (None: nothing), so that the one after it runs next.

    ``sink`` is the folder of a file sink, whose log goes back too; ``sink_uri`` and ``source_uri`` say more of both
    than the job's record does. ``ChangeRefused`` where the state of that batch cannot be had, with the nearest that can.
    """
    refuse_if_pending(files)
    history = History(files)
    sink = sink if sink is not None and has_sink_log(sink) else None
    next_batch = 0 if to is None else to + 1
    _refuse_unreachable(history, to)
    undone = tuple(number for number in history.batch_ids if number >= next_batch)
    if not undone:
        raise ChangeRefused(
            "nothing-to-undo",
            f"batch {to} is the last one: there is nothing to rewind",
            evidence={"checkpoint": files.location, "batches": _range(history)},
        )
    # Without its offsets on disk the next batch can only be planned anew.
    replan = replan or next_batch not in history.logs.offsets.entries
    change_id = new_change_id("rewind")
    steps = tuple(cut_steps(history, sink, next_batch, change_id, replan=replan))
    if not steps:
        raise ChangeRefused(
            "nothing-to-undo",
            f"batch {next_batch} is planned with these offsets already and has left nothing behind",
            evidence={"checkpoint": files.location},
            remedy=f"headwater rewind {files.location} --redo {next_batch} --replan   (to plan it anew)",
        )
    effects, warnings = sink_effects(sink_uri or history.logs.job.sink, has_log=sink is not None, undone=undone)
    change = Change(
        change_id,
        "rewind",
        f"make batch {next_batch} the next to run",
        steps,
        fingerprint(files, sink),
        sink.location if sink else None,
        to,
        details={"undone": list(undone), "replan": replan},
    )
    return RewindPlan(
        files,
        sink,
        to,
        next_batch,
        undone,
        replan,
        change,
        find_rereads(history, next_batch, ask_kafka, source_uri),
        effects,
        tuple(warnings),
        tuple(signs_of_life(history)),
    )


def cut_steps(
    history: History, sink: FileTree | None, next_batch: int, change_id: str, *, replan: bool
) -> Iterator[Step]:
    """Newest things first, so that an interrupted change reads like a shorter one."""
    files = history.files
    if sink is not None:
        cut = cut_sink(history, sink, next_batch)
        yield from _log_steps(sink, "sink", SINK_LOG, cut.log, change_id)
        for path in cut.data:
            folder, _, name = path.rpartition("/")
            present = [entry.name for entry in sink.entries(folder)]
            yield from (set_aside(change_id, "sink", join(folder, held)) for held in with_crc([name], present))
    for path in (*cut_batch_logs(files, next_batch, replan=replan), *cut_state(history, next_batch)):
        yield set_aside(change_id, "checkpoint", path)
    for name, log_cut in cut_sources(history, next_batch, replan=replan).items():
        yield from _log_steps(files, "checkpoint", f"{SOURCES}/{name}", log_cut, change_id)


def _log_steps(files: FileTree, root: Root, folder: str, cut: LogCut, change_id: str) -> Iterator[Step]:
    present = {entry.name for entry in files.entries(folder)}
    # A checksum that was left behind would not fit the file that is written.
    stale = [crc for name in cut.written if (crc := f".{name}.crc") in present and name not in cut.aside]
    for name in (*with_crc(cut.aside, present), *stale):
        yield set_aside(change_id, root, f"{folder}/{name}")
    for name, data in cut.written.items():
        yield Put(root, f"{folder}/{name}", data)


def refuse_if_input_gone(plan: RewindPlan) -> None:
    """What the source has lost cannot be read again: the second run would give other totals without a word."""
    gone = [reread for reread in plan.rereads if reread.still_there is False]
    if gone:
        raise ChangeRefused(
            "source-gone",
            f"the source no longer has what batch {plan.next_batch} would read again",
            evidence={f"source {reread.source}": reread.why or "gone" for reread in gone},
            remedy="rewind to a later batch, or add --allow-missing-input if the totals may be wrong",
        )


def _refuse_unreachable(history: History, to: int | None) -> None:
    if to is None:
        return
    if to not in history.batch_ids:
        raise ChangeRefused(
            "no-batch",
            f"there is no batch {to} to rewind to",
            evidence={"checkpoint": history.files.location, "batches": _range(history)},
            remedy=_nearest(history, to),
        )
    batch = history.batch(BatchId(to))
    if not batch.can_rewind_to:
        raise ChangeRefused(
            "state-pruned" if "state version" in (batch.why_not or "") else "cannot-rewind",
            f"cannot rewind to batch {to}",
            evidence={"checkpoint": history.files.location, "why": batch.why_not or ""},
            remedy=_nearest(history, to),
        )


def _nearest(history: History, to: int) -> str | None:
    """A command with the nearest batch that can be reached, later ones first: they undo less."""
    for number in sorted(history.batch_ids, key=lambda held: (held < to, abs(held - to))):
        if number != to and history.batch(number).can_rewind_to:
            return f"headwater rewind {history.files.location} --to {number}"
    return None


def _range(history: History) -> str:
    ids = history.batch_ids
    return f"{ids[0]} to {ids[-1]}" if ids else "none"


def _shown(root: str, path: str) -> str:
    return path if root == "checkpoint" else f"sink:{path}"
