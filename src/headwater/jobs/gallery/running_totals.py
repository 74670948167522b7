"""Each user's running total in custom state: a value that we read and write ourselves, and that never ends.

Nothing lets a user go but ``ttl``: with ttl="7 days" Spark forgets a user seven days (of the clock, not of event time)
after the last purchase. Without it the state grows with the number of users. For a plain sum Spark has an operator of
its own, and form="built_in" uses that: the same totals, several times as fast. Custom state is for what no operator does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater import Console, Job
from headwater.jobs.gallery._durations import milliseconds
from headwater.jobs.gallery._purchases import PURCHASES


class RunningTotal(StatefulProcessor):
    """One instance works through the users of a partition; Spark makes the state that of the user in hand."""

    def __init__(self, ttl: str) -> None:
        self.ttl_ms = milliseconds(ttl) if ttl else None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Add the purchases of this batch to the user's total, and give the new total."""
        (total,) = self.total.get() or (0,)
        total += sum(row.shopping or 0 for row in rows)
        self.total.update((total,))
        yield Row(user=key[0], total=total)


def running_totals(purchases: DataFrame, *, form: str = "custom_state", ttl: str = "") -> DataFrame:
    """Each user's total over everything bought so far. ``form`` is custom_state, where ttl="7 days" lets silent users
    go, or built_in.
    """
    if form == "built_in" and not ttl:
        return purchases.groupBy("user").agg(F.coalesce(F.sum("shopping"), F.lit(0)).alias("total"))
    if form != "custom_state":
        raise ValueError(f"form={form!r}, ttl={ttl!r}: custom_state, or built_in without a ttl is wanted")
    return purchases.groupBy("user").transformWithState(
        RunningTotal(ttl), "user STRING, total BIGINT", "Update", "ProcessingTime" if ttl else "None"
    )


def totals_in_state(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The state as users and their totals, in either form; with a ttl the time of expiry stands next to the value."""
    mine = [
        (row["key"]["user"], row["value"].get("value", row["value"])) for row in rows if row["var"] in (None, "total")
    ]
    return [{"user": user, "total": value.get("total", value.get("sum"))} for user, value in mine]


RUNNING_TOTALS = Job(
    "running-totals",
    running_totals,
    reads=PURCHASES,
    writes=Console(),
    mode="update",
    # With a ttl Spark would run empty batches without end, to look at the clock.
    conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    state_view=totals_in_state,
)
