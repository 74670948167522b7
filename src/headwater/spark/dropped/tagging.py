"""Trace records through a job's plan: each carries a tag, which the job's function does not see."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.core.errors import ChangeRefused
from headwater.spark.internals.plans import Attribute, Plan

TAG = "_headwater_tag"


def hidden(frame: DataFrame) -> DataFrame:
    """Return a frame without its tag, which stays in the plan below."""
    return frame.drop(TAG)


def marked(streams: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return streams whose plans name the sources that they come from."""
    return {name: hidden(stream.withColumn(TAG, F.lit(name))) for name, stream in streams.items()}


@dataclass(frozen=True)
class Crossing:
    """A node on the way from a source to the root, and the index of the child through which the way enters it."""

    node: Plan
    side: int
    location: tuple[int, ...]


def source_paths(plan: Plan, at: tuple[int, ...] = ()) -> Iterator[tuple[str, list[Crossing]]]:
    """Yield each occurrence of a marked source, in Spark's order of sources, and the way from there to the root."""
    below = [(place, child) for place, child in enumerate(plan.children) if has_tag(child)]
    if not below and _own_tag(plan) is not None:
        yield _marked_source(plan), []
    for place, child in below:
        for source, path in source_paths(child, (*at, place)):
            yield source, [*path, Crossing(plan, place, at)]


def carry_tag(spark: SparkSession, plan: Plan, *, without: Collection[str] = ()) -> tuple[Plan, Attribute]:
    """Return the plan with the tag in its output, and the tag's attribute.

    Nodes named in ``without`` are removed from it.
    """
    if plan.name in without:
        return carry_tag(spark, plan.children[0], without=without)
    own = _own_tag(plan)
    if own is not None and not any(node.name in without for node in plan.nodes()):
        return plan, own
    if plan.name == "Union":
        return _carry_through_union(spark, plan, without)
    children = plan.children
    tagged = [place for place, child in enumerate(children) if has_tag(child)]
    if len(tagged) != 1:
        raise _lost(plan)
    child, tag = carry_tag(spark, children[tagged[0]], without=without)
    if own is None and plan.name in ("Project", "Expand"):
        return plan.passing(spark, tag, child), tag
    children[tagged[0]] = child
    carried = plan.with_children(spark, children)
    if all(attribute.id != tag.id for attribute in carried.output):
        raise _lost(plan)
    return carried, tag


def _carry_through_union(spark: SparkSession, plan: Plan, without: Collection[str]) -> tuple[Plan, Attribute]:
    """Carry the tag through every child that has it, as the last column; the others get a null there."""
    carried = {
        place: carry_tag(spark, child, without=without) for place, child in enumerate(plan.children) if has_tag(child)
    }
    if not carried:
        raise _lost(plan)
    like = next(iter(carried.values()))[1]
    children = []
    for place, child in enumerate(plan.children):
        if place in carried:
            with_tag, tag = carried[place]
            columns = [attribute for attribute in with_tag.output if attribute.id != tag.id]
            children.append(with_tag.selecting(spark, [*columns, tag]))
        else:
            children.append(child.with_null(spark, like))
    union = plan.with_children(spark, children)
    return union, union.output[-1]


def has_tag(plan: Plan) -> bool:
    return any(_own_tag(node) is not None for node in plan.nodes())


def _own_tag(plan: Plan) -> Attribute | None:
    return next((attribute for attribute in plan.output if attribute.name == TAG), None)


def _marked_source(plan: Plan) -> str:
    """Return the source that a projection names: its expression is ``'source' AS _headwater_tag``."""
    texts = (expression.sql for expression in plan.expressions)
    found = next((match for text in texts if (match := re.fullmatch(rf"'(\w*)' AS `?{TAG}`?", text))), None)
    if found is None:
        raise _lost(plan)
    return found[1]


def _lost(plan: Plan) -> ChangeRefused:
    return ChangeRefused(
        "cannot-follow",
        "cannot trace single records through this job to the operator that drops them",
        evidence={"the trace ends at": plan.name},
        remedy="use Spark's own count instead: headwater log CKPT, or the page",
    )
