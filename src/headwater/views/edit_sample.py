"""Rows before and after an edit, for the terminal and for JSON."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from headwater.timemachine.edit_plan import EditPlan
from headwater.views.state_cells import Cells

_SIGNS = {(False, True): "+", (True, False): "-", (True, True): "~"}


def edit_as_dict(plan: EditPlan) -> dict[str, Any]:
    """Return a plan as ``edit --json`` prints it."""
    found = plan.as_dict()
    return found | {"sample": [plain(pair) for pair in found["sample"]]}


def edit_cells(plan: EditPlan) -> Cells:
    """Return a sign and the columns of each row of the sample, as ``old → new`` where it differs."""
    columns = list(dict.fromkeys(name for pair in plan.rows.sample for row in pair for name in row or {}))
    rows: list[tuple[str | None, ...]] = []
    for before, after in plan.rows.sample:
        sign = _SIGNS[before is not None, after is not None]
        rows.append((sign, *(transition(before, after, name) for name in columns)))
    return Cells(["", *columns], rows, plan.rows.total)


def transition(before: dict[str, Any] | None, after: dict[str, Any] | None, name: str) -> str:
    """Return a column of a row before and after a change: its value, or ``old → new`` if it differs."""
    texts = [_text(row[name]) for row in (before, after) if row is not None and name in row]
    return texts[0] if len(set(texts)) == 1 else " → ".join(texts)


def _text(value: Any) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a Python value as JSON has it: times in ISO 8601, bytes in base64."""
    match value:
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | timedelta():
            return str(value)
        case _:
            return value
