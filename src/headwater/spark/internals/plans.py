"""Logical plans of Catalyst, wrapped so that the rest of Headwater reads and rebuilds them as Python values.

Seen on: PySpark 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it (no Py4J: Spark Connect): ``check`` cannot check output modes, and ``late`` and the warnings of
``replay`` are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession


def probe(spark: SparkSession) -> bool:
    return getattr(spark, "_jvm", None) is not None and hasattr(spark.range(1), "_jdf")


def analyzed(frame: DataFrame) -> Plan:
    """Return the analyzed plan of a DataFrame."""
    return Plan(frame._jdf.queryExecution().analyzed())


def optimized(spark: SparkSession, plan: Plan) -> Plan:
    """Return a plan as Spark optimizes it: conditions are moved into joins, and unused columns removed."""
    session: Any = spark._jsparkSession
    return Plan(session.sessionState().optimizer().execute(plan.node))


def has_distinct_rows(frame: DataFrame, columns: Collection[str]) -> bool:
    """Return whether an aggregation emits the rows, so that no two in a batch have the same values in these columns."""
    plan = analyzed(frame)
    ids = {one.id for one in plan.output if one.name in columns}
    below = plan
    while below.name in {"Project", "Filter"}:
        (below,) = below.children
    if below.name != "Aggregate":
        return False
    return any(_attribute_ids(keys) <= ids for keys in items(plan.node.distinctKeys().toSeq()))


def count_reads(frame: DataFrame) -> int:
    """Return how many times the unoptimized plan of a DataFrame reads a source."""
    return sum(not node.children for node in Plan(frame._jdf.queryExecution().logical()).nodes())


def check_for_streaming(spark: SparkSession, plan: Plan, mode: str) -> None:
    """Raise the exception that Spark would raise when a query with this plan starts in this output mode."""
    jvm: Any = spark._jvm
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan.node, output_mode)
    except Py4JJavaError as error:
        raise convert_exception(error.java_exception) from error


class Plan:
    """A node of a logical plan with everything below it."""

    def __init__(self, node: Any) -> None:
        self.node = node

    @property
    def name(self) -> str:
        return str(self.node.nodeName())

    @property
    def children(self) -> list[Plan]:
        return [Plan(child) for child in items(self.node.children())]

    @property
    def output(self) -> list[Attribute]:
        return [Attribute(item) for item in items(self.node.output())]

    @property
    def expressions(self) -> list[Expression]:
        return [Expression(item) for item in items(self.node.expressions())]

    @property
    def is_streaming(self) -> bool:
        return bool(self.node.isStreaming())

    @property
    def timeout(self) -> str:
        """What ends an idle group of ``applyInPandasWithState``."""
        return str(self.node.timeout().toString())

    @property
    def time_mode(self) -> str:
        """Which clock the timers of ``transformWithState`` follow."""
        return str(self.node.timeMode().toString())

    @property
    def join_type(self) -> str:
        """The type of a join, such as ``Inner`` or ``LeftOuter``."""
        return str(self.node.joinType().toString())

    @property
    def join_condition(self) -> str:
        """The condition of a join as SQL; empty if it has none."""
        condition = self.node.condition()
        return str(condition.get().sql()) if condition.isDefined() else ""

    @property
    def is_global(self) -> bool:
        """Whether an aggregation has one result for all rows."""
        return bool(self.node.groupingExpressions().isEmpty())

    @property
    def groups_by_session(self) -> bool:
        """Whether an aggregation groups by ``session_window``."""
        return any(column.has_metadata("spark.sessionWindow") for child in self.children for column in child.output)

    @property
    def repartitions(self) -> int:
        """The number of partitions that a ``repartition`` creates; 0 for ``coalesce``, which merges existing ones."""
        return int(self.node.numPartitions()) if self.node.shuffle() else 0

    def nodes(self) -> Iterator[Plan]:
        """Yield every node, root first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def located(self, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Plan]]:
        """Yield every node, root first, with its location: the indices of the children that lead to it."""
        yield at, self
        for place, child in enumerate(self.children):
            yield from child.located((*at, place))

    def grouping_ids(self) -> set[int]:
        """Return the ids of grouping keys that are plain columns; a computed key carries no watermark."""
        ids = set()
        for expression in items(self.node.groupingExpressions()):
            plain = expression.child() if _class(expression) == "Alias" else expression
            if _class(plain) == "AttributeReference":
                ids |= {plain.exprId().id(), *({expression.exprId().id()} if plain is not expression else ())}
        return ids

    def with_children(self, spark: SparkSession, children: list[Plan]) -> Plan:
        return Plan(self.node.withNewChildren(_sequence(spark, [child.node for child in children])))

    def passing(self, spark: SparkSession, attribute: Attribute, child: Plan) -> Plan:
        """Return this ``Project`` or ``Expand`` over a new child, with one more attribute passed through."""
        jvm: Any = spark._jvm
        logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        extra = attribute.node
        if self.name == "Project":
            return Plan(logical.Project(_appended(self.node.projectList(), extra), child.node))
        rows = _sequence(spark, [_appended(row, extra) for row in items(self.node.projections())])
        return Plan(logical.Expand(rows, _appended(self.node.output(), extra), child.node))

    def selecting(self, spark: SparkSession, attributes: list[Attribute]) -> Plan:
        """Return a projection of this plan to some of its attributes."""
        logical: Any = spark._jvm.org.apache.spark.sql.catalyst.plans.logical
        return Plan(logical.Project(_sequence(spark, [attribute.node for attribute in attributes]), self.node))

    def with_null(self, spark: SparkSession, like: Attribute) -> Plan:
        """Return this plan with one more column: null, with the name and type of an attribute of another plan."""
        jvm: Any = spark._jvm
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        null = expressions.Literal.create(None, like.node.dataType())
        none = _sequence(spark, [])
        column = expressions.Alias(
            null, like.name, expressions.NamedExpression.newExprId(), none, jvm.scala.Option.empty(), none
        )
        logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        return Plan(logical.Project(_appended(self.node.output(), column), self.node))

    def conditions(self) -> list[Expression]:
        """Return conditions that all rows of an optimized plan satisfy, such as that a column is not null."""
        found = [Expression(item) for item in items(self.node.constraints().toSeq())]
        return [one for one in found if one.class_name != "EqualNullSafe"]  # these only repeat computed columns

    def where(self, spark: SparkSession, conditions: list[Expression]) -> Plan:
        """Return the rows of this plan that satisfy conditions; those on columns that it lacks are left out."""
        logical: Any = spark._jvm.org.apache.spark.sql.catalyst.plans.logical
        found = self.node
        for condition in conditions:
            if condition.node.references().subsetOf(self.node.outputSet()):
                found = logical.Filter(condition.node, found)
        return Plan(found)

    def to_frame(self, spark: SparkSession) -> DataFrame:
        jvm: Any = spark._jvm
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, self.node), spark)


