"""Each user's running total in custom state: a value per user that the job itself reads and updates.

Without ``ttl`` nothing expires, and the state grows with the number of users. With ttl="7 days" Spark removes a user
seven days after the last purchase, by the wall clock and not by event time. Spark has a built-in operator for a plain
sum: form="built_in" uses it and computes the same totals several times as fast. Custom state is for logic that no
built-in operator covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater import Console, Job
from headwater.jobs.gallery._durations import milliseconds
from headwater.jobs.gallery._records import PURCHASES


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


def running_totals(purchases: DataFrame, *, form: str = "custom_state", ttl: str = "") -> DataFrame:
    """Each user's total of all purchases so far.

    ``form`` is custom_state, where ttl="7 days" removes inactive users, or built_in.
    """
    if form == "built_in" and not ttl:
        return purchases.groupBy("user").agg(F.coalesce(F.sum("shopping"), F.lit(0)).alias("total"))
    if form != "custom_state":
        raise ValueError(f"form={form!r}, ttl={ttl!r}: use custom_state, or built_in without a ttl")
    return purchases.groupBy("user").transformWithState(
        RunningTotal(ttl), "user STRING, total BIGINT", "Update", "ProcessingTime" if ttl else "None"
    )


def totals_in_state(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Show the state of either form as users and totals. With a ttl, Spark wraps the value together with its expiry time."""
    totals = [
        (row["key"]["user"], row["value"].get("value", row["value"])) for row in rows if row["var"] in (None, "total")
    ]
    return [{"user": user, "total": value.get("total", value.get("sum"))} for user, value in totals]


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
