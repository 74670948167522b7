"""Stories: a cell of the matrix and a list of actions, both derived from a seed.

Stories run in groups that share a JVM. Kills of the JVM and outages of services are events of a group: all its stories
meet them at the same place of their lists, with actions of their own.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from soak import attached
from soak.cells import Cell, cell_for_seed, has_format_2
from soak.records import Burst

ACTIONS = 15
GROUP = 36  # stories
RETAINED_BATCHES = (100, 100, 100, 100, 12)
# Interpreted expressions cost less CPU time in batches as small as these.
PROFILES = ("latency", "latency", "latency", "")
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
    """The job runs to the end of its input: at most ``limit`` per batch.

    It runs as a separate process if ``command``, and as a query of an attached program if ``attached``.
    """

    limit: int
    command: bool = False
    attached: bool = False


@dataclass(frozen=True)
class KilledRun:
    """The job is killed some milliseconds after the nth new file of a kind, or when it is the turn of another story."""

    limit: int
    moment: Moment
    nth: int
    delay_ms: int


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
class Seed:
    """A checkpoint seeded with a share of the records, run to the end of the input and checked.

    If ``kill_after_ms``, the JVM is killed that long after the seed began, and the command is repeated.
    """

    share: float
    limit: int
    kill_after_ms: float | None = None


@dataclass(frozen=True)
class Promote:
    """A fork like that of ``Fork`` takes the place of the stream, and the promotion is undone."""

    back: int
    limit: int


@dataclass(frozen=True)
class Repartition:
    """A change of the number of partitions; if ``kill_after_ms``, killed that long after it began."""

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
    """The job runs while the services of its group restart: after a crash if ``crash``, else after a clean stop."""

    crash: bool
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
    | Seed
    | Promote
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
    """``retained_batches`` is Spark's ``minBatchesToRetain``, and ``profile`` an option of ``headwater run`` or empty."""

    seed: int
    cell: Cell
    retained_batches: int
    actions: tuple[Action, ...]
    profile: str


@dataclass(frozen=True)
class Kill:
    """The JVM is killed when ``quorum`` of the stories have reached their moment; or only its Python process."""

    quorum: float
    python_only: bool


@dataclass(frozen=True)
class ServiceRestart:
    """Kafka and PostgreSQL restart."""

    crash: bool


Event: TypeAlias = Kill | ServiceRestart


def events_of_group(group: int, length: int = ACTIONS) -> dict[int, Event]:
    """Return the events of a group by their place in the lists of actions: two kills, and mostly a restart."""
    rng = random.Random(f"group {group}")
    spaced = range(3, length - 1, 2)  # each follows a feed
    places = rng.sample(spaced, 3)
    events: dict[int, Event] = {place: Kill(rng.random() * 0.6, rng.random() < 0.25) for place in places[:2]}
    if rng.random() < 0.8:
        events[places[2]] = ServiceRestart(crash=rng.random() < 0.6)
    return events


