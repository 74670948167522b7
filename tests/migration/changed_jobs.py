"""Jobs before and after a change, for every stateful operator, and how each change is to be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from headwater import Console, Files, Job, Rate

EVENT = "user STRING, kind STRING, amount INT, at TIMESTAMP"
CLICK = "ad STRING, clicker STRING, clicked_at TIMESTAMP"
TOTALS = "user STRING, total BIGINT"
Transform = Callable[..., DataFrame]

SAME, COMPATIBLE, MEANING = "same", "compatible", "changes-meaning"
MIGRATE, NEW = "needs-migrate", "needs-new-checkpoint"


def event_job(transform: Transform, mode: str, **more: Any) -> Job:
    return Job("changed", transform, reads=Files("events", schema=EVENT), writes=Console(), mode=mode, **more)


def join_job(transform: Transform) -> Job:
    sources = {"shown": Files("events", schema=EVENT), "clicked": Files("clicks", schema=CLICK)}
    return Job("changed", transform, reads=sources, writes=Console(), mode="append")


# ------------------------------------------------------------------------------------------------- aggregations


def windows(
    *aggregates: Any,
    keys: tuple[Any, ...] = ("user",),
    window: Any = None,
    watermark: str = "10 minutes",
    before: Transform = lambda events: events,
    after: Transform = lambda rows: rows,
) -> Transform:
    def transform(events: DataFrame) -> DataFrame:
        made = [one() for one in aggregates] or [F.count("*").alias("n"), F.sum("amount").alias("total")]
        grouped = before(events).withWatermark("at", watermark).groupBy((window or _five_minutes)(), *keys)
        return after(grouped.agg(*made))

    return transform


def _five_minutes() -> Any:
    return F.window("at", "5 minutes")


def count_rows() -> Any:
    return F.count("*").alias("n")


def total() -> Any:
    return F.sum("amount").alias("total")


def letters() -> Any:
    return F.sum(F.length("kind")).alias("letters")


def largest() -> Any:
    return F.max("at").alias("last")


def updated(transform: Transform) -> Job:
    return event_job(transform, "update")


def selected(*columns: str) -> Transform:
    """Return a projection above the aggregation. It decides in which order Spark stores the aggregates."""
    return lambda rows: rows.select("window", "user", *columns)


AGGREGATION = updated(windows())
TWO_SUMS = updated(windows(total, letters))


def globally(*aggregates: Any, where: str = "true") -> Job:
    def transform(events: DataFrame) -> DataFrame:
        rows = events if where == "true" else events.where(where)
        return rows.groupBy().agg(*[one() for one in aggregates])

    return event_job(transform, "complete")


def sessions(*aggregates: Any, gap: str = "4 minutes", keys: tuple[str, ...] = ("user",)) -> Job:
    def session() -> Any:
        return F.session_window("at", gap)

    return event_job(windows(*aggregates, keys=keys, window=session), "append")


# ----------------------------------------------------------------------------------- deduplication, limits, joins


def distinct(*keys: str, watermark: str = "10 minutes", within: bool = False, where: str | None = None) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        rows = (events.where(where) if where else events).withWatermark("at", watermark)
        return rows.dropDuplicatesWithinWatermark([*keys]) if within else rows.dropDuplicates([*keys])

    return event_job(transform, "append")


def limited(rows: int) -> Job:
    return event_job(lambda events: events.limit(rows), "append")


def joined(
    *,
    minutes: int = 10,
    how: str = "inner",
    columns: tuple[str, ...] = ("user", "clicker"),
    watermark: str = "10 minutes",
    swapped: bool = False,
    on: str = "kind = ad",
) -> Job:
    def transform(shown: DataFrame, clicked: DataFrame) -> DataFrame:
        left = shown.withWatermark("at", watermark)
        right = clicked.withWatermark("clicked_at", "10 minutes")
        within = f"{on} AND clicked_at >= at AND clicked_at <= at + INTERVAL {minutes} MINUTES"
        both = right.join(left, F.expr(within), how) if swapped else left.join(right, F.expr(within), how)
        return both.select("kind", *columns)

    return join_job(transform)


def chained(outer: str = "10 minutes", inner: str = "5 minutes", *, with_total: bool = False) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        lower = windows(count_rows, window=lambda: F.window("at", inner))(events)
        sums = [F.sum("n").alias("n"), *([F.count("*").alias("users")] if with_total else [])]
        return lower.groupBy(F.window(F.window_time("window"), outer)).agg(*sums)

    return event_job(transform, "append")


def deduplicated_windows(events: DataFrame) -> DataFrame:
    rows = events.withWatermark("at", "10 minutes").dropDuplicates(["user", "at"])
    return rows.groupBy(F.window("at", "5 minutes"), "user").agg(count_rows(), total())


def two_sources(transform: Transform) -> Job:
    sources = {"events": Files("events", schema=EVENT), "more": Files("more", schema=EVENT)}
    return Job("changed", transform, reads=sources, writes=Console(), mode="update")


def one_named_source(transform: Transform) -> Job:
    return Job("changed", transform, reads={"events": Files("events", schema=EVENT)}, writes=Console(), mode="update")


def united(events: DataFrame, more: DataFrame) -> DataFrame:
    return windows()(events.unionByName(more))


def windows_of_named(events: DataFrame) -> DataFrame:
    return windows()(events)


def windows_of_rate(rate: DataFrame) -> DataFrame:
    events = rate.selectExpr("string(value) user", "string(value) kind", "int(value) amount", "timestamp at")
    return windows()(events)


# ------------------------------------------------------------------------------------------------- state functions


def running_total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    so_far = state.get[0] if state.exists else 0
    so_far += sum(int(frame["amount"].sum()) for frame in frames)
    state.update((so_far, *(0 for _ in range(len(state.get) - 1))) if state.exists else (so_far,))
    yield pd.DataFrame({"user": [str(key[0])], "total": [so_far]})


def running_count(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    so_far = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((so_far,))
    yield pd.DataFrame({"user": [str(key[0])], "total": [so_far]})


def wide_total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    so_far = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((so_far, "note"))
    yield pd.DataFrame({"user": [str(key[0])], "total": [so_far]})


def group_state(
    function: Any = running_total, state: str = "total BIGINT", timeout: str = "NoTimeout", key: str = "user"
) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        rows = events.withWatermark("at", "10 minutes")
        return rows.groupBy(key).applyInPandasWithState(function, TOTALS, state, "update", timeout)

    return event_job(transform, "update")


class Totals(StatefulProcessor):
    """A running total for each user, as a value; subclasses change the state."""

    schema = "total BIGINT"

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", self.schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        so_far = self._total.get()[0] if self._total.exists() else 0
        so_far += self._amount(rows)
        self._total.update((so_far, *self._rest()))
        yield self._output(str(key[0]), so_far)

    def _amount(self, rows: Any) -> int:
        return sum(row.amount for row in rows)

    def _rest(self) -> tuple[Any, ...]:
        return ()

    def _output(self, user: str, so_far: int) -> Any:
        return Row(user=user, total=so_far)

    def close(self) -> None:
        pass


class DoubledTotals(Totals):
    def _amount(self, rows: Any) -> int:
        return 2 * sum(row.amount for row in rows)


class WideTotals(Totals):
    schema = "total BIGINT, note STRING"

    def _rest(self) -> tuple[Any, ...]:
        return ("note",)


class TotalsAndVisits(Totals):
    def init(self, handle: Any) -> None:
        super().init(handle)
        self._visits = handle.getListState("visits", "amount INT")


class TotalsAsList(Totals):
    def init(self, handle: Any) -> None:
        self._list = handle.getListState("total", self.schema)
        self._total = handle.getValueState("sum", self.schema)


class TotalsInPandas(Totals):
    def _amount(self, rows: Any) -> int:
        return sum(int(frame["amount"].sum()) for frame in rows)

    def _output(self, user: str, so_far: int) -> Any:
        import pandas as pd

        return pd.DataFrame({"user": [user], "total": [so_far]})


class WideTotalsInPandas(TotalsInPandas):
    schema = "total BIGINT, note STRING"

    def _rest(self) -> tuple[Any, ...]:
        return ("note",)


def processor(
    made: Callable[[], StatefulProcessor] = Totals, output: str = "Update", clock: str = "None", key: str = "user"
) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        return events.groupBy(key).transformWithState(made(), TOTALS, output, clock)

    return event_job(transform, output.lower())


def processor_in_pandas(made: Callable[[], StatefulProcessor] = TotalsInPandas) -> Job:
    def transform(events: DataFrame) -> DataFrame:
        return events.groupBy("user").transformWithStateInPandas(made(), TOTALS, "Update", "None")

    return event_job(transform, "update")


# ----------------------------------------------------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Change:
    """A job before and after a change, on a state store, and the verdict that is right."""

    name: str
    old: Job
    new: Job
    verdict: str
    store: str = "changelog"
    conf: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False


def _with_amount(expression: str) -> Transform:
    return lambda events: events.withColumn("amount", F.expr(expression))


def _renamed(events: DataFrame) -> DataFrame:
    return events.withColumnRenamed("user", "customer")


def _sliding() -> Any:
    return F.window("at", "10 minutes", "5 minutes")


def _ten_minutes() -> Any:
    return F.window("at", "10 minutes")


GLOBAL, SESSIONS, DISTINCT = globally(count_rows, total), sessions(count_rows), distinct("user", "at")
WITHIN, JOINED, CHAINED = distinct("user", within=True), joined(), chained()
GROUP_STATE, PROCESSOR, IN_PANDAS = group_state(), processor(), processor_in_pandas()
ONE_SOURCE, TWO_SOURCES = one_named_source(windows_of_named), two_sources(united)
STATELESS = updated(lambda events: events.where("amount > 1"))

CHANGES = [
    Change("aggregation-same", AGGREGATION, updated(windows()), SAME, "hdfs", quick=True),
    Change("aggregation-same-format2", AGGREGATION, updated(windows()), SAME, "format2"),
    Change(
        "aggregation-output-renamed",
        AGGREGATION,
        updated(windows(lambda: F.count("*").alias("count"), lambda: F.sum("amount").alias("sum"))),
        SAME,
    ),
    Change(
        "aggregation-result-changed",
        AGGREGATION,
        updated(windows(after=lambda rows: rows.selectExpr("window", "user", "n * 2 AS twice", "total"))),
        SAME,
        "rocksdb",
    ),
    Change("aggregation-key-renamed", AGGREGATION, updated(windows(keys=("customer",), before=_renamed)), COMPATIBLE),
    Change("aggregation-window", AGGREGATION, updated(windows(window=_ten_minutes)), MEANING, quick=True),
    Change("aggregation-window-hdfs", AGGREGATION, updated(windows(window=_ten_minutes)), MEANING, "hdfs"),
    Change("aggregation-window-format2", AGGREGATION, updated(windows(window=_ten_minutes)), MEANING, "format2"),
    Change("aggregation-sliding", AGGREGATION, updated(windows(window=_sliding)), MIGRATE),
    Change(
        "aggregation-expression",
        AGGREGATION,
        updated(windows(count_rows, lambda: F.sum(F.col("amount") * 100).alias("total"))),
        MEANING,
        "rocksdb",
    ),
    Change(
        "aggregation-column-below",
        AGGREGATION,
        updated(windows(before=_with_amount("amount * 100"))),
        MEANING,
        quick=True,
    ),
    Change("aggregation-filter", AGGREGATION, updated(windows(before=lambda rows: rows.where("amount > 1"))), MEANING),
    Change("aggregation-watermark", AGGREGATION, updated(windows(watermark="20 minutes")), MEANING, "hdfs"),
    Change("aggregation-order", AGGREGATION, updated(windows(total, count_rows)), MIGRATE),
    Change("aggregation-sums-swapped", TWO_SUMS, updated(windows(letters, total)), MEANING, quick=True),
    Change(
        "aggregation-selected-in-another-order",
        TWO_SUMS,
        updated(windows(total, letters, after=selected("letters", "total"))),
        MEANING,
        quick=True,
    ),
    Change(
        "aggregation-selected-in-the-former-order",
        TWO_SUMS,
        updated(windows(letters, total, after=selected("total", "letters"))),
        SAME,
        "hdfs",
    ),
    Change(
        "aggregation-not-selected",
        AGGREGATION,
        updated(windows(largest, count_rows, total, after=selected("n", "total"))),
        SAME,
    ),
    Change("aggregation-other-key", AGGREGATION, updated(windows(keys=("kind",))), MEANING),
    Change("aggregation-added", AGGREGATION, updated(windows(count_rows, total, largest)), MIGRATE, quick=True),
    Change("aggregation-added-hdfs", AGGREGATION, updated(windows(count_rows, total, largest)), MIGRATE, "hdfs"),
    Change("aggregation-added-rocksdb", AGGREGATION, updated(windows(count_rows, total, largest)), MIGRATE, "rocksdb"),
    Change("aggregation-added-format2", AGGREGATION, updated(windows(count_rows, total, largest)), MIGRATE, "format2"),
    Change("aggregation-dropped", AGGREGATION, updated(windows(count_rows)), MIGRATE, "hdfs"),
    Change(
        "aggregation-average", AGGREGATION, updated(windows(count_rows, lambda: F.avg("amount").alias("a"))), MIGRATE
    ),
    Change(
        "aggregation-widened",
        AGGREGATION,
        updated(windows(before=_with_amount("double(amount)"))),
        MIGRATE,
        "rocksdb",
    ),
    Change("aggregation-key-added", AGGREGATION, updated(windows(keys=("user", "kind"))), MIGRATE),
    Change("aggregation-key-type", AGGREGATION, updated(windows(keys=("amount",))), MIGRATE, "hdfs"),
    Change("aggregation-key-dropped", AGGREGATION, updated(windows(keys=())), MIGRATE, "format2"),
    Change("aggregation-dedup-added", AGGREGATION, updated(deduplicated_windows), MIGRATE, quick=True),
    Change("aggregation-dedup-added-hdfs", AGGREGATION, updated(deduplicated_windows), MIGRATE, "hdfs"),
    Change("aggregation-dedup-removed", updated(deduplicated_windows), AGGREGATION, MIGRATE),
    Change("aggregation-dedup-removed-format2", updated(deduplicated_windows), AGGREGATION, MIGRATE, "format2"),
    Change("aggregation-to-dedup", event_job(windows(), "append"), DISTINCT, NEW),
    Change("aggregation-append", AGGREGATION, event_job(windows(), "append"), MEANING),
    Change("aggregation-complete", AGGREGATION, event_job(windows(), "complete"), MEANING, "hdfs"),
    Change(
        "aggregation-partitions",
        AGGREGATION,
        updated(windows()),
        COMPATIBLE,
        conf={"spark.sql.shuffle.partitions": "3"},
    ),
    Change(
        "aggregation-other-store",
        AGGREGATION,
        updated(windows()),
        COMPATIBLE,
        "hdfs",
        conf={
            "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
            "RocksDBStateStoreProvider"
        },
    ),
    Change("aggregation-another-source", ONE_SOURCE, TWO_SOURCES, MIGRATE, quick=True),
    Change("aggregation-another-source-hdfs", ONE_SOURCE, TWO_SOURCES, MIGRATE, "hdfs"),
    Change("aggregation-named-and-another-source", AGGREGATION, TWO_SOURCES, MIGRATE),
    Change("aggregation-one-source-less", TWO_SOURCES, ONE_SOURCE, MIGRATE),
    Change("aggregation-one-source-less-format2", TWO_SOURCES, ONE_SOURCE, MIGRATE, "format2"),
    Change(
        "aggregation-source-kind",
        AGGREGATION,
        Job("changed", windows_of_rate, reads=Rate(1), writes=Console(), mode="update"),
        NEW,
    ),
    Change("global-same", GLOBAL, globally(count_rows, total), SAME, quick=True),
    Change("global-added", GLOBAL, globally(count_rows, total, largest), MIGRATE),
    Change("global-filter", GLOBAL, globally(count_rows, total, where="amount > 2"), MEANING, "hdfs"),
    Change("sessions-same", SESSIONS, sessions(count_rows), SAME, "rocksdb"),
    Change("sessions-gap", SESSIONS, sessions(count_rows, gap="6 minutes"), MEANING, quick=True),
    Change("sessions-gap-hdfs", SESSIONS, sessions(count_rows, gap="6 minutes"), MEANING, "hdfs"),
    Change("sessions-added", SESSIONS, sessions(count_rows, largest), MIGRATE, "hdfs"),
    Change("sessions-key", SESSIONS, sessions(count_rows, keys=("user", "kind")), MIGRATE),
    Change("sessions-other-key", SESSIONS, sessions(count_rows, keys=("kind",)), MEANING, "format2"),
    Change("dedup-same", DISTINCT, distinct("user", "at"), SAME, "hdfs"),
    Change("dedup-other-key", DISTINCT, distinct("kind", "at"), MEANING, quick=True),
    Change("dedup-key-added", DISTINCT, distinct("user", "kind", "at"), MIGRATE, "hdfs"),
    Change("dedup-key-dropped", DISTINCT, distinct("user"), MIGRATE, "rocksdb"),
    Change("dedup-watermark", DISTINCT, distinct("user", "at", watermark="1 hour"), MEANING, "format2"),
    Change("dedup-filter", DISTINCT, distinct("user", "at", where="amount > 1"), MEANING),
    Change("dedup-to-within", DISTINCT, distinct("user", "at", within=True), NEW),
    Change("within-same", WITHIN, distinct("user", within=True), SAME),
    Change("within-other-key", WITHIN, distinct("kind", within=True), MEANING, "hdfs"),
    Change("within-key-type", WITHIN, distinct("amount", within=True), MIGRATE),
    Change("within-watermark", WITHIN, distinct("user", within=True, watermark="1 minute"), MEANING, "format2"),
    Change("join-same", JOINED, joined(), SAME, "hdfs"),
    Change("join-condition", JOINED, joined(minutes=20), MEANING, quick=True),
    Change("join-type", JOINED, joined(how="left"), MIGRATE, "rocksdb"),
    Change("join-column-added", JOINED, joined(columns=("user", "clicker", "amount")), MIGRATE, "hdfs"),
    Change("join-column-dropped", JOINED, joined(columns=("clicker",)), MIGRATE, "format2"),
    Change("join-watermark", JOINED, joined(watermark="1 hour"), MEANING),
    Change("join-sides", JOINED, joined(swapped=True), NEW),
    Change("join-other-key", JOINED, joined(on="user = ad"), MEANING),
    Change("function-same", GROUP_STATE, group_state(), SAME, "hdfs"),
    Change("function-edited", GROUP_STATE, group_state(running_count), COMPATIBLE),
    Change("function-state", GROUP_STATE, group_state(wide_total, "total BIGINT, note STRING"), MIGRATE, "rocksdb"),
    Change("function-state-type", GROUP_STATE, group_state(running_total, "total STRING"), MIGRATE, "format2"),
    Change("function-timeout", GROUP_STATE, group_state(timeout="EventTimeTimeout"), MIGRATE),
    Change("function-key", GROUP_STATE, group_state(key="kind"), MEANING, "hdfs"),
    Change("processor-same", PROCESSOR, processor(), SAME, "rocksdb"),
    Change("processor-edited", PROCESSOR, processor(DoubledTotals), COMPATIBLE),
    Change("processor-value", PROCESSOR, processor(WideTotals), MIGRATE, quick=True),
    Change("processor-value-format2", PROCESSOR, processor(WideTotals), MIGRATE, "format2"),
    Change("processor-variable-added", PROCESSOR, processor(TotalsAndVisits), COMPATIBLE),
    Change("processor-variable-removed", processor(TotalsAndVisits), PROCESSOR, COMPATIBLE, "rocksdb"),
    Change("processor-variable-kind", PROCESSOR, processor(TotalsAsList), NEW),
    Change("processor-clock", PROCESSOR, processor(clock="ProcessingTime"), NEW),
    Change("processor-output", PROCESSOR, processor(output="Append"), NEW, "rocksdb"),
    Change("processor-key", PROCESSOR, processor(key="amount"), NEW),
    Change("pandas-same", IN_PANDAS, processor_in_pandas(), SAME),
    Change("pandas-value", IN_PANDAS, processor_in_pandas(WideTotalsInPandas), MIGRATE, "rocksdb"),
    Change("limit-same", limited(5), limited(5), SAME, "hdfs"),
    Change("limit-larger", limited(5), limited(9), MEANING),
    Change("chained-same", CHAINED, chained(), SAME, "hdfs"),
    Change("chained-outer", CHAINED, chained(outer="20 minutes"), MEANING, quick=True),
    Change("chained-inner", CHAINED, chained(inner="2 minutes"), MEANING, "format2"),
    Change("chained-added", CHAINED, chained(with_total=True), MIGRATE, "rocksdb"),
    Change("chained-removed", CHAINED, event_job(windows(count_rows), "append"), MIGRATE),
    Change("chained-outer-added", event_job(windows(count_rows), "append"), CHAINED, MIGRATE, "hdfs"),
    Change("chained-unlike", CHAINED, event_job(windows(largest, keys=("kind",)), "append"), NEW),
    Change("stateless-changed", STATELESS, updated(lambda events: events.where("amount > 2")), SAME, quick=True),
    Change("stateless-to-aggregation", STATELESS, AGGREGATION, NEW),
    Change("aggregation-to-stateless", AGGREGATION, STATELESS, NEW),
]
