"""What happened to a stream between its batches: changes by Headwater, changed code, failures and restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.checkpoint.failures import FailureRecord
from headwater.checkpoint.history import Batch
from headwater.checkpoint.plan_record import RecordedPlan
from headwater.checkpoint.record import ProgressRecord
from headwater.timemachine.journal import Entry

_SLACK_MS = 1_000


@dataclass(frozen=True)
class Mark:
    """An event of the timeline: a word for its pin, and a sentence for its tooltip."""

    label: str
    text: str


def timeline_marks(
    batches: Sequence[Batch],
    progress: Mapping[int, ProgressRecord],
    journal: Sequence[Entry],
    plans: Sequence[RecordedPlan],
    forks: Mapping[int, str],
    failures: Sequence[FailureRecord] = (),
) -> dict[int, list[Mark]]:
    """Return the events by the batch that they precede; a fork by the batch at which it was made."""
    found: dict[int, list[Mark]] = {}
    for number, text in forks.items():
        found.setdefault(number, []).append(Mark("fork", text))
    for entry in journal:
        if (batch := _batch_of(entry)) is not None:
            by = entry.change.details.get("by")
            text = f"{entry.change.verb}: {entry.change.about}" + (f", by {by}" if by else "")
            found.setdefault(batch, []).append(Mark(entry.change.verb, text))
    for before, after in pairwise(plans):
        what = "changed code" if before.operators != after.operators else f"Spark {after.spark_version or 'changed'}"
        found.setdefault(after.since_batch, []).append(Mark("code", f"{what} from this batch on"))
    for failure in failures:
        batch = 0 if failure.batch_id is None else failure.batch_id + 1
        found.setdefault(batch, []).append(Mark("failure", f"failed: {failure.problem}"))
    for one in batches:
        record = progress.get(one.batch_id)
        if record is not None and one.planned_at_ms is not None and record.at_ms > one.planned_at_ms + _SLACK_MS:
            text = "restarted: an earlier run had planned this batch and did not finish it"
            found.setdefault(int(one.batch_id), []).append(Mark("restart", text))
    return found


def _batch_of(entry: Entry) -> int | None:
    """Return the batch before which a change took effect; None for one that belongs to no batch."""
    added = entry.change.details.get("added")
    if isinstance(added, list) and added and isinstance(added[0], int):
        return added[0]
    return None if entry.change.verb != "rewind" else (-1 if entry.change.to is None else entry.change.to) + 1
