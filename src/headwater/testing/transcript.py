"""The story of a scenario so far, as a failing test prints it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from headwater.core.times import iso_from_ms, ms_from_iso

Row = Mapping[str, Any]


@dataclass
class BatchRun:
    """One run of one micro-batch."""

    batch_id: int
    emitted: list[dict[str, Any]]


@dataclass
class StepRecord:
    """What a test did, and what came of it."""

    action: str
    lines: list[str] = field(default_factory=list)
    runs: list[BatchRun] = field(default_factory=list)
    watermark_ms: int | None = None
    ended: str | None = None
    looked_at: bool = False

    @property
    def emitted(self) -> list[dict[str, Any]]:
        return [row for run in self.runs for row in run.emitted]


def canonical(value: Any) -> Any:
    """Rows as they are compared: times in one form, whether a test wrote them as text or as ``datetime``."""
    if isinstance(value, Mapping):
        return {str(name): canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return iso_from_ms(int(moment.timestamp() * 1000))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) >= 19 and value[4] == "-" and value[10] == "T":
        try:
            return iso_from_ms(ms_from_iso(value))
        except ValueError:
            return value
    return value


def as_text(row: Any) -> str:
    return json.dumps(canonical(row), sort_keys=True, ensure_ascii=False, default=str)


def difference(expected: Iterable[Row], found: Iterable[Row]) -> list[str]:
    """Lines marked ``-`` for rows that are missing and ``+`` for rows that nobody expected; empty when all is well."""
    wanted = sorted(as_text(row) for row in expected)
    given = sorted(as_text(row) for row in found)
    lines: list[str] = []
    for text in sorted(set(wanted) | set(given)):
        missing, extra = wanted.count(text) - given.count(text), given.count(text) - wanted.count(text)
        lines += [f"  - {text}"] * missing + [f"  + {text}"] * extra
    return lines


def story(job: str, steps: Sequence[StepRecord], complaint: Sequence[str]) -> str:
    """Every step so far, the complaint under the last one."""
    lines = [f"the story of {job} so far:"]
    for number, step in enumerate(steps, start=1):
        lines.append(f" {number}. {step.action}")
        lines += [f"      {line}" for line in step.lines[:20]]
        if len(step.lines) > 20:
            lines.append(f"      ... {len(step.lines) - 20} more")
        for run in step.runs:
            lines.append(f"    batch {run.batch_id} emitted {len(run.emitted) or 'nothing'}")
            lines += [f"      {as_text(row)}" for row in run.emitted[:50]]
        if step.watermark_ms:
            lines.append(f"    watermark {iso_from_ms(step.watermark_ms)}")
        if step.ended:
            lines.append(f"    {step.ended}")
    return "\n".join([*lines, "", *complaint])
