"""Stories: a cell of the matrix and a list of actions, both derived from a seed."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from soak.cells import Cell, cell_for_seed
from soak.records import Burst

ACTIONS = 15
RETAINED_BATCHES = (100, 100, 100, 100, 12)
Moment: TypeAlias = Literal["any", "offsets", "commits", "state", "sources", "sink"]
MOMENTS: tuple[Moment, ...] = ("any", "offsets", "commits", "state", "sources", "sink")


@dataclass(frozen=True)
class Feed:
    """Records arrive in ``parts`` files, or spread over the partitions of the topic; at ``only`` one source, or at all."""

    burst: Burst
    parts: int = 1
    only: str = ""


@dataclass(frozen=True)
class ReplaceTable:
    """The static table gets new rows, while no job runs."""

    seed: int


@dataclass(frozen=True)
class Run:
    """The job runs to the end of its input: at most ``limit`` per batch, as a separate process if ``command``."""

    limit: int
    command: bool = False


@dataclass(frozen=True)
class KilledRun:
    """The job is killed some milliseconds after the nth new file of a kind; ``python_only`` kills only its Python process."""

    limit: int
    moment: Moment
    nth: int
    delay_ms: int
    python_only: bool = False


@dataclass(frozen=True)
class Rewind:
    """A rewind ``back`` batches, or to the start; if ``kill_after_ms``, killed that long after the change began."""

    back: int | None
    replan: bool
    kill_after_ms: float | None = None
    ending: Literal["resume", "abort", "repair"] = "resume"


@dataclass(frozen=True)
class Undo:
    drop_newer: bool
    kill_after_ms: float | None = None
    ending: Literal["resume", "abort", "repair"] = "resume"


@dataclass(frozen=True)
class Fork:
    """A fork from ``back`` batches ago, run to the end of the input and checked."""

    back: int
    limit: int


@dataclass(frozen=True)
class Repartition:
    partitions: int
    kill_after_ms: float | None = None


@dataclass(frozen=True)
class Edit:
    """A key is removed from the state, and the edit undone; if ``kill_after_ms``, killed that long after it began.

    ``then`` is a change of the edited checkpoint, which is undone before the edit is.
    """

    row: int
    kill_after_ms: float | None = None
    ending: Literal["resume", "abort", "repair"] = "resume"
    then: Rewind | Migrate | None = None


@dataclass(frozen=True)
class Migrate:
    """The state is kept in another store from then on; if ``kill_after_ms``, killed that long after it began."""

    store: Literal["hdfs", "rocksdb", "rocksdb-changelog"]
    checkpoint_format: Literal[2] | None = None
    kill_after_ms: float | None = None
    ending: Literal["resume", "abort", "repair"] = "resume"


@dataclass(frozen=True)
class Compact:
    """``compact``: the quarantine is emptied."""


@dataclass(frozen=True)
class Repair:
    """``fsck --repair``."""


@dataclass(frozen=True)
class Keep:
    """A restore point of the batch ``back`` batches ago."""

    back: int


@dataclass(frozen=True)
class RewindToPoint:
    """A rewind to one of the restore points; ``which`` counts from the newest."""

    which: int


@dataclass(frozen=True)
class StoppedRun:
    """The job is asked to stop some milliseconds after its first new batch; with ``now``, without finishing the batch."""

    limit: int
    delay_ms: int
    now: bool


@dataclass(frozen=True)
class Move:
    """The checkpoint moves to another folder, with its input and its sink if they are files."""


@dataclass(frozen=True)
class Outage:
    """A service restarts: after a crash while the job runs if ``during``, else after a clean stop between runs."""

    service: Literal["broker", "postgresql"]
    during: bool
    limit: int = 40


@dataclass(frozen=True)
class Inspect:
    """A read of the checkpoint, compared with the oracle."""

    what: Literal["state", "spark-state", "late", "diff"]


Action: TypeAlias = (
    Feed
    | ReplaceTable
    | Run
    | KilledRun
    | StoppedRun
    | Rewind
    | Keep
    | RewindToPoint
    | Undo
    | Fork
    | Move
    | Repartition
    | Edit
    | Migrate
    | Compact
    | Repair
    | Outage
    | Inspect
)


@dataclass(frozen=True)
class Story:
    """``retained_batches`` is Spark's ``minBatchesToRetain``."""

    seed: int
    cell: Cell
    retained_batches: int
    actions: tuple[Action, ...]


def generate_story(seed: int, length: int = ACTIONS) -> Story:
    """Return the story of a seed, always the same for the same seed."""
    rng = random.Random(seed)
    cell = cell_for_seed(seed)
    generator = _ActionGenerator(rng, cell)
    actions: list[Action] = [generator.feed(), generator.run()]
    while len(actions) < length - 1:
        actions.append(generator.next(actions[-1]))
    actions.append(generator.run())
    return Story(seed, cell, rng.choice(RETAINED_BATCHES), tuple(actions))


def describe_action(action: Action) -> str:
    """Return the action with its parameters on one line."""
    parameters = asdict(action)
    burst = parameters.pop("burst", {})
    return " ".join([type(action).__name__, *(f"{key}={value}" for key, value in {**burst, **parameters}.items())])


