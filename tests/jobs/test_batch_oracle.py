"""The batch oracle: streaming over any split of the records, with restarts, has the result of one batch computation.

A model of Spark's rule excludes the late records of the same split. Jobs whose result depends on the split by design are
compared batch by batch instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from models import DAY_MS, WEEK_MS, date_of, sessions, weekly_totals
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from splits import Record, Split, last_by_key, modeled, modeled_join, static, streamed

from golden import exact, with_tables
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.jobs.loading import load_job
from headwater.spark.writing import captured_rows

MINUTE_MS = 60_000
START_MS = ms_from_iso("2024-03-01T00:00:00Z")
NAMES = ("Chrome", "Firefox", "Safari")

Lines = Callable[[Record], str]


@dataclass(frozen=True)
class Case:
    """A job, the format of its records, and what its operator compares with the watermark."""

    job: str
    line: Lines
    examples: int
    key: tuple[str, ...] = ()
    window_ms: int = 0
    delay_ms: int | None = None
    mode: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    batch: Callable[[DataFrame], DataFrame] | None = None

    def compared_ms(self, record: Record) -> int:
        return record.at_ms if not self.window_ms else (record.at_ms // self.window_ms + 1) * self.window_ms

    @property
    def label(self) -> str:
        return " ".join([self.job, *filter(None, [self.mode]), *(f"{name}={value}" for name, value in self.settings)])


def visit(one: Record) -> str:
    when = iso_from_ms(one.at_ms)
    return f'{{"userId": {one.amount}, "page": "p", "eventTime": "{when}", "browser": "{NAMES[one.who]}"}}'


def click(one: Record) -> str:
    return f'{{"event_id": "c", "visit_id": {one.who}, "event_time": "{iso_from_ms(one.at_ms)}"}}'


def sale(one: Record) -> str:
    when = iso_from_ms(one.at_ms)
    return f'{{"store": "s{one.who}", "counter": 1, "amount": {one.amount}, "sold_at": "{when}"}}'


def trade(one: Record) -> str:
    kind = ("buy", "sell")[one.amount % 2]
    when = f"{date_of(one.at_ms)}-{iso_from_ms(one.at_ms)[11:16].replace(':', '-')}"
    return f"{{'id': 'i{one.who}', 'amount': {one.amount}, 'type': '{kind}', 'time': '{when}'}}"


def purchase(one: Record) -> str:
    return f"{{'user': '{NAMES[one.who]}', 'shopping': {one.amount}, 'date': '{date_of(one.at_ms)}'}}"


def event(one: Record, user: str = "User") -> str:
    return f'{{"{user}": "{NAMES[one.who]}", "event_time": "{iso_from_ms(one.at_ms)}"}}'


def order(one: Record) -> str:
    return f'{{"order_id": {one.amount}, "order_status": "{NAMES[one.who]}"}}'


def words(one: Record) -> str:
    return f"{NAMES[one.who]}  {NAMES[one.amount % 3]} "


def native_totals(purchases: DataFrame) -> DataFrame:
    return purchases.groupBy("user").agg(F.sum("shopping").alias("total"))


AGGREGATING = [
    Case("browser-stats-stateful", visit, 1, ("browser", "window"), 5 * MINUTE_MS, 20 * MINUTE_MS),
    Case("visits-windows-counter", click, 1, ("window",), 10 * MINUTE_MS, 20 * MINUTE_MS),
    Case("retail-sales", sale, 1, ("window",), 15 * MINUTE_MS, 60 * MINUTE_MS),
    Case("retail-sales", sale, 1, mode="complete", settings=(("per", "total"),)),
    Case("profit-per-window", trade, 1, mode="complete"),
    Case("profit-per-id", trade, 1, mode="complete"),
    Case("profit-sliding", trade, 1, mode="complete"),
    Case("sliding-counts", event, 1, mode="complete", delay_ms=30 * MINUTE_MS),
    Case("word-count", words, 1, mode="complete"),
    Case("order-status", order, 1, mode="complete"),
    Case("order-status", order, 1, ("order_status",), mode="update"),
    Case("deduplicated-events", event, 1, ("User", "event_time"), delay_ms=30 * MINUTE_MS),
    Case("running-totals", purchase, 1, ("user",), batch=native_totals),
    Case("running-totals", purchase, 1, ("user",), settings=(("form", "pandas"),), batch=native_totals),
]

few_minutes = st.builds(
    Record, st.integers(0, 2), st.integers(0, 180).map(lambda minute: START_MS + minute * MINUTE_MS), st.integers(1, 99)
)
few_days = st.builds(
    Record, st.integers(0, 2), st.integers(0, 30).map(lambda day: START_MS + day * DAY_MS), st.integers(1, 99)
)


# An aggregation and custom state. The other jobs differ in their expressions and modes, which their golden files check.
IN_EVERY_RUN = {"browser-stats-stateful", "running-totals form=pandas"}


def parameter(case: Case) -> Any:
    return pytest.param(case, id=case.label, marks=[] if case.label in IN_EVERY_RUN else [pytest.mark.slow])


@pytest.fixture(params=[1, pytest.param(16, marks=pytest.mark.slow)], ids=["few", "many"])
def scale(request: pytest.FixtureRequest) -> int:
    """How many times as many examples to try."""
    return int(request.param)


def splits(records: st.SearchStrategy[Record]) -> st.SearchStrategy[Split[Record]]:
    batches = st.lists(st.lists(records, max_size=6), min_size=1, max_size=3)
    return st.lists(batches, min_size=2, max_size=2)


def examples(count: int, scale: int) -> Callable[..., Any]:
    """Return repeatable settings. Failing cases are not minimized, because they are small already."""
    return settings(
        max_examples=count * scale,
        deadline=None,
        derandomize=scale == 1,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def minute(number: int, who: int = 0) -> Record:
    return Record(who, START_MS + number * MINUTE_MS, 1 + number % 99)


# Late for every delay below: a batch drops by the watermark of the batch before it, so the third one does.
WITH_LATE = [[[minute(180)], [minute(170, 1)], [minute(0, 2), minute(175)]], [[minute(1), minute(179, 1)]]]


def as_lines(split: Split[Record], line: Lines) -> Split[str]:
    return [[[line(one) for one in records] for records in run] for run in split]


@pytest.mark.parametrize("case", [parameter(case) for case in AGGREGATING])
def test_streaming_equals_batch(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int, case: Case
) -> None:
    """Any split, with a restart, has the same final result as one batch over the records that are not late."""
    job = replace(load_job(case.job), settings=dict(case.settings))
    job = replace(job, mode=case.mode) if case.mode else job
    late = 0

    @examples(case.examples, scale)
    @given(splits(few_minutes))
    def check(split: Split[Record]) -> None:
        nonlocal late
        emitted = streamed(headwater_spark, job, as_lines(split, case.line), tmp_path_factory.mktemp("oracle"))
        fed = [one for run in split for records in run for one in records]
        if job.mode == "complete":
            found, kept = emitted[max(emitted)], fed
        else:
            found = last_by_key(emitted, case.key)
            batches = modeled(split, delay_ms=case.delay_ms, compared_ms=case.compared_ms)
            kept = [one for batch in batches for one in batch.on_time]
        late += len(fed) - len(kept)
        records = static(headwater_spark, job, [case.line(one) for one in kept])
        expected = (case.batch or job)(records)
        assert exact(found) == exact(captured_rows(expected))

    (example(WITH_LATE)(check) if case.delay_ms else check)()
    assert bool(late) == bool(case.delay_ms and job.mode != "complete"), (
        "the cases include late records if there can be any"
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [("browser-stats-stateless", visit), ("order-status-per-batch", order)],
)
@pytest.mark.slow
def test_stateless_counts_each_batch_by_itself(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int, name: str, line: Lines
) -> None:
    """A per-batch job emits for each micro-batch what its function returns for that batch alone."""
    job = load_job(name)

    @examples(1, scale)
    @given(splits(few_minutes))
    def check(split: Split[Record]) -> None:
        lines = as_lines(split, line)
        emitted = streamed(headwater_spark, job, lines, tmp_path_factory.mktemp("oracle"))
        batches = [records for run in lines for records in run]
        assert sorted(emitted) == list(range(len(batches)))
        for batch_id, records in enumerate(batches):
            alone = captured_rows(job(static(headwater_spark, job, records)))
            assert exact(emitted[batch_id]) == exact(alone)

    check()


def test_weekly_totals_follow_the_model(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int
) -> None:
    """weekly-totals emits in each batch the totals that the model computes."""
    job = load_job("weekly-totals")

    @examples(1, scale)
    @given(splits(few_days))
    def check(split: Split[Record]) -> None:
        emitted = streamed(headwater_spark, job, as_lines(split, purchase), tmp_path_factory.mktemp("oracle"))
        batches = modeled(split, delay_ms=WEEK_MS, compared_ms=lambda one: one.at_ms)
        same_batch_by_batch(emitted, weekly_totals(batches, lambda who: NAMES[who]))

    check()


@pytest.mark.parametrize(
    "form",
    ["session_window", *(pytest.param(form, marks=pytest.mark.slow) for form in ("transform_with_state", "pandas"))],
)
def test_sessions_follow_the_model(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int, form: str
) -> None:
    """Each form of user-sessions emits in each batch the sessions that the model closes."""
    job = replace(load_job("user-sessions"), settings={"form": form})
    gap_ms = 30 * MINUTE_MS

    @examples(2, scale)
    @given(splits(few_minutes))
    def check(split: Split[Record]) -> None:
        lines = as_lines(split, lambda one: event(one, user="user"))
        emitted = streamed(headwater_spark, job, lines, tmp_path_factory.mktemp("oracle"))
        batches = modeled(split, delay_ms=10 * MINUTE_MS, compared_ms=lambda one: one.at_ms + gap_ms)
        same_batch_by_batch(emitted, sessions(batches, lambda who: NAMES[who], gap_ms))

    check()


def shown(one: Record) -> str:
    return f'{{"impression": "i{one.who}", "ad": "a{one.amount}", "shown_at": "{iso_from_ms(one.at_ms)}"}}'


def clicked(one: Record) -> str:
    return f'{{"impression": "i{one.who}", "clicked_at": "{iso_from_ms(one.at_ms)}"}}'


JOINED = {"impressions": shown, "clicks": clicked}
FLUSH = {name: [Record(99, START_MS + 30 * DAY_MS, 99)] for name in JOINED}
JOINED_WITH_LATE = [
    [
        {"impressions": [minute(0), minute(180, 1)], "clicks": [minute(1), minute(180, 1)]},
        {"impressions": [minute(170, 2)], "clicks": [minute(171, 2)]},
        {"impressions": [minute(2)], "clicks": [minute(3), minute(181, 1)]},
    ],
    [{"impressions": [minute(182)], "clicks": [minute(4), minute(183)]}],
]
both = st.fixed_dictionaries({name: st.lists(few_minutes, max_size=6) for name in JOINED})


def test_a_join_of_streams_equals_a_join_of_tables(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int
) -> None:
    """Any split, with restarts, emits the outer join of the records that are not late, each row exactly once."""
    job = load_job("ad-attribution")
    late = clicks = 0

    @examples(1, scale)
    @example(JOINED_WITH_LATE)
    @given(st.lists(st.lists(both, min_size=1, max_size=3), min_size=2, max_size=2))
    def check(split: Split[dict[str, list[Record]]]) -> None:
        nonlocal late, clicks
        lines = [
            [{name: [line(one) for one in batch[name]] for name, line in JOINED.items()} for batch in run]
            for run in [*split, [FLUSH]]
        ]
        emitted = streamed(headwater_spark, job, lines, tmp_path_factory.mktemp("oracle"))
        found = [row for rows in emitted.values() for row in rows if row["impression"] != "i99"]
        kept = modeled_join(split, delay_ms=10 * MINUTE_MS)
        tables = {
            name: static(headwater_spark, job, [JOINED[name](one) for one in records], name)
            for name, records in kept.items()
        }
        assert exact(found) == exact(captured_rows(job(**tables)))
        late += sum(len(batch[name]) for run in split for batch in run for name in JOINED) - sum(
            map(len, kept.values())
        )
        clicks += sum(row["clicked_at"] is not None for row in found)

    check()
    assert late
    assert clicks


def item(one: Record) -> str:
    when = iso_from_ms(one.at_ms)
    return f'{{"store": "s1", "product": "p{one.who}", "quantity": {one.amount}, "sold_at": "{when}"}}'


PRODUCTS = [
    {"product": "p0", "name": "tea", "category": "drinks", "price": 300},
    {"product": "p1", "name": "coffee", "category": "drinks", "price": 500},
]


@pytest.mark.slow
def test_a_stream_joined_with_a_table_equals_a_join_of_tables(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scale: int
) -> None:
    """Any split, with a restart, has the totals of one batch over the items that are not late and the same table."""
    folder = tmp_path_factory.mktemp("tables")
    job = with_tables(load_job("enriched-sales"), folder, {"products": PRODUCTS})
    products = headwater_spark.createDataFrame(PRODUCTS)
    window_ms = 15 * MINUTE_MS
    late, categories = 0, set()

    @examples(3, scale)
    @given(splits(few_minutes))
    def check(split: Split[Record]) -> None:
        nonlocal late
        lines = [[{"items": [item(one) for one in records]} for records in run] for run in split]
        emitted = streamed(headwater_spark, job, lines, tmp_path_factory.mktemp("oracle"))
        batches = modeled(
            split, delay_ms=60 * MINUTE_MS, compared_ms=lambda one: (one.at_ms // window_ms + 1) * window_ms
        )
        kept = [one for batch in batches for one in batch.on_time]
        items = static(headwater_spark, job, [item(one) for one in kept], "items")
        found = last_by_key(emitted, ("category", "window"))
        assert exact(found) == exact(captured_rows(job(items=items, products=products)))
        late += sum(len(records) for run in split for records in run) - len(kept)
        categories.update(row["category"] for row in found)

    check()
    assert late
    assert categories == {"drinks", "unknown"}


def same_batch_by_batch(emitted: dict[int, list[dict[str, Any]]], expected: list[list[dict[str, Any]]]) -> None:
    assert sorted(emitted) == list(range(len(expected)))
    for batch_id, rows in enumerate(expected):
        assert exact(emitted[batch_id]) == exact(rows), f"batch {batch_id}"


def test_the_model_of_late_records() -> None:
    """Batch N drops records by the watermark of batch N - 1, also after the batch without data that ends a run."""
    minutes = [Record(0, START_MS + minute * MINUTE_MS, 1) for minute in (0, 60, 30, 30)]
    first, second, third, fourth = minutes
    split = [[[first], [second], [third]], [[fourth]]]
    batches = list(modeled(split, delay_ms=20 * MINUTE_MS, compared_ms=lambda one: one.at_ms))
    assert [batch.on_time for batch in batches] == [[first], [second], [third], []]
    split = [[[first], [second]], [[third], [fourth]]]
    batches = list(modeled(split, delay_ms=20 * MINUTE_MS, compared_ms=lambda one: one.at_ms))
    assert [batch.on_time for batch in batches] == [[first], [second], [], [], []]
    assert [batch.has_data for batch in batches] == [True, True, False, True, True]
    assert batches[2].watermark_ms == START_MS + 40 * MINUTE_MS
