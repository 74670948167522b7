"""Expressions and calls whose result changes from run to run, so that a replay may differ from the recorded rows.

They are found in the plan, where Spark marks expressions as nondeterministic, and in the bytecode of the job's own
functions, which Spark does not analyze.
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
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.jobs.job import Job
from headwater.spark.internals.plans import analyzed
from headwater.spark.prepared import prepare_job

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
NAME_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST"}
ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD"}


@dataclass(frozen=True)
class UnstableExpression:
    """An unstable expression or call. ``recorded`` marks the batch's own time, which Spark records and a replay uses again."""

    text: str
    recorded: bool = False

    def warning_for(self, job: str) -> str:
        if self.recorded:
            return f"{job} uses {self.text}: the replay uses the time recorded with the batch"
        return f"warning: {job} uses {self.text}, whose result can differ from run to run"


def unstable_expressions(spark: SparkSession, job: Job) -> list[UnstableExpression]:
    """Return the unstable expressions of a replayable job: first from its plan, then from its Python code."""
    prepared = prepare_job(spark, job)
    frame = prepared.frame
    if job.per_batch:
        frame = prepared.result_of(spark.createDataFrame([], frame.schema))
    in_plan = _unstable_in_plan(frame, clock_is_recorded=not job.per_batch)
    return list(dict.fromkeys([*in_plan, *map(UnstableExpression, unstable_calls(job.transform))]))


def _unstable_in_plan(frame: DataFrame, *, clock_is_recorded: bool) -> Iterator[UnstableExpression]:
    for node in analyzed(frame).nodes():
        for expression in node.expressions:
            for part in expression.parts():
                if part.class_name in BATCH_TIME:
                    yield UnstableExpression(part.sql, recorded=clock_is_recorded)
            if not expression.is_deterministic:
                yield UnstableExpression(expression.sql)


def unstable_calls(function: Callable[..., Any]) -> list[str]:
    """Return the calls to clocks and random numbers in a function and in what it calls of its own package."""
    calls: list[str] = []
    visited: set[int] = set()
    pending: list[Any] = [function]
    while pending:
        current = pending.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        if inspect.isclass(current):
            bases = [base for base in current.__mro__ if _in_same_package(base, function)]
            pending += [member for base in bases for member in vars(base).values()]
        elif isinstance(current, FunctionType):
            closure = inspect.getclosurevars(current).nonlocals
            pending += [value for value in closure.values() if _in_same_package(value, function)]
            for chain, value in _loaded_names(current.__code__, {**current.__globals__, **closure}):
                if value is RANDOM_NUMBERS or any(value == clock for clock in CLOCKS):
                    calls.append(".".join(chain) + "()")
                elif _in_same_package(value, function):
                    pending.append(value)
    return list(dict.fromkeys(calls))


def _in_same_package(value: Any, function: Callable[..., Any]) -> bool:
    """Return whether a value is code of the function's own package; libraries are not searched."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return False
    return (value.__module__ or "").partition(".")[0] == (function.__module__ or "").partition(".")[0]


def _loaded_names(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every dotted name that the code loads, nested functions included, with its value."""
    local: dict[str, Any] = {}
    chain: tuple[str, ...] = ()
    imported: Any = None
    for step in dis.get_instructions(code):
        if chain and step.opname in ATTRIBUTE_LOADS:
            chain = (*chain, str(step.argval))
            continue
        if chain:
            yield chain, _value_of(chain, {**names, **local})
        chain = (str(step.argval),) if step.opname in NAME_LOADS else ()
        if step.opname == "IMPORT_NAME":
            imported = sys.modules.get(str(step.argval))
        elif step.opname in {"STORE_FAST", "STORE_DEREF"} and imported is not None:
            local[str(step.argval)], imported = imported, None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded_names(constant, {**names, **local})


def _value_of(chain: tuple[str, ...], names: Mapping[str, Any]) -> Any:
    """Return the value of a dotted name; ``RANDOM_NUMBERS`` for anything from a module of random numbers."""
    value = names.get(chain[0])
    for name in chain[1:]:
        if not isinstance(value, ModuleType | type):  # reading an attribute of anything else may run code
            return None
        if isinstance(value, ModuleType) and value.__name__ in RANDOM_MODULES:
            return None if name in SEEDED else RANDOM_NUMBERS
        value = getattr(value, name, None)
    owner = type(getattr(value, "__self__", None)).__module__
    return RANDOM_NUMBERS if owner in RANDOM_MODULES and not isinstance(value, type) else value
