"""Static tables in the plan of a streaming query: rows that stay those of the start, and files listed in every batch.

Spark plans a static table again in each micro-batch, but with the list of files of the start. A file that is replaced then
fails the query, and a new file is not read. Persisting the DataFrame of the table would not be enough: other uses of the
same files in the session would get the persisted rows, and a write to them would replace these.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it (no Py4J: Spark Connect), jobs with static tables are refused. Without Headwater's jar (a JVM that another
program started), ``refresh="batch"`` is refused for files, except in a per-batch job, which reads its tables by itself.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession

from headwater.spark.internals.plans import Plan, analyzed

FILES = "HadoopFsRelation"
QUERIED = "JDBCRelation"


def probe(spark: SparkSession) -> bool:
    jvm: Any = getattr(spark, "_jvm", None)
    return jvm is not None and isinstance(jvm.headwater.sql.FilesOfEachBatch, JavaClass)


def detached(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return the rows of a static DataFrame under a plan that Spark does not relate to their files."""
    session: Any = spark._jsparkSession
    rows = frame._jdf.queryExecution().toRdd()
    return DataFrame(session.internalCreateDataFrame(rows, frame._jdf.schema(), False), spark)


def fixed_parts(frame: DataFrame) -> list[str]:
    """Return what a static DataFrame reads that neither Spark nor ``listed_in_each_batch`` reads again in each batch."""
    leaves = [_relation(node) or node.name for node in analyzed(frame).nodes() if not node.children]
    return [name for name in leaves if name not in {FILES, QUERIED}]


def has_files(frame: DataFrame) -> bool:
    """Return whether Spark would keep a list of files for a static DataFrame."""
    return any(_relation(node) == FILES for node in analyzed(frame).nodes())


def listed_in_each_batch(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return a static DataFrame whose files are listed again at the start of every micro-batch."""
    return _with_listing(spark, analyzed(frame)).to_frame(spark)


def _with_listing(spark: SparkSession, plan: Plan) -> Plan:
    if plan.children:
        return plan.with_children(spark, [_with_listing(spark, child) for child in plan.children])
    if _relation(plan) != FILES:
        return plan
    jvm: Any = spark._jvm
    relation = plan.node.relation()
    listed = relation.copy(
        jvm.headwater.sql.FilesOfEachBatch(relation), *_fields(relation)[1:], relation.sparkSession()
    )
    return Plan(plan.node.copy(listed, *_fields(plan.node)[1:]))


def _relation(node: Plan) -> str:
    """Return the kind of relation that a leaf reads; empty if it does not read a data source."""
    is_relation = node.node.getClass().getSimpleName() == "LogicalRelation"
    return str(node.node.relation().getClass().getSimpleName()) if is_relation else ""


def _fields(value: Any) -> list[Any]:
    return [value.productElement(place) for place in range(value.productArity())]
