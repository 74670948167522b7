"""Plans of rewinds of several streams or of the flows of a pipeline, and of their undo, as lines of text."""

from __future__ import annotations

from headwater.core.text import count
from headwater.timemachine.cascade import CascadePlan
from headwater.timemachine.downstream import Affected
from headwater.timemachine.joint_change import CascadeUndoPlan
from headwater.timemachine.pipeline_rewind import PipelinePlan
from headwater.views.formatting import format_time
from headwater.views.plans import rewind_text, undo_text


def cascade_lines(plan: CascadePlan) -> list[str]:
    """Describe a cascade: each stream with why it is rewound, and what is read twice."""
    lines = [f"{plan.names[0]}, which was named:", *_indented(rewind_text(plan.first).lines())]
    for name, one in zip(plan.names[1:], plan.plans[1:], strict=True):
        reasons = [_reason(found) for found in plan.affected if found.link.reader.location == one.location]
        lines += [f"{name}, because {'; '.join(reasons)}:", *_indented(rewind_text(one).lines())]
    if len(plan.plans) == 1:
        lines.append("no stream has read what the undone batches wrote")
    lines += [f"{name} has read nothing of it and stays as it is" for name in plan.unaffected]
    lines += [f"warning: {text}" for text in plan.again]
    return lines


def pipeline_lines(plan: PipelinePlan) -> list[str]:
    """Describe a rewind of a pipeline: each flow with its table, and those that stay as they are."""
    together = plan.together
    lines = [f"Rewind the pipeline {plan.pipeline.location} to {format_time(plan.moment_ms)} UTC"]
    for name, one in zip(together.names, together.plans, strict=True):
        found = [found for found in together.affected if found.link.reader.location == one.location]
        why = "; ".join(dict.fromkeys(_reason(affected) for affected in found))
        lines.append(f"{name}, table {plan.pipeline.flows[name].table}{f': {why}' if why else ''}")
        lines += [f"  {line}" for line in rewind_text(one).lines()]
    lines += [f"{name} stays as it is" for name in together.unaffected]
    return [*lines, "Materialized views are recomputed by the next run of the pipeline."]


def cascade_undo_lines(plan: CascadeUndoPlan) -> list[str]:
    """Describe the undo of a cascade."""
    found = [line for one in plan.plans for line in undo_text(one).lines()]
    return [f"Undo the rewind of {count(len(plan.plans), 'stream')}", *_indented(found)]


def _reason(found: Affected) -> str:
    """Say why a reader is rewound, as a clause about it."""
    link = found.link
    if found.batch is None:
        return f"it reads {link.through}, which returns to an earlier version"
    return f"its batch {found.batch} is the first with undone output of {link.upstream.name} ({link.through})"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
