"""What happened to a stream between its batches: runs and what they deployed, failures, and changes by Headwater."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.checkpoint.failures import FailureRecord
from headwater.checkpoint.history import Batch
from headwater.checkpoint.plan_record import RecordedPlan
from headwater.checkpoint.record import ProgressRecord
from headwater.checkpoint.runs import RunRecord, deployed_changes
from headwater.timemachine.journal import Entry
from headwater.views.formatting import format_time
from headwater.views.page_points import rewind_times_ms

_SLACK_MS = 1_000
VERBS = frozenset(("rewind", "undo", "repair", "edit", "import", "migrate", "repartition", "promote", "move", "seed"))
"""The verbs of changes. The journal of a checkpoint may name any other."""


@dataclass(frozen=True)
class Mark:
    """An event of the timeline: a word for its pin, a sentence for its tooltip, and when it happened, if that is known."""

    label: str
    text: str
    at_ms: int | None = None

    def __str__(self) -> str:
        return self.text if self.at_ms is None else f"{format_time(self.at_ms)} {self.text}"


@dataclass(frozen=True)
class Events:
    """What is recorded about a stream besides its batches."""

    journal: Sequence[Entry] = ()
    plans: Sequence[RecordedPlan] = ()
    failures: Sequence[FailureRecord] = ()
    runs: Sequence[RunRecord] = ()
    forks: Sequence[tuple[int, str, int | None]] = ()
    """The batch at which each fork was made, a text about it, and when it was made."""


def timeline_marks(
    batches: Sequence[Batch], progress: Mapping[int, ProgressRecord], events: Events
) -> dict[int, list[Mark]]:
    """Return the events by the batch that they precede, in order; a fork by the batch at which it was made."""
    found: dict[int, list[Mark]] = {}
    rewound_at_ms = rewind_times_ms(events.journal)
    for batch, mark in (*_changes(events), *_code(events.plans), *_unfinished(batches, progress), *_runs(events)):
        found.setdefault(batch, []).append(_in_its_history(mark, rewound_at_ms.get(batch)))
    return {batch: sorted(marks, key=lambda mark: mark.at_ms or 0) for batch, marks in found.items()}


def _in_its_history(mark: Mark, rewound_at_ms: int | None) -> Mark:
    """Say of a failure or a run that the batch which it preceded was rewound since."""
    is_rewound = mark.at_ms is not None and rewound_at_ms is not None and mark.at_ms < rewound_at_ms
    if not is_rewound or mark.label not in ("failure", "restart", "deploy", "start"):
        return mark
    return Mark(mark.label, f"{mark.text} (before the rewind)", mark.at_ms)


def _changes(events: Events) -> Iterator[tuple[int, Mark]]:
    for batch, text, at_ms in events.forks:
        yield batch, Mark("fork", text, at_ms)
    for entry in events.journal:
        if (number := _batch_of(entry)) is not None:
            by = entry.change.details.get("by")
            text = f"{entry.change.verb}: {entry.change.about}" + (f", by {by}" if by else "")
            label = entry.change.verb if entry.change.verb in VERBS else "change"
            yield number, Mark(label, text, entry.done_at_ms)


def _code(plans: Sequence[RecordedPlan]) -> Iterator[tuple[int, Mark]]:
    for before, after in pairwise(plans):
        is_code = before.operators != after.operators
        what = "changed stateful operators" if is_code else f"Spark {after.spark_version or 'changed'}"
        yield after.since_batch, Mark("code", f"{what} from this batch on")


def _unfinished(batches: Sequence[Batch], progress: Mapping[int, ProgressRecord]) -> Iterator[tuple[int, Mark]]:
    """Yield the batches that one run planned and another one finished, which show a restart without a record of it."""
    for batch in batches:
        record = progress.get(batch.batch_id)
        if record is not None and batch.planned_at_ms is not None and record.at_ms > batch.planned_at_ms + _SLACK_MS:
            text = "restarted: an earlier run had planned this batch and did not finish it"
            yield int(batch.batch_id), Mark("restart", text)


def _runs(events: Events) -> Iterator[tuple[int, Mark]]:
    for failure in events.failures:
        batch = 0 if failure.batch_id is None else failure.batch_id + 1
        yield batch, Mark("failure", f"failed: {failure.problem}", failure.at_ms)
    for before, run in zip((None, *events.runs), events.runs, strict=False):
        changes = [] if before is None else deployed_changes(before, run)
        versions = ", ".join(filter(None, [run.shown_version, run.spark and f"Spark {run.spark}"]))
        about = f" ({versions})" if versions else ""
        if before is None:
            mark = Mark("start", f"started{about}", run.at_ms)
        elif changes:
            mark = Mark("deploy", f"deployed: {', '.join(changes)}", run.at_ms)
        else:
            mark = Mark("restart", f"restarted{about}", run.at_ms)
        yield run.next_batch, mark


def _batch_of(entry: Entry) -> int | None:
    """Return the batch before which a change took effect; None for one that belongs to no batch."""
    added = entry.change.details.get("added")
    if isinstance(added, list) and added and isinstance(added[0], int):
        return added[0]
    return None if entry.change.verb != "rewind" else (-1 if entry.change.to is None else entry.change.to) + 1
