"""Each user's total of the last 7 days: custom state that timers keep bounded.

The watermark is 7 days behind the latest purchase, so a purchase leaves the period exactly when the watermark reaches
its date. Each stored date has a timer for that moment. A user without any date left is no longer in the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater import Console, Job
from headwater.jobs.gallery._durations import date_at, midnight_ms, milliseconds
from headwater.jobs.gallery._records import PURCHASES


class TrailingTotal(StatefulProcessor):
    """Keeps the amount that a user spent on each date of the period."""

    def __init__(self, period: str) -> None:
        self.period_ms = milliseconds(period)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.purchases = handle.getMapState("purchases", "date DATE", "amount BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add the purchases of this batch and emit the total of the period that ends with the latest purchase."""
        spent = {day: amount for (day,), (amount,) in self.purchases.iterator()}
        for row in rows:
            if row.date not in spent:
                self.handle.registerTimer(midnight_ms(row.date))
            spent[row.date] = spent.get(row.date, 0) + (row.shopping or 0)
            self.purchases.updateValue((row.date,), (spent[row.date],))
        start_ms = max(timerValues.getCurrentWatermarkInMs(), midnight_ms(max(spent)) - self.period_ms)
        yield Row(user=key[0], total=sum(amount for day, amount in spent.items() if midnight_ms(day) > start_ms))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Remove a date that the watermark has reached, because it is no longer in the period."""
        self.purchases.removeKey((date_at(expiredTimerInfo.getExpiryTimeInMs()),))
        return iter(())


def weekly_totals(purchases: DataFrame, *, period: str = "7 days") -> DataFrame:
    """Each user's total over the 7 days that end with the latest purchase."""
    return (
        purchases.where("date IS NOT NULL")
        .withColumn("at", F.to_timestamp("date"))
        .withWatermark("at", period)
        .groupBy("user")
        .transformWithState(TrailingTotal(period), "user STRING, total BIGINT", "Update", "EventTime")
    )


def weeks_in_state(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Show the state as users, their totals and the date of their last purchase."""
    spent: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["var"] == "purchases":
            day, amount = row["value"]["user_map_key"]["date"], row["value"]["user_map_value"]["amount"]
            spent.setdefault(row["key"]["user"], {})[str(day)] = amount
    return [
        {"user": user, "total": sum(by_day.values()), "last_shopped": max(by_day)} for user, by_day in spent.items()
    ]


WEEKLY_TOTALS = Job(
    "weekly-totals", weekly_totals, reads=PURCHASES, writes=Console(), mode="update", state_view=weeks_in_state
)
