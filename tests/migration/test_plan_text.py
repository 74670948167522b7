"""Stateful operators as text, from plans as Spark shows them."""

from __future__ import annotations

import pytest

from headwater.migration.plan_nodes import Column, PlanNode
from headwater.migration.plan_text import interval, source_names, stateful_operators


def columns(*texts: str) -> tuple[Column, ...]:
    return tuple(Column.parse(text) for text in texts)


def source(name: str = "", *names: str) -> PlanNode:
    records = PlanNode("CollectMetrics", columns(*(names or ("user#1", "amount#2", "at#3"))), source=name)
    return PlanNode("Filter", records.output, ("NOT false",), (records,))


def grouped(child: PlanNode, *functions: str, keys: tuple[str, ...] = ("user#1",)) -> PlanNode:
    outputs = tuple(f"{function} AS out{place}#{90 + place}L" for place, function in enumerate(functions))
    return PlanNode(
        "Aggregate",
        columns(*keys, *(f"out{place}#{90 + place}L" for place in range(len(functions)))),
        (*keys, *keys, *outputs),
        (child,),
        keys=keys,
        functions=functions,
    )


def facts(plan: PlanNode, number: int = 0) -> dict[str, tuple[str, ...]]:
    return dict(stateful_operators(plan)[number].facts)


def test_columns_are_replaced_by_what_they_are() -> None:
    """The text of an aggregate has the columns of the source, whatever they are called in between."""
    twice = PlanNode("Project", columns("user#1", "n#7"), ("user#1", "(amount#2 * 2) AS n#7"), (source(),))
    assert facts(grouped(twice, "sum(n#7)")) == {"keys": ("user",), "aggregates": ("sum((amount * 2))",)}
    renamed = PlanNode("Project", columns("who#8", "amount#2"), ("user#1 AS who#8", "amount#2"), (source(),))
    assert facts(grouped(renamed, "sum(amount#2)", keys=("who#8",)))["keys"] == ("user",)


def test_ids_do_not_matter() -> None:
    """Two runs of the same code have the same text, although Spark gives columns other ids in each run."""
    one = grouped(source("", "user#1", "amount#2"), "sum(amount#2)")
    two = grouped(source("", "user#41", "amount#42"), "sum(amount#42)", keys=("user#41",))
    assert stateful_operators(one) == stateful_operators(two)


def test_name_that_is_part_of_another() -> None:
    """A column whose name ends like another one's is not confused with it."""
    plan = grouped(source("", "user#1", "n#2", "in n#3"), "sum((n#2 + in n#3))")
    assert facts(plan)["aggregates"] == ("sum((n + in n))",)


def test_filters_and_watermarks_below_count() -> None:
    """Conditions and watermarks below an operator are part of what its state means."""
    filtered = PlanNode("Filter", source().output, ("(amount#2 > 5)",), (source(),))
    marked = PlanNode("EventTimeWatermark", columns("user#1", "amount#2", "at#3-T600000ms"), (), (filtered,))
    found = facts(grouped(marked, "count(1)"))
    assert found["filters"] == ("(amount > 5)",)
    assert found["watermark"] == ("at 10 minutes",)


def test_filters_after_an_operator_do_not_count() -> None:
    """What happens to the result does not change the state."""
    plan = grouped(source(), "count(1)")
    above = PlanNode("Filter", plan.output, ("(out0#90L > 1)",), (plan,))
    assert stateful_operators(above) == stateful_operators(plan)


START = (
    "((precisetimestampconversion(at#3, TimestampType, LongType) - CASE WHEN "
    "(((precisetimestampconversion(at#3, TimestampType, LongType) - 0) % {slide}) < cast(0 as bigint)) THEN "
    "(((precisetimestampconversion(at#3, TimestampType, LongType) - 0) % {slide}) + {slide}) ELSE "
    "((precisetimestampconversion(at#3, TimestampType, LongType) - 0) % {slide}) END) - 0)"
)
WINDOW = (
    f"named_struct(start, knownnullable(precisetimestampconversion({START}, LongType, TimestampType)), "
    f"end, knownnullable(precisetimestampconversion(({START} + {{length}}), LongType, TimestampType))) AS window#30"
)
SESSION = (
    "named_struct(start, precisetimestampconversion(precisetimestampconversion(at#3-T600000ms, TimestampType, LongType), "
    "LongType, TimestampType), end, knownnullable(precisetimestampconversion(precisetimestampconversion("
    "cast(at#3-T600000ms + cast(4 minutes as interval) as timestamp), TimestampType, LongType), LongType, "
    "TimestampType))) AS session_window#30-T600000ms"
)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (WINDOW.format(slide=300_000_000, length=300_000_000), "window(at, 5 minutes)"),
        (WINDOW.format(slide=300_000_000, length=600_000_000), "window(at, 10 minutes, 5 minutes)"),
        (SESSION, "session_window(at, 4 minutes)"),
    ],
)
def test_windows_are_readable(expression: str, text: str) -> None:
    """The long expression that Spark makes of a window is shown as the user wrote it."""
    below = PlanNode("Project", columns("window#30", "user#1"), (expression, "user#1"), (source(),))
    assert facts(grouped(below, "count(1)", keys=("window#30",)))["keys"] == (text,)


def join(left: PlanNode, right: PlanNode, condition: str, how: str = "Inner") -> PlanNode:
    details = {"type": how, "condition": condition}
    return PlanNode("Join", (*left.output, *right.output), (condition,), (left, right), details=details)


def test_join_names_its_sides() -> None:
    """Columns of a join of two sources have the names of their sources, so that equal names are distinguished."""
    plan = join(source("shown", "id#1"), source("clicked", "id#2"), "(id#1 = id#2)")
    assert facts(plan)["condition"] == ("(shown.id = clicked.id)",)
    assert source_names(plan) == ("shown", "clicked")


def test_join_with_a_static_table_is_no_operator() -> None:
    """A static table adds no state; the join counts as a condition on what reaches the next operator."""
    table = PlanNode("LogicalRDD", columns("user#9"), is_streaming=False)
    plan = grouped(join(source(), table, "(user#1 = user#9)"), "count(1)")
    (operator,) = stateful_operators(plan)
    assert operator.kind == "aggregation"
    assert operator.facts["filters"] == ("Inner join with a static table on (user = user)",)


def test_operators_are_numbered_from_the_root() -> None:
    """Spark's operator 0 is the one nearest to the sink."""
    lower = PlanNode("Deduplicate", source().output, ("user#1",), (source(),), keys=("user#1",))
    assert [one.kind for one in stateful_operators(grouped(lower, "count(1)"))] == ["aggregation", "deduplication"]


def test_union_has_the_columns_of_all_its_inputs() -> None:
    """A column of a union is what it is in each input."""
    left, right = source("a", "x#1"), source("b", "y#2")
    union = PlanNode("Union", columns("x#1"), (), (left, right))
    plan = grouped(union, "max(x#1)", keys=())
    assert facts(plan)["aggregates"] == ("max(a.x or b.y)",)


def test_unknown_nodes_count() -> None:
    """A node that is not known changes the text of the operators above it."""
    exploded = PlanNode("Generate", columns("user#1", "word#8"), ("explode(words#2)",), (source(),))
    assert facts(grouped(exploded, "count(1)"))["filters"] == ("Generate explode(words)",)


def test_durations() -> None:
    """Durations are shown in the largest unit that divides them."""
    assert [interval(us) for us in (0, 60_000_000, 90_000_000, 1500, 7_200_000_000)] == [
        "0 seconds",
        "1 minute",
        "90 seconds",
        "1500 microseconds",
        "2 hours",
    ]
