"""Plans of rewinds, edits, undos, forks, seeds and repartitions as text, for the terminal, the page and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.checkpoint.layout import SINK_LOG
from headwater.checkpoint.signs_of_life import running_warnings
from headwater.core.text import batch_span, count
from headwater.lakehouse.tables import FilesMoved, TablePlan
from headwater.timemachine.edit_plan import EditPlan
from headwater.timemachine.effects import Reread
from headwater.timemachine.fork import ForkPlan, origin_of
from headwater.timemachine.repartition import RepartitionPlan
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.seed import SeedPlan
from headwater.timemachine.undo import UndoPlan
from headwater.views.formatting import format_bytes, format_time


@dataclass(frozen=True)
class PlanText:
    """A plan in words: what it does, labeled facts about it, and warnings."""

    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the lines that the terminal and the page show."""
        facts = [f"  {label:<10}  {text}" for label, text in self.facts]
        return [self.title, *facts, *(f"warning: {warning}" for warning in self.warnings)]


def rewind_text(plan: RewindPlan) -> PlanText:
    """Describe a rewind: what is undone, moved and read again, and the effect on the sink."""
    target = "to the start, with empty state" if plan.to is None else f"to batch {plan.to}"
    if name := plan.change.details.get("restored"):
        target += f" from the restore point {name}"
    offsets = "planned again from the data available then" if plan.replan else "with its recorded offsets"
    facts = [
        ("next batch", f"{plan.next_batch}, {offsets}"),
        ("undone", _batch_span(plan.undone)),
        ("set aside", file_counts(plan.set_aside)),
    ]
    if plan.restored:
        facts.append(("restored", file_counts(plan.restored)))
    if plan.rewritten:
        facts.append(("rewritten", ", ".join(plan.rewritten)))
    facts += [("read again", _reread_text(reread)) for reread in plan.rereads]
    facts += [("continues", source.sentence) for source in plan.moved_sources]
    facts.append(("sink", plan.sink))
    facts += _table_facts(plan.table)
    warnings = [warning for warning in plan.warnings if warning != plan.sink]
    warnings += running_warnings(plan.signs_of_life)
    return PlanText(f"Rewind {plan.location} {target}", tuple(facts), tuple(warnings))


def undo_text(plan: UndoPlan) -> PlanText:
    """Describe an undo: what is moved back, and which batches are discarded for it."""
    undone = plan.undoes.change
    facts = [("restored", file_counts(plan.restored))]
    if plan.dropped:
        facts.append(("discarded", _batch_span(plan.dropped)))
    if plan.set_aside:
        facts.append(("set aside", file_counts(plan.set_aside)))
    facts += [("continues", source.sentence) for source in plan.moved_sources]
    facts += _table_facts(plan.table)
    warnings = plan.table.warnings if plan.table else ()
    return PlanText(f"Undo the {undone.verb} {undone.change_id} of {plan.files.location}", tuple(facts), warnings)


def _table_facts(plan: TablePlan | None) -> list[tuple[str, str]]:
    """Return the versions of a table, what leaves it and what returns."""
    if plan is None or plan.action is None:
        return []
    if plan.returns_to is None:
        target = "keeps what other programs committed"
    else:
        target = "becomes empty" if plan.returns_to < 0 else f"returns to {plan.noun} {plan.returns_to}"
    now = "empty" if plan.now < 0 else f"{plan.noun} {plan.now}"
    facts = [("table", f"{plan.uri}: {now} now; {target}" + (f", {plan.note}" if plan.note else ""))]
    if plan.batches:
        are = "is" if len(plan.batches) == 1 else "are"
        facts.append(("", f"{_batch_span(plan.batches)} {are} in this table with this query's id"))
    facts += [
        (label, f"{count(found.files, 'file')}, {_rows(found)}")
        for label, found in (("leaves", plan.leaving), ("returns", plan.returning))
        if found.files
    ]
    if plan.others:
        facts.append(("kept", "; ".join(plan.others)))
    return facts


def _rows(found: FilesMoved) -> str:
    return "unknown number of rows" if found.rows is None else count(found.rows, "row")


def edit_text(plan: EditPlan) -> PlanText:
    """Describe an edit or an import: the rows that change, and the batch that it adds."""
    rows = plan.rows
    parts = [f"{number:,} {what}" for what, number in rows.as_dict().items() if number]
    facts = [
        ("state", plan.target),
        ("rows", ", ".join(parts) or "none now"),
        ("added", f"batch {plan.batch_id}, which reads no input"),
    ]
    facts.append(("written", file_counts(plan.written)))
    facts += _erasure_facts(plan)
    if plan.reason:
        facts.append(("reason", plan.reason))
    warnings = (*plan.warnings, *running_warnings(plan.signs_of_life))
    return PlanText(f"{plan.verb.capitalize()} the state of {plan.location}", tuple(facts), warnings)


def _erasure_facts(plan: EditPlan) -> list[tuple[str, str]]:
    erasure = plan.erasure
    if erasure is None:
        return []
    facts = [
        ("deleted", f"{count(erasure.files, 'file')} of the state and of earlier changes; this cannot be undone"),
        ("lost", f"{_batch_span(erasure.batches)}: the stream can no longer be rewound to them"),
    ]
    if erasure.points:
        facts.append(("", f"restore points: {', '.join(erasure.points)}"))
    if erasure.changes:
        facts.append(("", f"undo of {count(len(erasure.changes), 'earlier change')}"))
    return facts