class _ActionGenerator:
    """Chooses the next action. Every feed advances the clock of the generated records."""

    def __init__(self, rng: random.Random, cell: Cell) -> None:
        self._rng, self._cell = rng, cell
        self._minute = 0
        self._next: list[Action] = []

    def next(self, last: Action) -> Action:
        if self._next:
            return self._next.pop()
        if isinstance(last, Rewind | RewindToPoint | Undo) and self._rng.random() < 0.5:
            return self._rng.choice([self.run, self._killed_run, self._undo])()
        choices: list[tuple[int, Any]] = [
            (6, self.feed),
            (8, self.run),
            (20, self._killed_run),
            (16, self._rewind),
            (7, self._undo),
            (5, self._fork),
            (6, self._repartition),
            (6, self._edit),
            (5, self._migrate),
            (3, Compact),
            (2, Repair),
            (6, self._keep),
            (6, self._rewind_to_point),
            (6, self._stopped_run),
            (4, Move),
            (5, self._inspect),
            (4 if self._services() else 0, self._outage),
            (8 if self._cell.job.table else 0, self._replace_table),
        ]
        weights, factories = [weight for weight, _ in choices], [factory for _, factory in choices]
        action: Action = self._rng.choices(factories, weights)[0]()
        if isinstance(action, Run | KilledRun | StoppedRun | Fork) and not isinstance(
            last, Feed | Rewind | RewindToPoint | Undo | Repartition
        ):
            self._next.append(action)  # without new input, a run would end before it can be killed
            return self.feed()
        return action

    def feed(self) -> Feed:
        kind = self._rng.choices(["plain", "late", "malformed"], [6, 2, 2])[0]
        late = {"plain": 0.02, "late": 0.6, "malformed": 0.0}[kind]
        malformed = {"plain": 0.03, "late": 0.0, "malformed": 0.5}[kind]
        self._minute += self._rng.choice(self._cell.job.steps)
        count = self._rng.randrange(20, 120)
        burst = Burst(self._rng.randrange(2**31), self._minute, count, late, malformed)
        sources = list(self._cell.job.sources)
        only = self._rng.choice(sources) if len(sources) > 1 and self._rng.random() < 0.3 else ""
        return Feed(burst, self._rng.randrange(1, 5), only)

    def _replace_table(self) -> ReplaceTable:
        return ReplaceTable(self._rng.randrange(2**31))

    def run(self) -> Run:
        return Run(self._limit(), self._rng.random() < 0.06)

    def _killed_run(self) -> KilledRun:
        moment = self._rng.choice(MOMENTS)
        delay = self._rng.choice([0, 1, 3, 10, 30, 100]) if moment != "any" else self._rng.randrange(1500)
        nth = self._rng.randrange(1, 4)
        return KilledRun(self._limit(), moment, nth, delay, python_only=self._rng.random() < 0.25)

    def _rewind(self) -> Rewind:
        back = None if self._rng.random() < 0.08 else self._rng.randrange(1, 7)
        return Rewind(back, self._rng.random() < 0.5, *self._kill_and_ending())

    def _keep(self) -> Keep:
        return Keep(self._rng.choice([0, 0, 1, 3]))

    def _rewind_to_point(self) -> RewindToPoint:
        return RewindToPoint(self._rng.randrange(3))

    def _stopped_run(self) -> StoppedRun:
        return StoppedRun(self._limit(), self._rng.choice([0, 10, 100, 400]), self._rng.random() < 0.3)

    def _undo(self) -> Undo:
        return Undo(self._rng.random() < 0.6, *self._kill_and_ending())

    def _kill_and_ending(self) -> tuple[float | None, Any]:
        kill = round(self._rng.random() * 15, 2) if self._rng.random() < 0.4 else None
        return kill, self._rng.choice(["resume", "abort", "repair"])

    def _fork(self) -> Fork:
        return Fork(self._rng.randrange(4), self._limit())

    def _repartition(self) -> Repartition:
        kill = self._rng.randrange(1500) if self._rng.random() < 0.2 else None
        return Repartition(self._rng.randrange(1, 6), kill)

    def _edit(self) -> Edit:
        then = self._rng.choice([None, Rewind(back=1, replan=True), self._migrate()])
        return Edit(self._rng.randrange(1000), *self._kill_and_ending(), then)

    def _migrate(self) -> Migrate:
        store = self._rng.choice(["hdfs", "rocksdb", "rocksdb-changelog"])
        checkpoint_format = 2 if store != "hdfs" and self._rng.random() < 0.4 else None
        return Migrate(store, checkpoint_format, *self._kill_and_ending())

    def _inspect(self) -> Inspect:
        return Inspect(self._rng.choice(["state", "spark-state", "late", "diff"]))

    def _outage(self) -> Outage:
        return Outage(self._rng.choice(self._services()), self._rng.random() < 0.5, self._limit())

    def _services(self) -> list[Any]:
        services = ["broker"] if self._cell.uses_kafka else []
        return [*services, *(["postgresql"] if self._cell.sink == "postgresql" else [])]

    def _limit(self) -> int:
        """Return the most files or records of a batch."""
        return self._rng.randrange(1, 4) if self._cell.source == "files" else self._rng.choice([25, 40, 80, 200])
