"""Changes of a checkpoint and its file sink, in memory, that end before they are complete."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headwater.timemachine.change import Change
from headwater.timemachine.executor import Executor
from timemachine.crashing import EDGE, Crashed, CrashingDisk, CrashSchedule, Tree, sampled_points
from timemachine.trees import SINK, Contents, as_spark_sees, spark_files

Media = type[CrashingDisk]


@dataclass(frozen=True)
class Place:
    """The trees of a checkpoint and of its file sink, and where the sink is."""

    checkpoint: Contents
    sink: Contents
    sink_location: str = SINK

    @property
    def trees(self) -> tuple[Tree, Tree]:
        return Tree(self.checkpoint), Tree(self.sink, self.sink_location)

    def on(self, medium: Media, schedule: CrashSchedule) -> tuple[CrashingDisk, CrashingDisk]:
        return medium(self.checkpoint, schedule), medium(self.sink, schedule, self.sink_location)

    @property
    def sparks(self) -> tuple[Contents, Contents]:
        return spark_files(self.checkpoint), spark_files(self.sink)

    @property
    def seen(self) -> tuple[Contents, Contents]:
        return as_spark_sees(self.checkpoint), as_spark_sees(self.sink)


@dataclass(frozen=True)
class Verb:
    """A change to a place, and the place before and after it."""

    before: Place
    change: Change
    after: Place

    @classmethod
    def of(cls, before: Place, change: Change) -> Verb:
        return cls(before, change, run_on(before, CrashingDisk, lambda executor: executor.apply(change))[0])


def run_on(place: Place, medium: Media, action, crash_at: int | None = None) -> tuple[Place, int]:
    """Return the place after an action, or after the part of it before a crash; and the points that were passed."""
    schedule = CrashSchedule(crash_at)
    checkpoint_files, sink_files = place.on(medium, schedule)
    with contextlib.suppress(Crashed):
        action(Executor({"checkpoint": checkpoint_files, "sink": sink_files}))
    return replace(place, checkpoint=checkpoint_files.contents, sink=sink_files.contents), schedule.passed


def points_of(medium: Media, start: Place, action, *, every: int = 1, edge: int = EDGE) -> Iterator[Place]:
    """Yield the place after a crash at the points of an action, and last after the complete action."""
    complete, count = run_on(start, medium, action)
    for number in sampled_points(count, every, edge):
        yield run_on(start, medium, action, number)[0]
    yield complete
