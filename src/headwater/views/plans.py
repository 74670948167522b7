"""Plans of changes, told to a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headwater.checkpoint.layout import SINK_LOG
from headwater.timemachine.effects import Reread
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.undo import UndoPlan
from headwater.views.words import count


def rewind_lines(plan: RewindPlan) -> list[str]:
    """The plan in the order in which one wants to know it: what is lost, what moves, what is read, what is seen."""
    kept = "nothing is kept: the stream starts over" if plan.to is None else f"batch {plan.to} is the last one kept"
    how = "planned anew from what the source has then" if plan.replan else "with its recorded offsets"
    lines = [
        f"rewind {plan.location}",
        f"  {kept}; batch {plan.next_batch} runs next, {how}",
        f"  undone     {_span(plan.undone)}",
        f"  set aside  {_grouped(plan.set_aside)}",
    ]
    if plan.rewritten:
        lines.append(f"  written    {', '.join(plan.rewritten)}")
    lines += [f"  read again {_reread(reread)}" for reread in plan.rereads]
    lines.append(f"  sink       {plan.sink}")
    lines += [f"warning: {warning}" for warning in plan.warnings if warning != plan.sink]
    lines += [f"warning: is a query still running? {sign}" for sign in plan.signs_of_life]
    return lines


def undo_lines(plan: UndoPlan) -> list[str]:
    done = plan.undoes.change
    lines = [f"undo the {done.verb} {done.change_id} of {plan.files.location}"]
    lines.append(f"  restored   {_grouped(plan.restored)}")
    if plan.dropped:
        lines.append(f"  given up   {_span(plan.dropped)}")
    if plan.set_aside:
        lines.append(f"  set aside  {_grouped(plan.set_aside)}")
    return lines


def _span(batches: tuple[int, ...]) -> str:
    shown = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
    return f"{shown} ({len(batches)})" if len(batches) > 1 else shown


def _grouped(paths: Iterable[str]) -> str:
    """Counts by top folder: the list itself is in ``--json``."""
    groups = Counter(_place(path) for path in paths if not path.endswith(".crc"))
    total = count(sum(groups.values()), "file")
    return f"{total}: " + ", ".join(f"{number} {place}" for place, number in groups.items()) if groups else "nothing"


def _place(path: str) -> str:
    if path.startswith("sink:"):
        return "in the sink's log" if path.startswith(f"sink:{SINK_LOG}/") else "of the sink's data"
    return f"in {path.partition('/')[0]}/" if "/" in path else path


def _reread(reread: Reread) -> str:
    what = f"source {reread.source} ({reread.kind})"
    if reread.rows is not None:
        what += f", {count(reread.rows, 'row')}"
    if reread.files is not None:
        what += f", {count(reread.files, 'file')}"
    answer = {True: "still there", False: "GONE", None: "not checked"}[reread.still_there]
    return f"{what}: {answer}" + (f" ({reread.why})" if reread.why else "")
