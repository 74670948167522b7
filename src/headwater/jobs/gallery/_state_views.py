"""State views of the jobs with several forms: the state of any form as rows that readers of the job understand."""

from __future__ import annotations

from datetime import date
from typing import Any

Rows = list[dict[str, Any]]


def totals_in_state(rows: Rows) -> Rows:
    """Show the state of any form of running-totals as users and totals."""
    return [
        {"user": row["key"]["user"], "total": _total(row["value"])} for row in rows if row["var"] in (None, "total")
    ]


def _total(value: dict[str, Any]) -> Any:
    """Return the total. With a ttl, Spark wraps it together with its expiry time; applyInPandasWithState wraps it too."""
    inner = value.get("value") or value.get("groupState") or value
    return inner["total"] if "total" in inner else inner["sum"]


def weeks_in_state(rows: Rows) -> Rows:
    """Show the state of weekly-totals: users with total and date of the last purchase, or with form=window each week."""
    weeks = [{**row["key"], "total": row["value"]["sum"]} for row in rows if row["var"] is None]
    spent: dict[str, dict[date, int]] = {}
    for row in rows:
        if row["var"] == "purchases":
            day, amount = row["value"]["user_map_key"]["date"], row["value"]["user_map_value"]["amount"]
            spent.setdefault(row["key"]["user"], {})[day] = amount
    # The date is written as in the input.
    totals = [
        {"user": user, "total": sum(by_day.values()), "lastshopped": f"{max(by_day):%d-%m-%Y}"}
        for user, by_day in spent.items()
    ]
    return weeks + totals
