"""Golden files: raw input lines and the expected result, step by step.

A step sends lines. If the job names its sources, a line is an object with its ``source`` and its ``value`` instead, as
``headwater late --json`` prints a record. ``tables`` are the rows of the job's static tables; those of a step replace the
previous ones before it sends its lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from headwater import Job

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))

Step = dict[str, Any]
Line = str | dict[str, str]


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_source(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Return the lines that a step sends, by the name of their source; the name is empty if the job has none."""
    found: dict[str, list[str]] = {}
    for line in lines:
        source, value = ("", line) if isinstance(line, str) else (line["source"], line["value"])
        found.setdefault(source, []).append(value)
    return found


def put_table(folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Replace the rows of a static table in a folder, and return the folder's path."""
    folder.mkdir(exist_ok=True)
    draft = folder / ".draft"
    draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    draft.rename(folder / "rows.json")
    return str(folder)


def with_tables(job: Job, folder: Path, tables: Mapping[str, Sequence[dict[str, Any]]]) -> Job:
    """Return a job that reads its static tables from folders with these rows."""
    return job.with_inputs(
        {
            name: replace(static, table=replace(static.table, path=put_table(folder / name, tables[name])))
            for name, static in job.statics.items()
        }
    )


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
