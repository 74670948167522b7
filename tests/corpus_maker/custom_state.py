"""Custom state for the corpus: a value, a list, a map and timers in one processor; and PySpark's older form."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row

try:
    from pyspark.sql.streaming import StatefulProcessor
except ImportError:  # Spark 3.5 does not have it
    StatefulProcessor = object

OUTPUT = "user STRING, total BIGINT, n BIGINT, kinds BIGINT, closed BOOLEAN"
PANDAS_STATE = "total BIGINT, n BIGINT, note STRING"
TIMEOUT_MS = 15 * 60_000


class Purchases(StatefulProcessor):  # type: ignore[misc, valid-type]
    """Per user: a running total (value), the last amounts (list) and amounts per kind (map).

    Without a time-to-live, an event-time timer closes the user after fifteen idle minutes.
    """

    TOTAL = "total BIGINT, n INT, last_at TIMESTAMP"

    def __init__(self, ttl_ms: int | None = None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", self.TOTAL, self._ttl_ms)
        self._recent = handle.getListState("recent", "amount BIGINT, kind STRING", self._ttl_ms)
        self._by_kind = handle.getMapState("by_kind", "kind STRING", "amount BIGINT, n INT", self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        total, n, last_at = self._total.get() if self._total.exists() else (0, 0, None)
        recent = list(self._recent.get()) if self._recent.exists() else []
        for row in sorted(_as_rows(rows), key=lambda row: (row.at, row.kind, row.amount)):
            total, n = total + row.amount, n + 1
            last_at = _utc(row.at) if last_at is None else max(_utc(last_at), _utc(row.at))
            recent = [*recent, (row.amount, row.kind)][-4:]
            seen = self._by_kind.getValue((row.kind,)) if self._by_kind.containsKey((row.kind,)) else (0, 0)
            self._by_kind.updateValue((row.kind,), (seen[0] + row.amount, seen[1] + 1))
            self._recent.appendValue((row.amount, row.kind))
        self._total.update((total, n, last_at))
        self._recent.put([tuple(item) for item in recent])
        if self._ttl_ms is None:
            for timer in [_first(timer) for timer in self._handle.listTimers()]:
                self._handle.deleteTimer(timer)
            self._handle.registerTimer(int(last_at.timestamp() * 1000) + TIMEOUT_MS)
        yield self._output(key[0], total, n, len(list(self._by_kind.keys())), False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        total, n, _ = self._total.get()
        kinds = len(list(self._by_kind.keys()))
        self._total.clear()
        self._recent.clear()
        self._by_kind.clear()
        yield self._output(key[0], total, n, kinds, True)

    def close(self) -> None:
        pass

    def _output(self, user: Any, total: int, n: int, kinds: int, closed: bool) -> Any:
        return Row(user=user, total=total, n=n, kinds=kinds, closed=closed)


class PurchasesInPandas(Purchases):
    """The same processor on pandas DataFrames, the only form that Spark 4.0 has."""

    def _output(self, user: Any, total: int, n: int, kinds: int, closed: bool) -> Any:
        import pandas as pd

        return pd.DataFrame({"user": [user], "total": [total], "n": [n], "kinds": [kinds], "closed": [closed]})


class EvolvedPurchases(Purchases):
    """The processor after a code change: the total has one more column, and there is one more variable."""

    TOTAL = f"{Purchases.TOTAL}, largest BIGINT"

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._total = _Padded(self._total)
        self._visits = handle.getValueState("visits", "visits BIGINT", self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        self._visits.update(((self._visits.get()[0] if self._visits.exists() else 0) + 1,))
        yield from super().handleInputRows(key, rows, timerValues)


class _Padded:
    """A value of four columns for code that uses three."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.exists, self.clear = state.exists, state.clear

    def get(self) -> Any:
        return tuple(self._state.get())[:3]

    def update(self, value: Any) -> None:
        self._state.update((*value, value[0]))


def running_total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """A per-user total that ends when the watermark passes the user's last event by fifteen minutes."""
    import pandas as pd

    closed = state.hasTimedOut
    total, n, _ = state.get if state.exists else (0, 0, "")
    if closed:
        state.remove()
    else:
        last_ms = 0
        for frame in frames:
            total, n = total + int(frame["amount"].sum()), n + len(frame)
            last_ms = max(last_ms, int(frame["at"].max().timestamp() * 1000))
        state.update((total, n, f"seen {n}"))
        state.setTimeoutTimestamp(max(last_ms, state.getCurrentWatermarkMs() + 1) + TIMEOUT_MS)
    yield pd.DataFrame({"user": [key[0]], "total": [total], "n": [n], "kinds": [None], "closed": [closed]})


def _as_rows(rows: Any) -> Iterator[Any]:
    for item in rows:
        if hasattr(item, "itertuples"):
            yield from item.itertuples(index=False)
        else:
            yield item


def _utc(at: datetime) -> datetime:
    """Return a time in UTC: rows have a time zone and state has none. The corpus is built with TZ=UTC."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _first(timer: Any) -> int:
    return int(timer[0] if isinstance(timer, tuple) else timer)
