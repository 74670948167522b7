"""Plans of rewinds, undos and forks as text, for the terminal and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headwater.checkpoint.layout import SINK_LOG
from headwater.core.text import count
from headwater.timemachine.effects import Reread
from headwater.timemachine.fork import ForkPlan
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.undo import UndoPlan


def rewind_lines(plan: RewindPlan) -> list[str]:
    """Return the lines that describe a rewind: what is undone, moved and read again, and the effect on the sink."""
    target = "to the start, with empty state" if plan.to is None else f"to batch {plan.to}"
    offsets = "planned again from the data available then" if plan.replan else "with its recorded offsets"
    lines = [
        f"Rewind {plan.location} {target}",
        _line("next batch", f"{plan.next_batch}, {offsets}"),
        _line("undone", _batch_span(plan.undone)),
        _line("set aside", _file_counts(plan.set_aside)),
    ]
    if plan.rewritten:
        lines.append(_line("rewritten", ", ".join(plan.rewritten)))
    lines += [_line("read again", _reread_text(reread)) for reread in plan.rereads]
    lines.append(_line("sink", plan.sink))
    lines += [f"warning: {warning}" for warning in plan.warnings if warning != plan.sink]
    lines += [f"warning: a query may still be running: {sign}" for sign in plan.signs_of_life]
    return lines


def undo_lines(plan: UndoPlan) -> list[str]:
    """Return the lines that describe an undo: what is moved back, and which batches are discarded for it."""
    undone = plan.undoes.change
    lines = [
        f"Undo the {undone.verb} {undone.change_id} of {plan.files.location}",
        _line("restored", _file_counts(plan.restored)),
    ]
    if plan.dropped:
        lines.append(_line("discarded", _batch_span(plan.dropped)))
    if plan.set_aside:
        lines.append(_line("set aside", _file_counts(plan.set_aside)))
    return lines


def fork_lines(plan: ForkPlan) -> list[str]:
    """Return the lines that describe a fork: the files that it shares with its origin, and those that are written."""
    at = "before the first batch" if plan.at is None else f"at batch {plan.at}"
    return [
        f"Fork {plan.origin.location} {at} into {plan.into.location}",
        _line("shared", count(len(plan.shared), "file")),
        _line("written", count(len(plan.written), "file")),
        *(f"warning: {warning}" for warning in plan.warnings),
    ]


def _line(label: str, text: str) -> str:
    return f"  {label:<10}  {text}"


def _batch_span(batches: tuple[int, ...]) -> str:
    if len(batches) == 1:
        return f"batch {batches[0]}"
    return f"batches {batches[0]} to {batches[-1]} ({count(len(batches), 'batch')})"


def _file_counts(paths: Iterable[str]) -> str:
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
    return f"{text}: {availability}" + (f" ({reread.why})" if reread.why else "")
