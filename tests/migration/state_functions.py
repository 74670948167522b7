"""State functions before and after a change of the state that they keep. Workers get this module by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor

from headwater import Job
from migration.changed_jobs import event_job

OUTPUT = "user STRING, total BIGINT, note STRING"


def total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    so_far = (state.get[0] if state.exists else 0) + sum(int(frame["amount"].sum()) for frame in frames)
    state.update((so_far,))
    yield pd.DataFrame({"user": [str(key[0])], "total": [so_far], "note": ["none"]})


def noted_total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """Return the note of the batch before, which shows a migrated one."""
    import pandas as pd

    so_far, note = (state.get[1], state.get[0]) if state.exists else (0, "new")
    so_far += sum(int(frame["amount"].sum()) for frame in frames)
    state.update((f"was {so_far}", so_far))
    yield pd.DataFrame({"user": [str(key[0])], "total": [so_far], "note": [str(note)]})


def group_state(function: Any, state: str) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        return events.groupBy("user").applyInPandasWithState(function, OUTPUT, state, "update", "NoTimeout")

    return event_job(transform, "update")


class Purchases(StatefulProcessor):
    """Keeps a value, a list and a map for each user, and an event-time timer that removes the list."""

    value, element, entry = "total BIGINT", "amount INT", "n BIGINT"

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", self.value)
        self._recent = handle.getListState("recent", self.element)
        self._by_kind = handle.getMapState("by_kind", "kind STRING", self.entry)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        for row in rows:
            so_far = self._total.get()[0] if self._total.exists() else 0
            self._total.update(self._new_total(so_far + row.amount))
            self._recent.appendValue(self._new_element(row))
            known = self._by_kind.getValue((row.kind,)) if self._by_kind.containsKey((row.kind,)) else (0,)
            self._by_kind.updateValue((row.kind,), self._new_entry(known[0] + 1))
        self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 60_000)
        yield self._shown(str(key[0]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        self._recent.clear()
        yield Row(user=str(key[0]), total=0, note="expired")

    def _shown(self, user: str) -> Any:
        recent = [tuple(one) for one in self._recent.get()]
        kinds = sorted((tuple(kind), tuple(entry)) for kind, entry in self._by_kind.iterator())
        return Row(user=user, total=self._total.get()[0], note=str((tuple(self._total.get()), recent, kinds)))

    def _new_total(self, total: int) -> tuple[Any, ...]:
        return (total,)

    def _new_element(self, row: Any) -> tuple[Any, ...]:
        return (row.amount,)

    def _new_entry(self, n: int) -> tuple[Any, ...]:
        return (n,)

    def close(self) -> None:
        pass


class WiderPurchases(Purchases):
    """The same with more fields, and with a wider type in the list."""

    value, element, entry = "total BIGINT, doubled BIGINT", "amount BIGINT, note STRING", "n BIGINT, note STRING"

    def _new_total(self, total: int) -> tuple[Any, ...]:
        return (total, 2 * total)

    def _new_element(self, row: Any) -> tuple[Any, ...]:
        return (row.amount, f"of {row.user}")

    def _new_entry(self, n: int) -> tuple[Any, ...]:
        return (n, "seen")


class ExpiringTotals(Purchases):
    """A total with a time-to-live."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", self.value, 3_600_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        so_far = self._total.get()[0] if self._total.exists() else 0
        self._total.update(self._new_total(so_far + sum(row.amount for row in rows)))
        yield Row(user=str(key[0]), total=self._total.get()[0], note=str(tuple(self._total.get())))


class WiderExpiringTotals(ExpiringTotals):
    value = "total BIGINT, doubled BIGINT"

    def _new_total(self, total: int) -> tuple[Any, ...]:
        return (total, 2 * total)


class PandasTotals(Purchases):
    """A total in ``transformWithStateInPandas``."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", self.value)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import pandas as pd

        so_far = self._total.get()[0] if self._total.exists() else 0
        self._total.update(self._new_total(int(so_far) + sum(int(frame["amount"].sum()) for frame in rows)))
        stored = [int(one) for one in self._total.get()]
        yield pd.DataFrame({"user": [str(key[0])], "total": [stored[0]], "note": [str(stored)]})


class WiderPandasTotals(PandasTotals):
    value = "total BIGINT, doubled BIGINT"

    def _new_total(self, total: int) -> tuple[Any, ...]:
        return (total, 2 * total)


def pandas_processor(made: type[StatefulProcessor]) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        return events.groupBy("user").transformWithStateInPandas(made(), OUTPUT, "Update", "None")

    return event_job(transform, "update")


def processor(made: type[StatefulProcessor], clock: str = "EventTime") -> Job:
    def transform(events: DataFrame) -> DataFrame:
        timed = events.withWatermark("at", "1 minute") if clock == "EventTime" else events
        return timed.groupBy("user").transformWithState(made(), OUTPUT, "Update", clock)

    return event_job(transform, "update")
