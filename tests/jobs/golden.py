"""Golden files: raw input lines and the expected result, step by step."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))

Step = dict[str, Any]


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def exact(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as sorted JSON: the order of fields and the types of values matter, the order of rows does not."""
    return sorted(json.dumps(row) for row in rows)


def as_in_document(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``weekly_totals.json``'s state with the name and the date format of its source document.

    The golden file has ``last_shopped: 2020-04-20``. The document, and the job's ``state_view``, have
    ``lastshopped: 20-04-2020``.
    """
    others = {name: value for name, value in row.items() if name != "last_shopped"}
    return {**others, "lastshopped": f"{date.fromisoformat(row['last_shopped']):%d-%m-%Y}"}
