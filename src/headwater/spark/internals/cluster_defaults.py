"""Hadoop's defaults for YARN and MapReduce, removed from a session's configuration by ``ClusterDefaults.java``.

They are two thirds of its 1,100 settings. Spark copies and serializes all of them three times in a batch with one source
and one stateful operator, and each task reads them again.

Seen on: PySpark 4.2.0.
Without it (a JVM that another program started does not have the jar): small batches take more time.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def probe(spark: SparkSession) -> bool:
    jvm: Any = getattr(spark, "_jvm", None)
    return jvm is not None and isinstance(jvm.headwater.hadoop.ClusterDefaults, JavaClass)


def remove_cluster_defaults(spark: SparkSession) -> int:
    """Remove them, and return how many there were: for a session that runs on this machine alone."""
    if not probe(spark):
        return 0
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    return int(jvm.headwater.hadoop.ClusterDefaults.remove(context.hadoopConfiguration()))
