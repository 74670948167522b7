"""A story is data: a cell of the matrix and a list of actions, both from a seed and nothing else."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from soak.cells import Cell, cell_of
from soak.records import Burst

ACTIONS = 15
RETAINED = (100, 100, 100, 100, 12)
Moment: TypeAlias = Literal["any", "offsets", "commits", "state", "sources", "sink"]
MOMENTS: tuple[Moment, ...] = ("any", "offsets", "commits", "state", "sources", "sink")


@dataclass(frozen=True)
class Feed:
    """Records arrive, in so many files or shared out over the partitions."""

    burst: Burst
    parts: int = 1


@dataclass(frozen=True)
class Run:
    """The job runs to the end of its input. ``limit`` is how much a batch may take; ``command``: a process of its own."""

    limit: int
    command: bool = False


@dataclass(frozen=True)
class KilledRun:
    """``kill -9`` so many milliseconds after the nth new file of a kind; ``python_only`` leaves the JVM to notice."""

    limit: int
    moment: Moment
    nth: int
    delay_ms: int
    python_only: bool = False


@dataclass(frozen=True)
class Rewind:
    """So many batches back, or to the very start. ``kill_after_ms``: killed so long after the change began."""

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
    """A second checkpoint so many batches back, run to the end of the input and compared."""

    back: int
    limit: int


@dataclass(frozen=True)
class Repartition:
    partitions: int
    kill_after_ms: float | None = None


@dataclass(frozen=True)
class Compact:
    """What rewinds set aside is removed for good."""


@dataclass(frozen=True)
class Repair:
    """``fsck --repair``."""


@dataclass(frozen=True)
class Outage:
    """A service goes away (``kill -9`` or an orderly stop) and comes back; ``during``: while the job runs."""

    service: Literal["broker", "postgresql"]
    during: bool
    limit: int = 40


@dataclass(frozen=True)
class Look:
    """State at every batch, differences, log and dropped records, each compared with the records."""

    at: Literal["state", "spark-state", "late", "diff"]


Action: TypeAlias = Feed | Run | KilledRun | Rewind | Undo | Fork | Repartition | Compact | Repair | Outage | Look


@dataclass(frozen=True)
class Story:
    """``retained_batches`` is Spark's ``minBatchesToRetain``."""

    seed: int
    cell: Cell
    retained_batches: int
    actions: tuple[Action, ...]


def story(seed: int, length: int = ACTIONS) -> Story:
    """The same seed tells the same story."""
    dice = random.Random(seed)
    cell = cell_of(seed)
    teller = _Teller(dice, cell)
    actions: list[Action] = [teller.feed(), teller.run()]
    while len(actions) < length - 1:
        actions.append(teller.next(actions[-1]))
    actions.append(teller.run())
    return Story(seed, cell, dice.choice(RETAINED), tuple(actions))


def as_dict(action: Action) -> dict[str, Any]:
    """For the ledger and for people."""
    return {"do": type(action).__name__, **asdict(action)}


class _Teller:
    """Chooses what happens next. Its clock goes on with every feed."""

    def __init__(self, dice: random.Random, cell: Cell) -> None:
        self._dice, self._cell = dice, cell
        self._minute = 0
        self._next: list[Action] = []

    def next(self, last: Action) -> Action:
        if self._next:
            return self._next.pop()
        if isinstance(last, Rewind | Undo) and self._dice.random() < 0.5:
            return self._dice.choice([self.run, self._killed_run, self._undo])()
        choices: list[tuple[int, Any]] = [
            (6, self.feed),
            (8, self.run),
            (20, self._killed_run),
            (16, self._rewind),
            (7, self._undo),
            (5, self._fork),
            (6, self._repartition),
            (3, Compact),
            (2, Repair),
            (5, self._look),
            (4 if self._services() else 0, self._outage),
        ]
        weights, makers = [weight for weight, _ in choices], [maker for _, maker in choices]
        made: Action = self._dice.choices(makers, weights)[0]()
        if isinstance(made, Run | KilledRun | Fork) and not isinstance(last, Feed | Rewind | Undo | Repartition):
            self._next.append(made)  # a job with nothing to do is seldom at a moment that matters
            return self.feed()
        return made

    def feed(self) -> Feed:
        kind = self._dice.choices(["plain", "late", "malformed"], [6, 2, 2])[0]
        late = {"plain": 0.02, "late": 0.6, "malformed": 0.0}[kind]
        malformed = {"plain": 0.03, "late": 0.0, "malformed": 0.5}[kind]
        self._minute += self._dice.choice([3, 7, 15, 40])
        count = self._dice.randrange(20, 120)
        burst = Burst(self._dice.randrange(2**31), self._minute, count, late, malformed)
        return Feed(burst, self._dice.randrange(1, 5))

    def run(self) -> Run:
        return Run(self._limit(), self._dice.random() < 0.06)

    def _killed_run(self) -> KilledRun:
        moment = self._dice.choice(MOMENTS)
        delay = self._dice.choice([0, 1, 3, 10, 30, 100]) if moment != "any" else self._dice.randrange(1500)
        nth = self._dice.randrange(1, 4)
        return KilledRun(self._limit(), moment, nth, delay, python_only=self._dice.random() < 0.25)

    def _rewind(self) -> Rewind:
        back = None if self._dice.random() < 0.08 else self._dice.randrange(1, 7)
        return Rewind(back, self._dice.random() < 0.5, *self._cut_short())

    def _undo(self) -> Undo:
        return Undo(self._dice.random() < 0.6, *self._cut_short())

    def _cut_short(self) -> tuple[float | None, Any]:
        kill = round(self._dice.random() * 15, 2) if self._dice.random() < 0.4 else None
        return kill, self._dice.choice(["resume", "abort", "repair"])

    def _fork(self) -> Fork:
        return Fork(self._dice.randrange(4), self._limit())

    def _repartition(self) -> Repartition:
        kill = self._dice.randrange(1500) if self._dice.random() < 0.2 else None
        return Repartition(self._dice.randrange(1, 6), kill)

    def _look(self) -> Look:
        return Look(self._dice.choice(["state", "spark-state", "late", "diff"]))

    def _outage(self) -> Outage:
        return Outage(self._dice.choice(self._services()), self._dice.random() < 0.5, self._limit())

    def _services(self) -> list[Any]:
        services = ["broker"] if self._cell.uses_kafka else []
        return [*services, *(["postgresql"] if self._cell.sink == "postgresql" else [])]

    def _limit(self) -> int:
        """Files or records that a batch takes at most."""
        return self._dice.randrange(1, 4) if self._cell.source == "files" else self._dice.choice([25, 40, 80, 200])