_OUTPUTS = {
    "write": "of the history is written to {sink}",
    "aside": "of the history is kept in {aside}, not written to {sink}",
    "drop": "of the history is dropped, not written to {sink}",
}


def seed_text(plan: SeedPlan) -> PlanText:
    """Describe a seed: the history, where each source continues, and what happens to the output."""
    facts: list[tuple[str, str]] = []
    for source in plan.sources:
        label = f"{source.name}: " if source.name else ""
        size = "" if source.files is None else f", {count(source.files, 'file')}, {format_bytes(source.bytes or 0)}"
        facts += [
            ("history", f"{label}{source.history or 'none'}{size}"),
            ("continues", f"{label}{source.uri} at {source.position}"),
            ("in both", f"{label}{source.rule}"),
        ]
    aside = shown_place(plan.aside or "")
    facts.append(("output", _OUTPUTS[plan.output].format(sink=plan.sink, aside=aside)))
    if plan.reason:
        facts.append(("reason", plan.reason))
    return PlanText(f"Seed {shown_place(plan.checkpoint)} for {plan.job}", tuple(facts), plan.warnings)


def shown_place(location: str) -> str:
    """Return a location as a user would type it: relative, if it is below the current directory."""
    here = f"{Path.cwd()}/"
    return location.removeprefix(here) if location.startswith(here) else location


def job_import_text(plan: SeedPlan, file: str, rows: int) -> PlanText:
    """Describe an import into a new checkpoint of a job."""
    facts = [("state", f"{count(rows, 'row')} of {file}")]
    facts += [
        ("continues", f"{f'{one.name}: ' if one.name else ''}{one.uri} at {one.position}") for one in plan.sources
    ]
    if plan.reason:
        facts.append(("reason", plan.reason))
    place = shown_place(plan.checkpoint)
    return PlanText(f"Create {place} for {plan.job} with imported state", tuple(facts))


def fork_text(plan: ForkPlan) -> PlanText:
    """Describe a fork: the files that it shares with its origin, and those that are written."""
    at = "before the first batch" if plan.at is None else f"at batch {plan.at}"
    facts = [("shared", count(len(plan.shared), "file")), ("written", count(len(plan.written), "file"))]
    if plan.table is not None and plan.sink is not None:
        shared = f"{count(plan.table.shared.files, 'file')}, {_rows(plan.table.shared)}"
        version = "" if plan.table.version is None else f" as of {plan.table.noun} {plan.table.version}"
        facts.append(("table", f"{plan.sink.location} shares {shared} with the original{version}"))
    return PlanText(f"Fork {origin_of(plan)} {at} into {plan.into.location}", tuple(facts), plan.warnings)


def repartition_text(plan: RepartitionPlan) -> PlanText:
    """Describe a repartition: the number of partitions, and the batch that it adds."""
    return PlanText(
        f"Repartition {plan.location}",
        (
            ("partitions", f"{plan.partitions} instead of {plan.before}"),
            ("added", f"batch {plan.batch_id}, which reads no input"),
        ),
    )


def _batch_span(batches: tuple[int, ...]) -> str:
    if not batches:
        return "no batch of the checkpoint"
    span = batch_span(batches[0], batches[-1])
    return span if len(batches) == 1 else f"{span} ({count(len(batches), 'batch')})"


def file_counts(paths: Iterable[str]) -> str:
    """Return the number of files in each folder; ``--json`` lists the paths."""
    groups = Counter(_group(path) for path in paths if not path.endswith(".crc"))
    if not groups:
        return "nothing"
    total = count(sum(groups.values()), "file")
    return f"{total}: " + ", ".join(f"{number} {group}" for group, number in groups.items())


def _group(path: str) -> str:
    if path.startswith("sink:"):
        return "in the sink's log" if path.startswith(f"sink:{SINK_LOG}/") else "of the sink's data"
    return f"in {path.partition('/')[0]}/" if "/" in path else path


def _reread_text(reread: Reread) -> str:
    text = f"{reread.label} ({reread.description or reread.kind})"
    if reread.rows == 0 and not reread.files:
        return f"{text}: nothing"
    if reread.rows is not None:
        text += f", {count(reread.rows, 'row')}"
    if reread.files is not None:
        text += f", {count(reread.files, 'file')}"
    availability = {True: "available", False: "MISSING", None: "not checked"}[reread.still_there]
    return f"{text}: {availability}{_retention_text(reread)}" + (f" ({reread.why})" if reread.why else "")


def _retention_text(reread: Reread) -> str:
    limits = []
    if reread.retained_until_ms is not None:
        limits.append(f"at least until {format_time(reread.retained_until_ms)} UTC by retention.ms")
    if reread.retention_bytes is not None:
        limits.append(f"and while a partition has less than {format_bytes(reread.retention_bytes)} (retention.bytes)")
    return f", {' '.join(limits).removeprefix('and ')}" if limits else ""
