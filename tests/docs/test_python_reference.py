"""The Python reference lists the public API."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import headwater
from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.core.finding import Finding
from headwater.migration.migration_plan import MigrationPlan
from headwater.spark.dropped.records import DroppedRecord
from headwater.testing import Crash
from headwater.testing.scenario import Scenario, Step
from headwater.timemachine.bisect import Bisected
from headwater.timemachine.edit_plan import EditPlan
from headwater.timemachine.fork import ForkPlan
from headwater.timemachine.repartition import RepartitionPlan
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.undo import UndoPlan

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text()


def test_every_name_is_there() -> None:
    """Each public name, with each of its fields, methods and defaults, is on the page."""
    for name in headwater.__all__:
        if name == "__version__":
            continue
        kind = getattr(headwater, name)
        assert f"{name}(" in PAGE or f"## {name}\n" in PAGE
        if dataclasses.is_dataclass(kind):
            for field in dataclasses.fields(kind):
                default = field.default if field.default is not dataclasses.MISSING else None
                written = f"{field.name}={default!r}".replace("'", '"')
                assert written in PAGE or field.name in PAGE, f"{name}.{field.name}"


def test_every_field_of_a_batchs_progress_is_there() -> None:
    """The page lists what ``RunningJob.progress`` has."""
    for field in dataclasses.fields(ProgressRecord):
        assert f"`{field.name}`" in PAGE, field.name


def test_every_method_is_there() -> None:
    """Each public method and property of a checkpoint, of what it returns, of a running job and of a scenario is on the page."""
    internal = {"close", "fail", "dropped_lines", "malformed_count", "job"}  # for the plugin itself
    shown_elsewhere = {"stores", "stores_missing", "problem", "change", "sink_files", "writes_table"}
    values = (Batch, Bisected, DroppedRecord, Finding)
    plans = (RewindPlan, EditPlan, MigrationPlan, UndoPlan, ForkPlan, RepartitionPlan)
    for kind in (headwater.Checkpoint, headwater.RunningJob, *values, *plans, Scenario, Step):
        for name, _ in inspect.getmembers(kind):
            if not name.startswith("_") and name not in internal | shown_elsewhere | {"location"}:
                assert name in PAGE, f"{kind.__name__}.{name}"
    for crash in Crash:
        assert str(crash) in PAGE


def test_signatures_are_those_of_the_code() -> None:
    """The page shows the parameters of each method with their names and in their order."""
    methods = [
        (f"`.{name}(", method)
        for kind in (headwater.Checkpoint, headwater.RunningJob)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name != "resolve"
    ]
    for shown, method in [*methods, ("`job.start(", headwater.Job.start)]:
        parameters = list(inspect.signature(method).parameters)[1:]
        line = next(line for line in PAGE.splitlines() if shown in line)
        places = [line.index(parameter) for parameter in parameters]
        assert places == sorted(places), line
