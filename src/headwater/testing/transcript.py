"""The transcript of a scenario, which a failing test prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from headwater.core.times import EPOCH, iso_from_ms

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


def canonical(value: Any, *, in_ms: bool = False) -> Any:
    """Return a value as it is compared: with times in one form, whether the test has them as text or ``datetime``."""
    if isinstance(value, Mapping):
        return {str(name): canonical(item, in_ms=in_ms) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item, in_ms=in_ms) for item in value]
    if isinstance(value, datetime):
        return _iso(value, in_ms=in_ms)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) >= 19 and value[4] == "-" and value[10] == "T":
        try:
            return _iso(datetime.fromisoformat(value), in_ms=in_ms)
        except ValueError:
            return value
    return value


def _iso(moment: datetime, *, in_ms: bool) -> str:
    """Return a time with milliseconds and, if it has them, with microseconds."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    milliseconds, rest = divmod((aware - EPOCH) // timedelta(microseconds=1), 1000)
    text = iso_from_ms(milliseconds)
    return text if in_ms or not rest else f"{text.removesuffix('Z')}{rest:03d}Z"


def as_text(row: Any, *, in_ms: bool = False) -> str:
    """Return a row as the transcript shows it and as it is compared."""
    return json.dumps(canonical(row, in_ms=in_ms), sort_keys=True, ensure_ascii=False, default=str)


def difference(expected: Iterable[Row], actual: Iterable[Row], *, in_ms: bool = False) -> list[str]:
    """Return a line with ``-`` for each missing row and with ``+`` for each unexpected one.

    With ``in_ms``, times are compared in milliseconds, the precision of the rows that Spark returns as JSON.
    """
    expected_texts = Counter(as_text(row, in_ms=in_ms) for row in expected)
    actual_texts = Counter(as_text(row, in_ms=in_ms) for row in actual)
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
