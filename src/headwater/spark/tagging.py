"""Follow records through a job's plan: a tag on each is kept where the job's own projections would leave it behind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headwater.core.errors import ChangeRefused
from headwater.spark.plan_checks import nodes

TAG = "_headwater_tag"


def carry_tag(jvm: Any, plan: Any, *, through: Collection[str] = ()) -> tuple[Any, Any]:
    """The same plan with the tag kept to its top, and the tag's attribute there. Nodes of ``through`` are left out."""
    if plan.nodeName() in through:
        return carry_tag(jvm, plan.children().apply(0), through=through)
    own = next((attribute for attribute in items(plan.output()) if attribute.name() == TAG), None)
    if own is not None and not any(node.nodeName() in through for node in nodes(plan)):
        return plan, own
    children = items(plan.children())
    tagged = [place for place, child in enumerate(children) if holds_tag(child)]
    if len(tagged) != 1:
        raise _lost(plan)
    child, tag = carry_tag(jvm, children[tagged[0]], through=through)
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    match plan.nodeName():
        case "Project" if own is None:
            return logical.Project(_plus(plan.projectList(), tag), child), tag
        case "Expand" if own is None:
            projections = scala_sequence(jvm, [_plus(projection, tag) for projection in items(plan.projections())])
            return logical.Expand(projections, _plus(plan.output(), tag), child), tag
    children[tagged[0]] = child
    carried = plan.withNewChildren(scala_sequence(jvm, children))
    if all(attribute.exprId().id() != tag.exprId().id() for attribute in items(carried.output())):
        raise _lost(plan)
    return carried, tag


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def scala_sequence(jvm: Any, values: list[Any]) -> Any:
    held = jvm.java.util.ArrayList()
    for value in values:
        held.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(held).toSeq()


def holds_tag(plan: Any) -> bool:
    return any(attribute.name() == TAG for node in nodes(plan) for attribute in items(node.output()))


def _plus(sequence: Any, item: Any) -> Any:
    return getattr(sequence, "$colon$plus")(item)


def _lost(plan: Any) -> ChangeRefused:
    return ChangeRefused(
        "cannot-follow",
        "single records cannot be followed through this job to the operator that drops them",
        evidence={"they are lost in": plan.nodeName()},
        remedy="Spark's own count is all there is: headwater log CKPT, or the page",
    )
