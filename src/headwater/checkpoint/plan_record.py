"""What the state of a query means, as each run records it in ``_headwater/plans.json``.

Spark accepts code that gives the same state another meaning, such as windows of another length, and no file of its own
shows it. The record therefore has the stateful operators of the query in a text form. It has an entry for each time that
they changed, with the first batch that ran with them. A rewind removes the entries of later batches, and its undo brings
them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import PLANS_FILE
from headwater.checkpoint.logtext import json_object
from headwater.core.errors import CheckpointUnreadable

MOST_ENTRIES = 100


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful operator: its kind, and what defines it. ``facts`` has lists of texts under names such as ``keys``."""

    kind: str
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedPlan:
    """The stateful operators with which a query ran from a batch on, root first as Spark numbers them."""

    since_batch: int
    operators: tuple[StatefulOperator, ...]
    spark_version: str = ""
    recorded_at: str = ""
    accepted: tuple[str, ...] = ()
    """The changes of meaning that the user accepted with this run."""


def read_plans(files: FileTree) -> tuple[RecordedPlan, ...]:
    """Return the recorded plans, oldest record first; empty if there are none or the file is corrupt."""
    try:
        value = json_object(files.read(PLANS_FILE).decode("utf-8", "replace"), PLANS_FILE)
        return tuple(_plan(one) for one in value["plans"])
    except (OSError, CheckpointUnreadable, KeyError, TypeError, AttributeError, ValueError):
        return ()


def plan_before(plans: tuple[RecordedPlan, ...], next_batch: int) -> RecordedPlan | None:
    """Return the plan that wrote the state from which a batch starts; None if it is not recorded.

    After a rewind, records of later batches do not count.
    """
    return next((plan for plan in reversed(plans) if plan.since_batch < next_batch), None)


def is_accepted(plans: tuple[RecordedPlan, ...], next_batch: int, operators: tuple[StatefulOperator, ...]) -> bool:
    """Return whether the user accepted these operators for the next batch, in a run that ended before the batch did."""
    last = next((plan for plan in reversed(plans) if plan.since_batch == next_batch), None)
    return last is not None and bool(last.accepted) and last.operators == operators


def write_plan(files: FileTree, plan: RecordedPlan) -> None:
    """Record a plan, unless it is the one that is valid already."""
    plans = read_plans(files)
    if plan.accepted or not _is_valid(plans, plan):
        files.write(PLANS_FILE, plans_with(files, plan))


def plans_with(files: FileTree, plan: RecordedPlan) -> bytes:
    """Return the contents of the record with one more plan."""
    return plans_file([*read_plans(files), plan][-MOST_ENTRIES:])


def plans_until(plans: Sequence[RecordedPlan], next_batch: int) -> list[RecordedPlan]:
    """Return the plans that are left if a batch is the next one. One that was accepted for this batch remains."""
    return [plan for plan in plans if plan.since_batch <= next_batch]


def _is_valid(plans: tuple[RecordedPlan, ...], plan: RecordedPlan) -> bool:
    """Return whether a plan is the one that is valid already at its first batch."""
    valid = next((one for one in reversed(plans) if one.since_batch <= plan.since_batch), None)
    return valid is not None and (valid.operators, valid.spark_version) == (plan.operators, plan.spark_version)


def plans_file(plans: Sequence[RecordedPlan]) -> bytes:
    """Return the contents of ``plans.json``."""
    return json.dumps({"plans": [asdict(one) for one in plans]}, indent=1).encode()


def _plan(value: dict[str, Any]) -> RecordedPlan:
    return RecordedPlan(
        int(value["since_batch"]),
        tuple(_operator(one) for one in value["operators"]),
        str(value.get("spark_version", "")),
        str(value.get("recorded_at", "")),
        tuple(str(text) for text in value.get("accepted", ())),
    )


def _operator(value: dict[str, Any]) -> StatefulOperator:
    facts = {str(name): tuple(str(text) for text in texts) for name, texts in value["facts"].items()}
    return StatefulOperator(str(value["kind"]), facts)
