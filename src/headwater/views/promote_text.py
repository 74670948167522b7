"""Promotions of forks, with what both streams wrote, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headwater.core.text import batch_span, count
from headwater.timemachine.promote import PromotePlan, PromoteUndoPlan, WrittenByBoth
from headwater.views.comparison import RowsCompared, compare_rows
from headwater.views.plans import PlanText

MOST_ROWS = 20


def compared(plan: PromotePlan) -> list[tuple[WrittenByBoth, RowsCompared]]:
    """Compare what both streams wrote, part by part."""
    return [(one, compare_rows(one.part.fork[1], one.original, one.fork)) for one in plan.written]


def promote_dict(plan: PromotePlan, found: list[tuple[WrittenByBoth, RowsCompared]]) -> dict[str, Any]:
    """Return the JSON form with the rows that differ."""
    parts = [
        {"original": list(one.part.original), "fork": list(one.part.fork), **rows.as_dict()} for one, rows in found
    ]
    return {**plan.as_dict(), "compared": parts}


def promote_text(plan: PromotePlan, found: list[tuple[WrittenByBoth, RowsCompared]]) -> PlanText:
    """Describe a promotion: the lag, what was compared, and what happens to both streams."""
    at = "before the first batch" if plan.at is None else f"at batch {plan.at}"
    different = sum(not rows.same for _, rows in found)
    rows = sum(len(one.original) for one, _ in found)
    outcome = "the same rows" if not different else f"different rows in {different} of {count(len(found), 'part')}"
    facts = [
        ("forked", at),
        ("not read", f"{plan.behind}{'' if plan.caught_up else ': the fork has not caught up'}"),
        ("compared", f"{count(rows, 'row')} of the original: {outcome}" if found else f"nothing: {plan.not_compared}"),
    ]
    if found and plan.not_compared:
        facts.append(("", f"without {plan.not_compared}"))
    running = "is running and will be stopped after its batch" if plan.runs[0] else "is not running"
    facts += [
        ("original", f"{plan.original.location} {running}; it keeps its files and refuses to run"),
        ("fork", f"{plan.fork.location} {'keeps running' if plan.runs[1] else 'is not running'}"),
        ("afterwards", f"the path and the name of {plan.original.location} refer to the fork"),
    ]
    return PlanText(f"Promote {plan.fork.location} in place of {plan.original.location}", tuple(facts), plan.warnings)


def difference_lines(found: list[tuple[WrittenByBoth, RowsCompared]]) -> Iterator[str]:
    """Yield the rows that differ, as ``replay --against`` shows them."""
    for one, rows in found:
        if rows.same:
            continue
        yield f"{batch_span(*one.part.original)} of the original, {batch_span(*one.part.fork)} of the fork: rows differ"
        lines = [f"  - {_text(row)}" for row in rows.only_before] + [f"  + {_text(row)}" for row in rows.only_after]
        lines += [line for was, now in rows.differ for line in (f"  ~ {_text(was)}", f"    {_text(now)}")]
        yield from lines[:MOST_ROWS]
        if len(lines) > MOST_ROWS:
            yield f"  and {len(lines) - MOST_ROWS} more lines; --json shows all of them"


def promote_undo_text(plan: PromoteUndoPlan) -> PlanText:
    """Describe the undo of a promotion."""
    facts = (
        ("original", f"{plan.original.location} can be started again, and resumes where it stopped"),
        ("fork", f"{plan.pointer.to} stays as it is, under its own path"),
    )
    return PlanText(f"Undo the promotion of {plan.pointer.to}", facts)


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
