"""What ``rewind`` and ``undo`` do for a declarative pipeline: all of its flows, or those of some tables, as one change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.checkpoint_options import StepProgress, confirm, print_plan
from headwater.cli.output import json_line, note
from headwater.cli.table_options import table_engine
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.checkpoint.pipelines import Pipeline
    from headwater.timemachine.rewind import RewindPlan


def named_pipeline(name: str) -> Pipeline | None:
    """Return the pipeline that a user names by its storage folder or its spec; None for the name of a checkpoint."""
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.checkpoint.pipelines import open_pipeline

    try:
        open_checkpoint(name, follow=False)
    except CheckpointUnreadable as error:
        if error.code != "not-a-checkpoint":
            raise
        pipeline = open_pipeline(name)
        if pipeline is None:
            raise
        return pipeline
    return None


def rewind_pipeline(
    name: str,
    pipeline: Pipeline,
    to_time: str | None,
    *,
    tables: str | None,
    warehouse: Path | None,
    cascade: bool,
    keep_foreign: bool,
    engine: str,
    allow_missing_input: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Plan and carry out the rewind of a pipeline."""
    from headwater.checkpoint.flow_record import WAREHOUSE_VARIABLE, write_pipeline_file
    from headwater.kafka.offsets import earliest_offsets
    from headwater.timemachine.pipeline_rewind import plan_pipeline_rewind
    from headwater.views.cascade_text import pipeline_lines

    if to_time is None:
        flow = next(iter(pipeline.flows))
        raise UsageProblem(
            "bad-option",
            f"{name} is a pipeline, whose flows have batches of their own: it can be rewound to a time",
            remedy=f"--to-time TIME, or name a flow: headwater rewind {name}:{flow} --to B --cascade",
        )
    folder = str(warehouse.absolute()) if warehouse else None
    if folder:
        os.environ[WAREHOUSE_VARIABLE] = folder  # every part of this command looks there
    plan = plan_pipeline_rewind(
        pipeline,
        to_time,
        tables=[table.strip() for table in (tables or "").split(",") if table.strip()],
        cascade=cascade,
        keep_foreign=keep_foreign,
        ask_kafka=earliest_offsets,
        with_engine=table_engine(engine),
        after_planning=_with_retention,
    )
    print_plan(plan.as_dict(), pipeline_lines(plan), as_json=as_json)
    if dry_run:
        return
    if not allow_missing_input:
        plan.together.refuse_missing_input()
    flows = count(len(plan.together.plans), "flow")
    if not confirm(f"Rewind {flows} and their tables?", yes=yes):
        return
    if folder:
        write_pipeline_file(pipeline.storage, folder, {})
    plan.apply(StepProgress(), allow_missing_input=allow_missing_input)
    note(f"done: {flows} rewound. To undo all of it: headwater undo {name}")
    if as_json:
        json_line({"done": plan.together.first.change.change_id})


def _with_retention(plan: RewindPlan) -> RewindPlan:
    from headwater.kafka.retention import retention_from
    from headwater.timemachine.rewind import plan_with_retention

    return plan_with_retention(plan, retention_from)


def flow_to_undo(name: str, pipeline: Pipeline) -> FileTree:
    """Return the flow by which the last change of a pipeline is undone."""
    from headwater.timemachine.pipeline_rewind import changed_flow

    return _found(changed_flow(pipeline), name, "nothing to undo: no flow of the pipeline was changed")


def flow_to_finish(name: str, pipeline: Pipeline) -> FileTree:
    """Return the flow by which an interrupted change of a pipeline is finished or rolled back."""
    from headwater.timemachine.pipeline_rewind import interrupted_flow

    return _found(interrupted_flow(pipeline), name, "no change of a flow of the pipeline was interrupted")


def _found(files: FileTree | None, name: str, problem: str) -> FileTree:
    if files is None:
        raise ChangeRefused("nothing-to-undo", problem, evidence={"pipeline": name})
    return files