class Attribute:
    """A column of a plan's output."""

    def __init__(self, node: Any) -> None:
        self.node = node

    @property
    def name(self) -> str:
        return str(self.node.name())

    @property
    def id(self) -> int:
        return int(self.node.exprId().id())

    @property
    def is_struct(self) -> bool:
        return bool(self.node.dataType().typeName() == "struct")

    def has_metadata(self, key: str) -> bool:
        return bool(self.node.metadata().contains(key))

    def number_in_metadata(self, key: str) -> int:
        return int(self.node.metadata().getLong(key))


class Expression:
    """An expression of a plan's node."""

    def __init__(self, node: Any) -> None:
        self.node = node

    @property
    def class_name(self) -> str:
        return _class(self.node)

    @property
    def sql(self) -> str:
        return str(self.node.sql())

    @property
    def is_deterministic(self) -> bool:
        return bool(self.node.deterministic())

    def parts(self) -> Iterator[Expression]:
        """Yield the expression and everything in it."""
        yield self
        for child in items(self.node.children()):
            yield from Expression(child).parts()


def _attribute_ids(expressions: Any) -> set[int]:
    return {int(one.exprId().id()) for one in items(expressions.toSeq())}


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(place) for place in range(sequence.size())]


def _sequence(spark: SparkSession, values: list[Any]) -> Any:
    jvm: Any = spark._jvm
    items = jvm.java.util.ArrayList()
    for value in values:
        items.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def _appended(sequence: Any, item: Any) -> Any:
    return getattr(sequence, "$colon$plus")(item)
