"""What a run does about changed code: it compares the plan with the record, refuses a silent change, and records the plan.

If nothing differs from the record, as in most runs, Spark plans nothing for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.plan_record import RecordedPlan, is_accepted, plan_before, read_plans, write_plan
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import JobRefused
from headwater.core.times import iso_from_ms
from headwater.migration.compare_meaning import can_compare
from headwater.migration.comparison import Commands, Comparison, Difference
from headwater.spark.code_check import CurrentCode, compare_code
from headwater.spark.ownership import Run
from headwater.spark.prepared import PreparedJob


def may_differ(prepared: PreparedJob, current: CurrentCode, files: FileTree, next_batch: int) -> bool:
    """Return whether a job may give the state of a checkpoint another meaning. Compares records only, and plans nothing."""
    before = read_job_record(files).mode
    if before is not None and before != prepared.job.mode and next_batch > 0:
        return True
    plans = read_plans(files)
    recorded = plan_before(plans, next_batch)
    if recorded is None or current.operators is None or not can_compare(recorded, prepared.spark.version):
        return False
    return recorded.operators != current.operators and not is_accepted(plans, next_batch, current.operators)


def accept_or_refuse(run: Run, prepared: PreparedJob, files: FileTree, warn: Callable[[str], None]) -> None:
    """Refuse a run that would change the meaning of the state, unless the user accepts it. Record what the state means."""
    current = CurrentCode.of(prepared)
    last = CheckpointLogs(files).commits.latest
    next_batch = 0 if last is None else last + 1
    accepted: list[Difference] = []
    if next_batch > 0 and may_differ(prepared, current, files, next_batch):
        comparison = compare_code(run.job, prepared, current, files, reference=run.reference)
        if not comparison.starts or not (comparison.is_safe or run.accept_change):
            raise refuse_change(comparison, Commands(run.reference or run.job.name, files.location))
        accepted = comparison.of("changes-meaning")
        for one in comparison.of("compatible"):
            if ": code of " in one.what:
                warn(
                    f"note: {one.what} was edited since the last run; whether the state keeps its meaning is not known"
                )
    if current.operators is None or not (current.operators or read_plans(files)):
        return
    texts = tuple(f"{one.what}: {one.old or 'none'} → {one.new or 'none'}" for one in accepted)
    plan = RecordedPlan(
        next_batch, current.operators, prepared.spark.version, iso_from_ms(int(time.time() * 1000)), texts
    )
    write_plan(files, plan)


def refuse_change(comparison: Comparison, commands: Commands) -> JobRefused:
    """Return the error for a job that would give the state of its checkpoint another meaning, or cannot start on it."""
    found = comparison.of(comparison.verdict)
    evidence: dict[str, str] = {}
    for one in found:
        change = f"{one.old or 'none'}  →  {one.new or 'none'}"
        evidence[one.what] = f"{evidence[one.what]}; {change}" if one.what in evidence else change
    if comparison.verdict == "changes-meaning":
        return JobRefused(
            "changed-meaning",
            f"{comparison.job} would give the state of this checkpoint another meaning, and Spark would not notice",
            evidence={**evidence, "why": found[0].why},
            remedy=f"{commands.check}   (shows all differences; to run the job anyway: --accept-change)",
        )
    return JobRefused(
        "state-incompatible",
        f"{comparison.job} cannot resume from the state of this checkpoint",
        evidence={**evidence, "why": found[0].why},
        remedy=f"{commands.check}   (shows all differences); then: {found[0].remedy}",
    )
