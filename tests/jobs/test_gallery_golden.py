"""Every golden file, run as a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from golden import NAMES, Step, as_in_document, by_source, exact, golden
from headwater.core.errors import JobRefused
from headwater.jobs.loading import gallery_names, load_job
from headwater.testing.scenario import Scenario

STEPPED = [
    name
    for name in NAMES
    if name not in {"order_status", "retail_sales", "user_sessions", "sliding_counts_deduplicated"}
]

Open = Callable[..., Scenario]


def play(
    scenario: Scenario, steps: list[Step], rows: Callable[[Step], list[dict[str, Any]]] = lambda s: s["emits"]
) -> None:
    some_are_late = any("late" in step for step in steps)
    for step in steps:
        scenario.replace_table(**step.get("tables", {}))
        fed = by_source(step["send"])
        done = scenario.feed(*fed.pop("", ()), **fed).emits(*rows(step))
        assert exact(done.emitted) == exact(rows(step))
        if some_are_late:
            done.drops(len(step.get("late", [])))
        if "watermark_after" in step:
            done.moves_watermark_to(step["watermark_after"])
        if "table" in step:
            done.has_table(*step["table"])
        if "state" in step:
            # Only weekly_totals.json has last_shopped, for which its document has another name and date format.
            done.holds(*(as_in_document(row) if "last_shopped" in row else row for row in step["state"]))
        if "batch" in step:
            assert done.batch == step["batch"] + 1, "the data batch, and the batch without data that follows it"


def test_every_job_has_a_golden_file() -> None:
    """The golden files cover exactly the jobs of the gallery."""
    assert {golden(name)["job"] for name in NAMES} == set(gallery_names())


@pytest.mark.parametrize("name", STEPPED)
def test_golden_steps(scenario: Open, name: str) -> None:
    """Each step emits, drops, stores and advances the watermark exactly as in its golden file."""
    expected = golden(name)
    start_empty, tables = name == "visits_windows_counter", expected.get("tables")
    play(scenario(load_job(expected["job"]), start_empty=start_empty, tables=tables), expected["steps"])


@pytest.mark.parametrize("form", ["session_window", "transform_with_state", "pandas"])
def test_golden_sessions(scenario: Open, form: str) -> None:
    """All three forms of user-sessions emit the golden sessions."""
    play(scenario(load_job("user-sessions"), settings={"form": form}), golden("user_sessions")["steps"])


@pytest.mark.parametrize("form", ["built_in", "pandas"])
def test_golden_totals_in_other_forms(scenario: Open, form: str) -> None:
    """Spark's built-in sum and applyInPandasWithState emit the golden totals and keep them in their state."""
    play(scenario(load_job("running-totals"), settings={"form": form}), golden("running_totals")["steps"])


def test_golden_deduplicated_counts(scenario: Open) -> None:
    """Duplicates do not count, within a batch and across batches. Each batch of a step emits the same table."""
    expected = golden("sliding_counts_deduplicated")
    s = scenario(load_job(expected["job"]), settings=expected["settings"])
    play(s, expected["steps"], lambda step: step["emits"] * step["batches"])


def test_golden_sales(scenario: Open) -> None:
    """The same files result in one running total, and in a total per window of event time."""
    steps = golden("retail_sales")["steps"]
    job = load_job("retail-sales")
    play(scenario(job), steps, lambda step: step["windows"])
    play(scenario(job, mode="complete", settings={"per": "total"}), steps, lambda step: [{"total": step["total"]}])


def test_golden_output_modes(scenario: Open) -> None:
    """Complete and update mode emit the orders per status, append mode the orders themselves."""
    expected, job = golden("order_status"), load_job("order-status")
    play(scenario(job, mode="complete"), expected["complete"])
    play(scenario(job, mode="update"), expected["update"])
    play(scenario(job, mode="append", settings={"aggregate": False}), expected["append_without_aggregation"])


@pytest.mark.parametrize(
    ("mode", "aggregate", "reason", "rejected"),
    [
        ("append", True, "cannot run in append mode: its aggregation has no watermark", 0),
        ("complete", False, "cannot run in complete mode: it has no aggregation", 1),
    ],
)
def test_golden_refusals(scenario: Open, mode: str, aggregate: bool, reason: str, rejected: int) -> None:
    """Modes that contradict the query are refused before it starts."""
    expected = ["append with the aggregation and no watermark", "complete without an aggregation"]
    assert golden("order_status")["rejected_before_start"][rejected] == expected[rejected]
    with pytest.raises(JobRefused, match=reason):
        scenario(load_job("order-status"), mode=mode, settings={"aggregate": aggregate})
