"""Why the watermark of a query with several sources does not move: which source holds it back, and since when.

Each ``withWatermark`` of a query has a watermark of its own: the newest event time that it has seen since the query
started, minus its delay. The global watermark is the lowest of them (the policy ``min``, Spark's default) or the highest
(``max``), and it never moves back. With ``min``, a source that delivers nothing therefore stops it for all.

A progress record of Headwater may contain the watermark of each operator, which decides the question. For other
checkpoints the offset log shows which sources have stopped moving. It does not show event times, nor which sources have
a watermark at all, so that answer is a probable one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.record import OperatorWatermark
from headwater.checkpoint.source_names import UNKNOWN, SourceIdentity
from headwater.checkpoint.source_offsets import offset_value
from headwater.core.text import count
from headwater.core.times import iso_from_ms

POLICY_CONF = "spark.sql.streaming.multipleWatermarkPolicy"
MIN_BATCHES = 2
# How many batches before the shown ones are read to find out since when; each is a request on an object store.
LOOK_BACK, REMOTE_LOOK_BACK = 500, 50

Reason = Literal["idle", "no-rows-yet", "no-newer-events"]
Evidence = Literal["event-times", "offsets"]


@dataclass(frozen=True)
class Holder:
    """A source that holds the watermark back.

    ``since_batch`` is the first batch that the source read nothing in or, if it reads rows, in which its newest event
    time was what it is now. It is None if that was before ``oldest_batch``, the first one that was read.
    """

    source: str | None
    label: str
    reason: Reason
    since_batch: int | None
    oldest_batch: int = field(compare=False)
    column: str | None = None
    newest_event_time_ms: int | None = None

    @property
    def text(self) -> str:
        """A clause such as ``clicks has been idle since batch 41``."""
        since = f"batch {self.since_batch}"
        if self.since_batch is None:
            since = f"before batch {self.oldest_batch}"
        match self.reason:
            case "idle":
                return f"{self.label} has been idle since {since}"
            case "no-rows-yet":
                return f"{self.label} has read no rows since the query started in {since}"
            case _ if self.newest_event_time_ms is not None:
                newest = iso_from_ms(self.newest_event_time_ms)
                return f"the newest event time of {self.label} has been {newest} since {since}"
            case _:
                return f"the input of {self.label} contains no newer event times"


@dataclass(frozen=True)
class WatermarkHold:
    """A watermark that has not moved for several batches although rows were read, and why.

    ``evidence`` is ``event-times`` if the answer is certain, and ``offsets`` if it is probable.
    """

    watermark_ms: int | None
    since_batch: int
    batches: int
    policy: str
    evidence: Evidence
    held_by: tuple[Holder, ...]

    @property
    def cause(self) -> str:
        """Why the watermark does not move, as a clause that follows "because"."""
        return " and ".join(holder.text for holder in self.held_by)

    def __str__(self) -> str:
        """Return one sentence without a full stop."""
        unchanged = f"watermark unchanged since batch {self.since_batch}"
        if self.watermark_ms is None:
            unchanged = f"no watermark after {count(self.batches, 'batch')}"
        return f"{unchanged}{self.because}"

    @property
    def because(self) -> str:
        """The rest of the sentence: the cause, how certain it is, and the policy."""
        probably = "probably " if self.evidence == "offsets" else ""
        which = "fastest" if self.policy == "max" else "slowest"
        return f", {probably}because {self.cause} (policy {self.policy}: the {which} source determines it)"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "watermark": None if self.watermark_ms is None else iso_from_ms(self.watermark_ms),
            "since_batch": self.since_batch,
            "batches": self.batches,
            "policy": self.policy,
            "evidence": self.evidence,
            "held_by": [
                {
                    "source": holder.source,
                    "label": holder.label,
                    "reason": holder.reason,
                    "since_batch": holder.since_batch,
                    "column": holder.column,
                    "newest_event_time": None
                    if holder.newest_event_time_ms is None
                    else iso_from_ms(holder.newest_event_time_ms),
                }
                for holder in self.held_by
            ],
            "text": str(self),
        }


def watermark_hold(logs: CheckpointLogs, at: int) -> WatermarkHold | None:
    """Return why the watermark did not move as of a batch; None if it did, or if no source can be named."""
    return watermark_holds(logs, [at]).get(at)


def watermark_holds(logs: CheckpointLogs, batch_ids: Iterable[int]) -> dict[int, WatermarkHold]:
    """Return the holds as of each of these batches."""
    wanted = set(batch_ids)
    if not wanted or len(logs.identities) < 2:
        return {}
    labels = {source: _label(identity) for source, identity in logs.identities.items()}
    run = _Run(labels)
    found = {}
    for step in _steps(logs, _first_needed(logs, min(wanted), set(labels)), max(wanted)):
        hold = run.add(step)
        if hold is not None and step.batch_id in wanted:
            found[step.batch_id] = hold
    return found


def _label(identity: SourceIdentity) -> str:
    known = identity.traits.kind != UNKNOWN
    return identity.name or (f"{identity.label} ({identity.description})" if known else identity.label)


@dataclass(frozen=True)
class _Step:
    """A batch, reduced to what moves a watermark. ``moved`` are the sources that it read something from."""

    batch_id: int
    watermark_ms: int
    next_watermark_ms: int | None
    moved: frozenset[str]
    policy: str
    operators: tuple[OperatorWatermark, ...]
    has_event_times: bool


def _first_needed(logs: CheckpointLogs, shown: int, unmoved: set[str]) -> int:
    """Return the batch from which the logs show when each source last moved, and when the watermark did."""
    if logs.commits.latest is not None:
        shown = min(shown, logs.commits.latest)  # a planned batch has moved nothing yet
    limit = LOOK_BACK if logs.files.is_local else REMOTE_LOOK_BACK
    earlier = [number for number in reversed(logs.offsets.ids) if number <= shown][:limit]
    newest = logs.offsets.get(earlier[0]) if earlier else None
    watermark_moved = False
    for number, before in pairwise(earlier):
        entry, previous = logs.offsets.get(number), logs.offsets.get(before)
        if entry is None or previous is None or newest is None:
            continue
        if watermark_moved and not unmoved:
            return number
        unmoved -= _moved(previous, entry)
        watermark_moved |= previous.watermark_ms != newest.watermark_ms
    return earlier[-1] if earlier else shown


def _steps(logs: CheckpointLogs, first: int, last: int) -> Iterator[_Step]:
    previous: OffsetEntry | None = None
    for number in logs.offsets.ids:
        entry = logs.offsets.get(number) if first - 1 <= number <= last else None
        if entry is None:
            continue
        moved = _moved(previous, entry) if previous is not None or number == 0 else frozenset[str]()
        previous = entry
        if number < first:
            continue
        commit, following, record = logs.commits.get(number), logs.offsets.get(number + 1), logs.record_of(number)
        after = commit.next_watermark_ms if commit else None
        if after is None and following is not None:
            after = following.watermark_ms
        yield _Step(
            number,
            entry.watermark_ms or 0,
            after,
            moved,
            entry.conf.get(POLICY_CONF, "min"),
            record.watermarks if record else (),
            record is not None and record.event_time_max_ms is not None,
        )


def _moved(before: OffsetEntry | None, after: OffsetEntry) -> frozenset[str]:
    earlier = {source.name: source.text for source in before.sources} if before else {}
    return frozenset(source.name for source in after.sources if _differ(earlier.get(source.name), source.text))


def _differ(before: str | None, after: str | None) -> bool:
    return before != after and offset_value(before) != offset_value(after)


@dataclass
class _Run:
    """The newest consecutive batches with one watermark, and what each source did before and in them."""

    labels: Mapping[str, str]
    oldest: int | None = None
    watermark_ms: int | None = None
    since: int = 0
    batches: int = 0
    moved: set[str] = field(default_factory=set)
    last_moved: dict[str, int] = field(default_factory=dict)
    operators: dict[tuple[str | None, str], tuple[int | None, int]] = field(default_factory=dict)
    has_watermark: bool = False
    hold: WatermarkHold | None = None

    def add(self, step: _Step) -> WatermarkHold | None:
        """Return the hold as of this batch."""
        if self.oldest is None:
            self.oldest = step.batch_id
        if step.watermark_ms != self.watermark_ms:
            self.watermark_ms, self.since, self.batches, self.hold = step.watermark_ms, step.batch_id, 0, None
            self.moved.clear()
        self.has_watermark |= bool(step.watermark_ms or step.operators or step.has_event_times)
        self.batches += 1
        self.moved |= step.moved
        self.last_moved |= dict.fromkeys(step.moved, step.batch_id)
        for operator in step.operators:
            place = (operator.source, operator.column)
            if place not in self.operators or self.operators[place][0] != operator.max_event_time_ms:
                self.operators[place] = (operator.max_event_time_ms, step.batch_id)
        if (
            step.next_watermark_ms is not None
        ):  # otherwise the batch is not finished, and the last answer is still valid
            self.hold = self._explain(step)
        return self.hold

    def _explain(self, step: _Step) -> WatermarkHold | None:
        if step.next_watermark_ms != step.watermark_ms or self.batches < MIN_BATCHES:
            return None
        if not self.moved or not self.has_watermark:
            return None
        by_event_times = self._by_event_times(step)
        holders = self._by_offsets(step.policy) if by_event_times is None else by_event_times
        if not holders:
            return None
        return WatermarkHold(
            step.watermark_ms or None,
            self.since,
            self.batches,
            step.policy,
            "offsets" if by_event_times is None else "event-times",
            tuple(holders),
        )

    def _by_event_times(self, step: _Step) -> list[Holder] | None:
        """Return the operators that determine the watermark; None if their watermarks are unknown."""
        if not step.operators:
            return None
        choose = max if step.policy == "max" else min
        chosen = choose(operator.watermark_ms or 0 for operator in step.operators)
        if chosen > step.watermark_ms:
            return []  # read while the next batch was already moving it
        return [self._holder(operator, step) for operator in step.operators if (operator.watermark_ms or 0) == chosen]

    def _holder(self, operator: OperatorWatermark, step: _Step) -> Holder:
        source = operator.source
        label = self.labels.get(source or "", "a source") if source is not None else f"withWatermark({operator.column})"
        if sum(other.source == source for other in step.operators) > 1 and source is not None:
            label = f"{label} (column {operator.column})"
        event_time_ms, since = self.operators[source, operator.column]
        if source is not None and source not in self.moved:
            return self._idle(source, label, operator.column, event_time_ms)
        reason: Reason = "no-rows-yet" if event_time_ms is None else "no-newer-events"
        known = since if since != self.oldest or since == 0 else None
        return Holder(source, label, reason, known, self.oldest or 0, operator.column, event_time_ms)

    def _by_offsets(self, policy: str) -> list[Holder]:
        idle = [source for source in self.labels if source not in self.moved]
        if not idle or not self.moved:
            return []
        if policy == "max":
            moving = [source for source in self.labels if source in self.moved]
            return [
                Holder(source, self.labels[source], "no-newer-events", self.since, self.oldest or 0)
                for source in moving
            ]
        return [self._idle(source, self.labels[source]) for source in idle]

    def _idle(self, source: str, label: str, column: str | None = None, event_time_ms: int | None = None) -> Holder:
        last = self.last_moved.get(source)
        since = None if last is None else last + 1
        if last is None and self.oldest == 0:
            since = 0
        return Holder(source, label, "idle", since, self.oldest or 0, column, event_time_ms)
