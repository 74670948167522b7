"""Trace records through a job's plan: each carries a tag that survives projections."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from headwater.core.errors import ChangeRefused
from headwater.spark.internals.plans import Attribute, Plan

TAG = "_headwater_tag"


def carry_tag(spark: SparkSession, plan: Plan, *, without: Collection[str] = ()) -> tuple[Plan, Attribute]:
    """Return the plan with the tag in its output, and the tag's attribute.

    Nodes named in ``without`` are removed from it.
    """
    if plan.name in without:
        return carry_tag(spark, plan.children[0], without=without)
    own = next((attribute for attribute in plan.output if attribute.name == TAG), None)
    if own is not None and not any(node.name in without for node in plan.nodes()):
        return plan, own
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


def has_tag(plan: Plan) -> bool:
    return any(attribute.name == TAG for node in plan.nodes() for attribute in node.output)


def _lost(plan: Plan) -> ChangeRefused:
    return ChangeRefused(
        "cannot-follow",
        "cannot trace single records through this job to the operator that drops them",
        evidence={"the trace ends at": plan.name},
        remedy="use Spark's own count instead: headwater log CKPT, or the page",
    )
