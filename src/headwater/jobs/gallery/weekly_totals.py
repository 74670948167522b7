"""Each user's total of a week, with state that is bounded in time, in two forms.

``custom_state`` keeps one total per user, over the 7 days that end with the latest purchase. The watermark is 7 days
behind the latest purchase, so a purchase leaves the period exactly when the watermark reaches its date. Each stored date
has a timer for that moment. A user without any date left is no longer in the state.

``window`` leaves the state to Spark: a sliding window per user, which Spark evicts when the watermark passes its end.
Each purchase counts in seven windows, one of which starts every day.
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
from headwater.jobs.gallery._state_views import weeks_in_state


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


def weekly_totals(
    purchases: DataFrame, *, form: str = "custom_state", period: str = "7 days", slide: str = "1 day"
) -> DataFrame:
    """Each user's total over the 7 days that end with the latest purchase, or with form=window over every 7-day window.

    With form=window, a window starts every ``slide``. With slide="7 days" each is a week from Thursday to Wednesday.
    """
    in_time = purchases.where("date IS NOT NULL").withColumn("at", F.to_timestamp("date")).withWatermark("at", period)
    if form == "custom_state":
        return in_time.groupBy("user").transformWithState(
            TrailingTotal(period), "user STRING, total BIGINT", "Update", "EventTime"
        )
    if form == "window":
        weeks = in_time.groupBy("user", F.window("at", period, slide))
        return weeks.agg(F.coalesce(F.sum("shopping"), F.lit(0)).alias("total"))
    raise ValueError(f"form={form!r}: use custom_state or window")


WEEKLY_TOTALS = Job(
    "weekly-totals", weekly_totals, reads=PURCHASES, writes=Console(), mode="update", state_view=weeks_in_state
)
