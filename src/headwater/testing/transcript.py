"""The transcript of a scenario, which a failing test prints."""

from __future__ import annotations

import json
from collections import Counter
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
    """What a test did in one step, and the result."""

    action: str
    fed: dict[str, list[str]] = field(default_factory=dict)
    """The records by source."""
    runs: list[BatchRun] = field(default_factory=list)
    watermark_ms: int | None = None
    crash: str | None = None
    checked: bool = False

    @property
    def lines(self) -> list[str]:
        """The records as the transcript shows them."""
        return [f"{source}: {line}" if source else line for source, lines in self.fed.items() for line in lines]

    @property
    def emitted(self) -> list[dict[str, Any]]:
        return [row for run in self.runs for row in run.emitted]


def canonical(value: Any) -> Any:
    """Return a value as it is compared: with times in one form, whether the test has them as text or ``datetime``."""
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
    """Return a row as the transcript shows it and as it is compared."""
    return json.dumps(canonical(row), sort_keys=True, ensure_ascii=False, default=str)


def difference(expected: Iterable[Row], actual: Iterable[Row]) -> list[str]:
    """Return a line with ``-`` for each missing row and with ``+`` for each unexpected one."""
    expected_texts = Counter(map(as_text, expected))
    actual_texts = Counter(map(as_text, actual))
    missing, extra = expected_texts - actual_texts, actual_texts - expected_texts
    lines: list[str] = []
    for text in sorted(missing | extra):
        lines += [f"  - {text}"] * missing[text] + [f"  + {text}"] * extra[text]
    return lines


def transcript(job: str, steps: Sequence[StepRecord], message: Sequence[str]) -> str:
    """Return every step so far, followed by the message of the failed assertion."""
    lines = [f"transcript of {job}:"]
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
        if step.crash:
            lines.append(f"    {step.crash}")
    return "\n".join([*lines, "", *message])
