"""Each user's running total in custom state: a value per user that the job itself reads and updates.

Without ``ttl`` nothing expires, and the state grows with the number of users. With ttl="7 days" Spark removes a user
seven days after the last purchase, by the wall clock and not by event time.

Three forms compute the same totals. ``custom_state`` is transformWithState. ``pandas`` is applyInPandasWithState,
PySpark's flatMapGroupsWithState. ``built_in`` is Spark's own operator for a sum, which is several times as fast: custom
state is for logic that no built-in operator covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState

from headwater import Console, Job
from headwater.jobs.gallery._durations import milliseconds
from headwater.jobs.gallery._records import PURCHASES
from headwater.jobs.gallery._state_views import totals_in_state

TOTALS = "user STRING, total BIGINT"


class RunningTotal(StatefulProcessor):
    """Adds purchases to a total. One instance handles all users of a partition; the state is that of the current user."""

    def __init__(self, ttl: str) -> None:
        self.ttl_ms = milliseconds(ttl) if ttl else None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Add the purchases of this batch to the user's total, and emit the new total."""
        (total,) = self.total.get() or (0,)
        total += sum(row.shopping or 0 for row in rows)
        self.total.update((total,))
        yield Row(user=key[0], total=total)


def running_total(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Do the same with pandas: Spark calls this function once per batch for each user with new purchases."""
    (total,) = state.get if state.exists else (0,)
    total += sum(int(frame["shopping"].sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"user": [key[0]], "total": [total]})


def running_totals(purchases: DataFrame, *, form: str = "custom_state", ttl: str = "") -> DataFrame:
    """Each user's total of all purchases so far; ``form`` is custom_state, pandas or built_in.

    With custom_state, ttl="7 days" removes inactive users.
    """
    users = purchases.groupBy("user")
    if form == "custom_state":
        return users.transformWithState(RunningTotal(ttl), TOTALS, "Update", "ProcessingTime" if ttl else "None")
    if form == "pandas" and not ttl:
        return users.applyInPandasWithState(running_total, TOTALS, "total BIGINT", "Update", "NoTimeout")
    if form == "built_in" and not ttl:
        return users.agg(F.coalesce(F.sum("shopping"), F.lit(0)).alias("total"))
    raise ValueError(f"form={form!r}, ttl={ttl!r}: use custom_state, or pandas or built_in without a ttl")


RUNNING_TOTALS = Job(
    "running-totals",
    running_totals,
    reads=PURCHASES,
    writes=Console(),
    mode="update",
    # With a ttl, Spark would otherwise keep running empty batches to check the clock.
    conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    state_view=totals_in_state,
)
