"""The plan of a pipeline's rewind as lines of text."""

from __future__ import annotations

from headwater.timemachine.pipeline_rewind import PipelinePlan
from headwater.views.cascade_text import reason_text
from headwater.views.formatting import format_time
from headwater.views.plans import rewind_text


def pipeline_lines(plan: PipelinePlan) -> list[str]:
    """Describe a rewind of a pipeline: each flow with its table, and those that stay as they are."""
    together = plan.together
    lines = [f"Rewind the pipeline {plan.pipeline.location} to {format_time(plan.moment_ms)} UTC"]
    for name, one in zip(together.names, together.plans, strict=True):
        found = [found for found in together.affected if found.link.reader.location == one.location]
        why = "; ".join(dict.fromkeys(reason_text(affected) for affected in found))
        lines.append(f"{name}, table {plan.pipeline.flows[name].table}{f': {why}' if why else ''}")
        lines += [f"  {line}" for line in rewind_text(one).lines()]
    lines += [f"{name} stays as it is" for name in together.unaffected]
    return [*lines, "Materialized views are recomputed by the next run of the pipeline."]