def generate_story(seed: int, spark: str, length: int = ACTIONS) -> Story:
    """Return the story of a seed on a version of Spark, always the same for the same seed."""
    rng = random.Random(seed)
    cell = cell_for_seed(seed, spark)
    generator = _ActionGenerator(rng, cell, may_change_format=has_format_2(spark))
    events = events_of_group(seed // GROUP, length)
    actions: list[Action] = [generator.feed(), generator.run()]
    for place in range(2, length - 1):
        if place in events:
            actions.append(generator.meet(events[place]))
        elif place + 1 in events:
            actions.append(generator.feed())  # without new input, a run would end before it can be killed
        else:
            actions.append(generator.next(actions[-1]))
    actions.append(generator.run())
    return Story(seed, cell, rng.choice(RETAINED_BATCHES), tuple(actions), rng.choice(PROFILES))


def describe_action(action: Action) -> str:
    """Return the action with its parameters on one line."""
    parameters = asdict(action)
    burst = parameters.pop("burst", {})
    return " ".join([type(action).__name__, *(f"{key}={value}" for key, value in {**burst, **parameters}.items())])


class _ActionGenerator:
    """Chooses the next action. Every feed advances the clock of the generated records."""

    def __init__(self, rng: random.Random, cell: Cell, *, may_change_format: bool) -> None:
        self._rng, self._cell, self._may_change_format = rng, cell, may_change_format
        self._minute, self._has_kept = 0, False
        self._next: list[Action] = []

    def next(self, last: Action) -> Action:
        if self._next:
            return self._next.pop()
        if isinstance(last, Rewind | RewindToPoint | Undo) and self._rng.random() < 0.5:
            return self._rng.choice([self.run, self._undo])()
        choices: list[tuple[int, Any]] = [
            (6, self.feed),
            (8, self.run),
            (16, self._rewind),
            (7, self._undo),
            (5, self._fork),
            (4, self._promote),
            (4 if self._cell.source == "kafka" else 0, self._seed),
            (6, self._repartition),
            (6, self._edit),
            (5, self._migrate),
            (3, Compact),
            (2, Repair),
            (6, self._keep),
            (24 if self._has_kept else 0, self._rewind_to_point),
            (6, self._stopped_run),
            (4, Move),
            (5, self._inspect),
            (8 if self._cell.job.table else 0, self._replace_table),
        ]
        weights, factories = [weight for weight, _ in choices], [factory for _, factory in choices]
        action: Action = self._rng.choices(factories, weights)[0]()
        if isinstance(action, Run | StoppedRun | Fork | Seed | Promote) and not isinstance(
            last, Feed | Rewind | RewindToPoint | Undo | Repartition
        ):
            self._next.append(action)  # it gets new input
            return self.feed()
        return action

    def meet(self, event: Event) -> Action:
        """Return what the story does at an event of its group."""
        if isinstance(event, ServiceRestart):
            return Outage(event.crash, self._limit())
        chance = self._rng.random()
        if chance < 0.1:
            return Repartition(self._rng.randrange(1, 6), self._rng.randrange(1500))
        if chance < 0.2 and self._cell.source == "kafka":
            return self._seed(self._rng.randrange(3000))
        return self._killed_run()

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
        chance = self._rng.random()
        # A program that reads files has a schema of its own, which a record of its source cannot have.
        may_be_attached = self._cell.source == "kafka" and self._cell.sink in attached.SINKS
        return Run(self._limit(), command=chance < 0.02, attached=chance > 0.85 and may_be_attached)

    def _killed_run(self) -> KilledRun:
        moment = self._rng.choice(MOMENTS)
        delay = self._rng.choice([0, 1, 3, 10, 30, 100]) if moment != "any" else self._rng.randrange(1500)
        nth = self._rng.randrange(1, 4)
        return KilledRun(self._limit(), moment, nth, delay)

    def _rewind(self) -> Rewind:
        back = None if self._rng.random() < 0.08 else self._rng.randrange(1, 7)
        return Rewind(back, self._rng.random() < 0.5, *self._kill_and_ending())

    def _keep(self) -> Keep:
        self._has_kept = True
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

    def _seed(self, kill_after_ms: float | None = None) -> Seed:
        return Seed(self._rng.choice([0.3, 0.6, 0.9, 1.0]), self._limit(), kill_after_ms)

    def _promote(self) -> Promote:
        return Promote(self._rng.randrange(4), self._limit())

    def _repartition(self) -> Repartition:
        return Repartition(self._rng.randrange(1, 6))

    def _edit(self) -> Edit:
        then = self._rng.choice([None, Rewind(back=1, replan=True), self._migrate()])
        return Edit(self._rng.randrange(1000), *self._kill_and_ending(), then)

    def _migrate(self) -> Migrate:
        store = self._rng.choice(["hdfs", "rocksdb", "rocksdb-changelog"])
        to_format_2 = store != "hdfs" and self._rng.random() < 0.4 and self._may_change_format
        return Migrate(store, 2 if to_format_2 else None, *self._kill_and_ending())

    def _inspect(self) -> Inspect:
        return Inspect(self._rng.choice(["state", "spark-state", "late", "diff"]))

    def _limit(self) -> int:
        """Return the most files or records of a batch."""
        return self._rng.randrange(1, 4) if self._cell.source == "files" else self._rng.choice([25, 40, 80, 200])
