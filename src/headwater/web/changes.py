"""The only part of the page that can change a checkpoint. A read-only page never makes one of these."""

from __future__ import annotations

from collections.abc import Callable

from headwater.checkpoint.files import Files
from headwater.checkpoint.job_record import sink_of
from headwater.checkpoint.lease import refuse_if_held
from headwater.checkpoint.places import open_files
from headwater.timemachine.executor import refuse_if_pending
from headwater.timemachine.kafka_offsets import earliest_offsets
from headwater.timemachine.rewind import RewindPlan, plan_rewind, refuse_if_input_gone
from headwater.timemachine.undo import UndoPlan, find_undo, plan_undo
from headwater.views.plans import rewind_lines, undo_lines

Progress = Callable[[int, int], None]


class Rewinding:
    """A rewind that somebody has been shown and may confirm by typing ``words``."""

    def __init__(self, files: Files, to: int) -> None:
        refuse_if_held(files, f"cannot rewind to batch {to}")
        refuse_if_pending(files)
        self.plan: RewindPlan = plan_rewind(files, to=to, sink=sink_of(files), ask_kafka=earliest_offsets)
        refuse_if_input_gone(self.plan)
        self.words = f"rewind to {to}"
        self.title = f"Rewind to batch {to}"
        self.lines = rewind_lines(self.plan)

    def apply(self, progress: Progress) -> str:
        self.plan.apply(progress=progress)
        return f"Done: batch {self.plan.next_batch} runs next."


class Undoing:
    """The same for taking back the last change."""

    def __init__(self, files: Files) -> None:
        refuse_if_held(files, "cannot undo")
        refuse_if_pending(files)
        recorded = find_undo(files).change.sink
        self.plan: UndoPlan = plan_undo(files, sink=open_files(recorded) if recorded else sink_of(files))
        self.words = "undo"
        self.title = f"Undo the last {self.plan.undoes.change.verb}"
        self.lines = undo_lines(self.plan)

    def apply(self, progress: Progress) -> str:
        self.plan.apply(progress=progress)
        return "Done: the checkpoint is as it was before."
