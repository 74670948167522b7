"""Plan to take back the last change: what it set aside goes home, what came since makes room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.core.errors import ChangeRefused
from headwater.timemachine.carry_out import carry_out
from headwater.timemachine.change import Change, Move, MoveFence, Put, Root, Step, new_change_id, set_aside
from headwater.timemachine.executor import FenceSetter, Progress, no_fence, no_progress
from headwater.timemachine.fingerprint import fingerprint
from headwater.timemachine.journal import Entry, is_emptied, last_to_undo
from headwater.timemachine.rewind import cut_steps


@dataclass(frozen=True)
class UndoPlan:
    """What a person reads before the last change is taken back."""

    files: Files = field(repr=False, compare=False)
    sink_files: Files | None = field(repr=False, compare=False)
    undoes: Entry
    dropped: tuple[int, ...]
    change: Change

    def apply(self, progress: Progress = no_progress, set_fence: FenceSetter = no_fence) -> Entry:
        return carry_out(self.change, self.files, self.sink_files, set_fence=set_fence, progress=progress)

    @property
    def restored(self) -> list[str]:
        homes = [step for step in self.change.steps if isinstance(step, Move) and self._is_home(step)]
        return [step.target if step.root == "checkpoint" else f"sink:{step.target}" for step in homes]

    @property
    def set_aside(self) -> list[str]:
        away = [step for step in self.change.steps if isinstance(step, Move) and not self._is_home(step)]
        return [step.source if step.root == "checkpoint" else f"sink:{step.source}" for step in away]

    def _is_home(self, step: Move) -> bool:
        return self.undoes.change.change_id in step.source

    def as_dict(self) -> dict[str, Any]:
        return {
            "undoes": self.undoes.change.change_id,
            "verb": self.undoes.change.verb,
            "to": self.undoes.change.to,
            "dropped": list(self.dropped),
            "restored": self.restored,
            "set_aside": self.set_aside,
        }


def find_undo(files: Files) -> Entry:
    """The change that ``undo`` would take back."""
    entry = last_to_undo(files)
    if entry is None:
        raise ChangeRefused(
            "nothing-to-undo",
            "no change of this checkpoint is left to undo",
            evidence={"checkpoint": files.location},
            remedy=f"headwater log {files.location}",
        )
    if is_emptied(files, entry.change):
        raise ChangeRefused(
            "quarantine-emptied",
            f"the last {entry.change.verb} cannot be undone: what it set aside was removed by headwater compact",
            evidence={"checkpoint": files.location, "change": entry.change.change_id},
        )
    return entry


def plan_undo(files: Files, *, sink: Files | None = None, drop_newer: bool = False) -> UndoPlan:
    """Put back exactly what the last change set aside.

    Batches committed since stand in the way: refused, unless ``drop_newer`` gives them up (they are set aside too).
    """
    entry = find_undo(files)
    done = entry.change
    history = History(files)
    next_batch = None if done.verb == "repair" else (0 if done.to is None else done.to + 1)
    newer = () if next_batch is None else _newer_batches(history, done, next_batch)
    if newer and not drop_newer:
        raise ChangeRefused(
            "newer-batches",
            f"batches were committed since the {done.verb}: undoing it would give them up",
            evidence={"committed since": ", ".join(map(str, newer[:10])), "checkpoint": files.location},
            remedy=f"headwater undo {files.location} --drop-newer",
        )
    change_id = new_change_id("undo")
    steps = tuple(_steps(history, sink, done, next_batch, change_id))
    change = Change(
        change_id,
        "undo",
        f"take back the {done.verb} of {done.change_id}",
        steps,
        fingerprint(files, sink),
        sink.location if sink else None,
        done.to,
        undoes=done.change_id,
    )
    return UndoPlan(files, sink, entry, newer, change)


def _newer_batches(history: History, done: Change, next_batch: int) -> tuple[int, ...]:
    own = set(done.details.get("added", ()))
    return tuple(number for number in history.logs.commits.ids if number >= next_batch and number not in own)


def _steps(
    history: History, sink: Files | None, done: Change, next_batch: int | None, change_id: str
) -> Iterator[Step]:
    cleared: set[tuple[Root, str]] = set()
    if next_batch is not None:
        replan = bool(done.details.get("replan", done.verb == "repartition"))
        for step in cut_steps(history, sink, next_batch, change_id, replan=replan):
            if isinstance(step, Move):
                cleared.add((step.root, step.source))
                yield step
    for step in done.steps:
        landed = _landed_at(step)
        if landed is not None and landed not in cleared:
            yield set_aside(change_id, *landed)
    for step in reversed(done.steps):
        match step:
            case Move() if not step.comes_from_scratch:
                yield Move(step.root, step.target, step.source)
            case MoveFence():
                yield MoveFence(step.target, step.query_id, step.before, step.batch_id)


def _landed_at(step: Step) -> tuple[Root, str] | None:
    """Where a step put something that was not there before."""
    if isinstance(step, Put):
        return step.root, step.path
    return (step.root, step.target) if isinstance(step, Move) and step.comes_from_scratch else None
