"""Whether Spark runs stateful queries with the real-time trigger.

Spark plans a streaming aggregation with an operator of its own then, which emits a row for every record.

Seen on: PySpark 4.3.0; 4.2.0 does not have it.
Without it: jobs that keep state are refused with the real-time trigger.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater.spark.internals.gateway import has_class

AGGREGATE = "org.apache.spark.sql.execution.streaming.StatefulStreamlineAggregateExec"


def probe(spark: SparkSession) -> bool:
    return has_class(spark, AGGREGATE)
