"""State as a job's ``state_view`` shows it: the rows that the function returns, as a table."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.core.errors import JobFailed
from headwater.statefiles.answer import StateAnswer, rows_of

StateView = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def view_table(answers: Iterable[StateAnswer], view: StateView, job: str) -> pa.Table:
    """Return what a job's ``state_view`` makes of the rows of all its stores and variables."""
    rows: list[dict[str, Any]] = rows_of(answers)
    try:
        viewed = view(rows)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise JobFailed(
            "state-view-failed",
            f"the state_view of {job} failed",
            evidence={type(error).__name__: error, "in": f"{frame.filename}:{frame.lineno}"},
            remedy="fix the function, or omit --view to see the raw rows",
        ) from error
    try:
        return table_of(viewed)
    except (pa.ArrowException, OverflowError, TypeError, AttributeError) as error:
        raise JobFailed(
            "state-view-failed",
            f"the rows that the state_view of {job} returned do not form a table",
            evidence={"reason": error},
            remedy="return a list of dictionaries in which each name has values of one type",
        ) from error


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return dictionaries as a table. A column is null where a row lacks it."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
