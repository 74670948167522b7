"""What in a job gives something else each time it runs: a replay of such a job means little, and is told so.

Two looks: at the plan, where Spark itself knows which expressions are not deterministic, and at the job's own Python code,
which Spark cannot look into.
"""

from __future__ import annotations

import datetime
import dis
import inspect
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.jobs.endpoints import Console
from headwater.jobs.job import Job
from headwater.spark.internals.plans import analyzed
from headwater.spark.prepared import apply_function, prepare_job

BATCH_TIME = {"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime"}
CLOCKS: tuple[Callable[..., Any], ...] = (
    time.time,
    time.time_ns,
    time.monotonic,
    time.perf_counter,
    datetime.datetime.now,
    datetime.datetime.utcnow,
    datetime.datetime.today,
    datetime.date.today,
    uuid.uuid1,
    uuid.uuid4,
    os.urandom,
)
RANDOM_MODULES = {"random", "secrets", "numpy.random"}
SEEDED = {"Random", "RandomState", "default_rng", "seed"}
RANDOM_NUMBERS = object()
STARTS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST"}
STEPS = {"LOAD_ATTR", "LOAD_METHOD"}


@dataclass(frozen=True)
class UnstableExpression:
    """One such part. With ``recorded`` it is the batch's own time, which Spark records: a replay gives it again."""

    part: str
    recorded: bool = False

    def warning_for(self, job: str) -> str:
        if self.recorded:
            return f"{job} uses {self.part}: a replay gives it the time that is recorded with the batch"
        return f"warning: {job} uses {self.part}, which may give something else each time"


def unstable_expressions(spark: SparkSession, job: Job) -> list[UnstableExpression]:
    """In the order of the plan, Python code last; none for a job that gives the same rows for the same records."""
    frame = prepare_job(spark, replace(job, writes=Console())).frame
    if job.per_batch:
        frame = apply_function(job, spark.createDataFrame([], frame.schema))
    found = [*_in_plan(frame, clock_is_recorded=not job.per_batch), *map(UnstableExpression, in_code(job.transform))]
    return list(dict.fromkeys(found))


def _in_plan(frame: DataFrame, *, clock_is_recorded: bool) -> Iterator[UnstableExpression]:
    for node in analyzed(frame).nodes():
        for expression in node.expressions:
            for part in expression.parts():
                if part.class_name in BATCH_TIME:
                    yield UnstableExpression(part.sql, recorded=clock_is_recorded)
            if not expression.is_deterministic:
                yield UnstableExpression(expression.sql)


def in_code(function: Callable[..., Any]) -> list[str]:
    """Clocks and dice that a function uses, or what it calls of its own package, as they are written there."""
    found: list[str] = []
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if inspect.isclass(one):
            waiting += [held for base in one.__mro__ if _is_near(base, function) for held in vars(base).values()]
        elif isinstance(one, FunctionType):
            closed = inspect.getclosurevars(one).nonlocals
            waiting += [value for value in closed.values() if _is_near(value, function)]
            for chain, value in _named(one.__code__, {**one.__globals__, **closed}):
                if value is RANDOM_NUMBERS or any(value == clock for clock in CLOCKS):
                    found.append(".".join(chain) + "()")
                elif _is_near(value, function):
                    waiting.append(value)
    return list(dict.fromkeys(found))


def _is_near(value: Any, function: Callable[..., Any]) -> bool:
    """Code of the job's own package; libraries are not looked into."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return False
    return (value.__module__ or "").partition(".")[0] == (function.__module__ or "").partition(".")[0]


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every dotted name that a piece of code loads, with what it means; code within it included."""
    local: dict[str, Any] = {}
    chain: tuple[str, ...] = ()
    imported: Any = None
    for step in dis.get_instructions(code):
        if chain and step.opname in STEPS:
            chain = (*chain, str(step.argval))
            continue
        if chain:
            yield chain, _meaning(chain, {**names, **local})
        chain = (str(step.argval),) if step.opname in STARTS else ()
        if step.opname == "IMPORT_NAME":
            imported = sys.modules.get(str(step.argval))
        elif step.opname in {"STORE_FAST", "STORE_DEREF"} and imported is not None:
            local[str(step.argval)], imported = imported, None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, {**names, **local})


def _meaning(chain: tuple[str, ...], names: Mapping[str, Any]) -> Any:
    """``RANDOM_NUMBERS`` for whatever comes out of a module of random numbers."""
    value = names.get(chain[0])
    for name in chain[1:]:
        if not isinstance(value, ModuleType | type):  # attributes of anything else may be computed
            return None
        if isinstance(value, ModuleType) and value.__name__ in RANDOM_MODULES:
            return None if name in SEEDED else RANDOM_NUMBERS
        value = getattr(value, name, None)
    owner = type(getattr(value, "__self__", None)).__module__
    return RANDOM_NUMBERS if owner in RANDOM_MODULES and not isinstance(value, type) else value
