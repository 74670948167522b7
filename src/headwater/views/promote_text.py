"""Promotions of forks, with what both streams wrote, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote
from typing import Any

from headwater.checkpoint.record import uri_kind
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
        ("fork", f"{plan.fork.location} {_fork_after(plan)}"),
        *_sink_facts(plan),
        ("afterwards", f"the path and the name of {plan.original.location} refer to the fork"),
    ]
    return PlanText(f"Promote {plan.fork.location} in place of {plan.original.location}", tuple(facts), plan.warnings)


def _fork_after(plan: PromotePlan) -> str:
    if not plan.runs[1]:
        return "is not running"
    if plan.takeover is None:
        return "keeps running"
    return "is running and will be stopped after its batch; start it again with the sink of the original"


def _sink_facts(plan: PromotePlan) -> list[tuple[str, str]]:
    """Describe what happens to both sinks, if the fork continues in that of the original."""
    if plan.takeover is None:
        return []
    theirs, own = (sink.partition("?")[0] if sink else "" for sink in plan.sinks)
    since = "" if plan.at is None else f" since batch {plan.at}"
    leaving = plan.takeover.leaving
    aside = f"{count(leaving, 'file')} that the original has written{since} {'is' if leaving == 1 else 'are'} set aside"
    if uri_kind(theirs) == "delta":
        aside = f"one commit removes {count(leaving, 'file')} that the original has written{since}"
    return [
        (
            "sink",
            f"{theirs}: the fork continues here, with {count(len(plan.takeover.files), 'file')} of its own; {aside}",
        ),
        ("own sink", f"{own} keeps its files, and is no longer written to"),
    ]


def start_command(plan: PromotePlan) -> str:
    """Return the command that starts a promoted fork in the sink of the original."""
    job, place, sink = (quote(word) for word in (plan.reference or "JOB", plan.original.location, plan.sinks[0] or ""))
    return f"headwater run {job} --checkpoint {place} --sink {sink}"


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
    facts = [("original", f"{plan.original.location} can be started again, and resumes where it stopped")]
    if plan.takeover is None:
        facts.append(("fork", f"{plan.pointer.to} stays as it is, under its own path"))
    else:
        newer = plan.takeover.newer
        since = f"; it gets the rows of {batch_span(newer[0], newer[-1])}, which ran since" if newer else ""
        facts += [
            ("fork", f"{plan.pointer.to} stays, under its own path"),
            ("sink", "the sink of the original has exactly what it had before the promotion"),
            ("own sink", f"the fork continues in its own{since}"),
        ]
    return PlanText(f"Undo the promotion of {plan.pointer.to}", tuple(facts))


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
