"""The order of aggregates in the state, compared with the plans that Spark makes."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.migration.plan_nodes import PlanNode
from headwater.spark.internals.plan_trees import plan_tree


def functions(node: PlanNode) -> list[list[str]]:
    """Return the columns that each aggregation sums up, root first, as the state stores them."""
    found = [[text.split("(")[1].split("#")[0] for text in node.functions]] if node.name == "Aggregate" else []
    return found + [one for child in node.children for one in functions(child)]


@pytest.fixture
def sums(headwater_spark: SparkSession) -> DataFrame:
    rows = headwater_spark.readStream.format("rate").load().selectExpr("timestamp AS at", "value AS a", "value AS b")
    rows = rows.withWatermark("at", "1 minute")
    return rows.groupBy(F.window("at", "1 minute")).agg(F.sum("a").alias("x"), F.sum("b").alias("y"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("x", "y"), ["a", "b"]),
        (("y", "x"), ["b", "a"]),
        (("y",), ["b"]),
        (("window",), []),
        (("x + y AS z",), ["a", "b"]),
    ],
)
def test_projections(
    headwater_spark: SparkSession, sums: DataFrame, columns: tuple[str, ...], expected: list[str]
) -> None:
    """A projection decides in which order functions are stored, and which of them."""
    assert functions(plan_tree(headwater_spark, sums.selectExpr(*columns))) == [expected]


@pytest.mark.parametrize(("first", "second"), [("xy", "yx"), ("yx", "xy"), ("yx", "yx")])
def test_an_aggregation_that_is_used_twice(
    headwater_spark: SparkSession, sums: DataFrame, first: str, second: str
) -> None:
    """Each copy has the order of its own projection."""
    both = sums.select(*first).union(sums.select(*second))
    columns = {"x": "a", "y": "b"}
    found = functions(plan_tree(headwater_spark, both))
    assert found == [[columns[one] for one in first], [columns[one] for one in second]]
