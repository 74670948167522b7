"""Jobs with several sources: joins, unions and static tables, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Files, Job, Kafka, Static
from headwater.core.errors import JobRefused
from headwater.testing import Crash

IMPRESSION = "ad STRING, shown TIMESTAMP"
CLICK = "ad STRING, clicked TIMESTAMP"


def attributed(impressions: DataFrame, clicks: DataFrame, *, how: str = "left_outer") -> DataFrame:
    """Join each impression with its clicks of the next hour."""
    shown = impressions.withWatermark("shown", "10 minutes")
    clicked = clicks.withWatermark("clicked", "20 minutes").withColumnRenamed("ad", "clicked_ad")
    within = (F.col("ad") == F.col("clicked_ad")) & F.expr("clicked BETWEEN shown AND shown + INTERVAL 1 HOUR")
    return shown.join(clicked, within, how)


ATTRIBUTED = Job(
    "attributed",
    attributed,
    reads={"impressions": Kafka("impressions", IMPRESSION), "clicks": Kafka("clicks", CLICK)},
    writes=Console(),
)


def shown(ad: str, at: str) -> dict[str, str]:
    return {"ad": ad, "shown": f"2024-01-01T{at}"}


def clicked(ad: str, at: str) -> dict[str, str]:
    return {"ad": ad, "clicked": f"2024-01-01T{at}"}


def pair(ad: str, shown_at: str, clicked_at: str | None) -> dict[str, Any]:
    return {
        "ad": ad,
        "shown": f"2024-01-01T{shown_at}:00.000Z",
        "clicked_ad": ad if clicked_at else None,
        "clicked": f"2024-01-01T{clicked_at}:00.000Z" if clicked_at else None,
    }


def test_a_join_of_two_streams(scenario: Callable[..., Any]) -> None:
    """A join emits pairs at once, and an impression without a click when the watermark has passed its hour."""
    s = scenario(ATTRIBUTED)
    s.feed(impressions=[shown("a", "10:00"), shown("b", "10:05")], clicks=[clicked("a", "10:10")]).emits(
        pair("a", "10:00", "10:10")
    )
    s.feed(Crash.AFTER_OUTPUT, clicks=[clicked("c", "12:00")]).emits_nothing()
    s.feed(impressions=[shown("d", "12:00")]).emits(pair("b", "10:05", None)).moves_watermark_to("11:40")
    step = s.feed(impressions=[shown("late", "11:00"), shown("e", "12:10")], clicks=[clicked("x", "11:30"), "not json"])
    step.drops(2).fails_to_decode(1).emits_nothing()
    s.rewind(to=1).emits(pair("b", "10:05", None))


def both(left: DataFrame, right: DataFrame) -> DataFrame:
    """Count the events of both sources by window."""
    events = left.union(right).withWatermark("at", "0 seconds")
    return events.groupBy(F.window("at", "10 minutes")).count().select(F.col("window.start").alias("start"), "count")


def test_a_union_of_two_streams(scenario: Callable[..., Any]) -> None:
    """Records of both sources reach the aggregation, which drops late ones of either."""
    job = Job(
        "both",
        both,
        reads={"left": Files("left", schema="at TIMESTAMP"), "right": Files("right", schema="at TIMESTAMP")},
        writes=Console(),
    )
    s = scenario(job)
    at = lambda text: {"at": f"2024-01-01T{text}"}  # noqa: E731
    s.feed(left=[at("10:01")], right=[at("10:02"), at("10:31")]).emits(
        {"start": "2024-01-01T10:00:00.000Z", "count": 2}
    )
    s.feed(left=[at("10:03"), at("10:32")], right=[at("10:04")]).drops(2).emits_nothing()


def repeated(visits: DataFrame) -> DataFrame:
    """Pair visits of one page within a minute: a join of a stream with itself."""
    first = visits.withWatermark("at", "5 minutes").select("page", F.col("at").alias("first"))
    then = visits.withWatermark("at", "5 minutes").select(F.col("page").alias("same"), F.col("at").alias("then"))
    return first.join(then, F.expr("page = same AND then > first AND then <= first + INTERVAL 1 MINUTE"))


def test_a_join_of_a_stream_with_itself(scenario: Callable[..., Any]) -> None:
    """A stream can be joined with itself, whether its source has a name or not."""
    for reads in (
        Files("visits", schema="page STRING, at TIMESTAMP"),
        {"visits": Files("visits", schema="page STRING, at TIMESTAMP")},
    ):
        s = scenario(Job("repeated", repeated, reads=reads, writes=Console()))
        rows = [{"page": "p", "at": "2024-01-01T10:00:00"}, {"page": "p", "at": "2024-01-01T10:00:30"}]
        step = s.feed(*rows) if isinstance(reads, Files) else s.feed(visits=rows)
        assert len(step.emitted) == 1
        late = {"page": "p", "at": "2024-01-01T09:00:00"}
        for _ in range(2):
            step = s.feed(late) if isinstance(reads, Files) else s.feed(visits=[late])
        step.drops(1)


def enriched(sales: DataFrame, products: DataFrame) -> DataFrame:
    """Add the name of each product."""
    return sales.join(products, "product", "left")


def test_a_stream_joined_with_a_static_table(scenario: Callable[..., Any], tmp_path: Any) -> None:
    """A static table is read when the job starts."""
    (tmp_path / "products.json").write_text('{"product": 1, "name": "tea"}\n')
    job = Job(
        "enriched",
        enriched,
        reads={
            "sales": Files("sales", schema="product INT"),
            "products": Static(Files(str(tmp_path), schema="product INT, name STRING")),
        },
        writes=Console(),
    )
    scenario(job).feed(sales=[{"product": 1}, {"product": 2}]).emits(
        {"product": 1, "name": "tea"}, {"product": 2, "name": None}
    )


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        ({"impressions": Kafka("i")}, "the function of attributed needs a source for 'clicks'"),
        (
            {"impressions": Kafka("i"), "clicks": Kafka("c"), "views": Kafka("v")},
            "the function of attributed does not take 'views'",
        ),
        ({"impressions": Static(Files("i")), "clicks": Static(Files("c"))}, "attributed has no streaming source"),
    ],
)
def test_inputs_that_do_not_match_the_function(reads: Any, problem: str) -> None:
    """A job whose inputs do not match its function cannot be defined."""
    with pytest.raises(JobRefused, match=problem):
        Job("attributed", attributed, reads=reads, writes=Console())
