"""Plans of moves, and of their undo, as text."""

from __future__ import annotations

from shlex import quote

from headwater.checkpoint.record import read_job_record, uri_kind
from headwater.checkpoint.signs_of_life import running_warnings
from headwater.core.text import count
from headwater.timemachine.move import MovePlan
from headwater.timemachine.move_undo import MoveUndoPlan
from headwater.views.formatting import format_bytes
from headwater.views.plans import PlanText


def move_text(plan: MovePlan) -> PlanText:
    """Describe a move: what is copied and rewritten, and what stays."""
    facts = [("copied", f"{count(plan.file_count, 'file')}, {format_bytes(plan.bytes)}, each of them read back")]
    facts += [
        (
            "moves too",
            f"{', '.join(folder.roles)}: {folder.old.location} to {folder.new.location}, "
            f"{count(folder.files, 'file')}, {format_bytes(folder.bytes)}",
        )
        for folder in plan.folders
    ]
    if plan.rewritten:
        facts.append(("rewritten", f"the absolute paths in {count(len(plan.rewritten), 'file')}"))
    facts += [("stays", place) for place in plan.stays]
    facts.append(("after it", f"{plan.location} keeps its files and refuses to run; headwater undo uses it again"))
    if plan.resumes:
        facts.append(("continues", "an interrupted move: files that were copied already are only verified"))
    warnings = (*plan.warnings, *running_warnings(plan.signs_of_life))
    return PlanText(f"Move {plan.location} to {plan.into.location}", tuple(facts), warnings)


def move_undo_text(plan: MoveUndoPlan) -> PlanText:
    """Describe the undo of a move."""
    facts = [("used again", plan.files.location)]
    facts += [("", f"{old} instead of {new}") for old, new in plan.pointer.folders.items()]
    if plan.dropped:
        facts.append(("discarded", f"{count(len(plan.dropped), 'batch')} that ran at {plan.pointer.to}"))
    if plan.moved is not None:
        facts.append(("stays", f"{plan.pointer.to} keeps its files and refuses to run"))
    return PlanText(f"Undo the move of {plan.files.location} to {plan.pointer.to}", tuple(facts), plan.warnings)


def next_run(plan: MovePlan) -> str:
    """Return how to run the job at its new location, if the checkpoint records the job."""
    record = read_job_record(plan.into)
    job = None if record.attached else record.reference or record.job
    if job is None:
        return f"start the query with checkpointLocation {plan.into.location}"
    roles = {role for folder in plan.folders for role in folder.roles}
    options = [f"--sink {quote(record.sink)}"] if "sink" in roles and record.sink else []
    options += [
        f"--source {quote(f'{name}={uri}' if name else uri)}"
        for name, uri in record.inputs.items()
        if (name or "source") in roles and uri_kind(uri) in ("files", "delta")
    ]
    return " ".join(["headwater run", job, "--checkpoint", quote(plan.into.location), *options])
