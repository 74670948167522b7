"""Hadoop's settings without the defaults of MapReduce, YARN and HDFS, through a class of Headwater's jar.

Spark copies the Hadoop configuration several times in every batch, and serializes it for each stateful operator. Of its
1,100 entries, 722 are defaults of MapReduce and YARN, which Spark reads on YARN only. If the class path has a
configuration of a Hadoop cluster, nothing is removed.

Sets the private field ``loadDefaults`` of Hadoop's ``Configuration``.

Seen on: PySpark 4.2.0, 4.3.0.
Without it (a JVM without the jar): batches take a little longer.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headwater.spark.internals.gateway import has_class

CLASS = "headwater.hadoop.UnusedDefaults"


def probe(spark: SparkSession) -> bool:
    return has_class(spark, CLASS)


def remove_unused_defaults(spark: SparkSession) -> int:
    """Remove the entries, and return how many there were; none on YARN."""
    if spark.sparkContext.master.startswith("yarn") or not probe(spark):
        return 0
    jvm: Any = spark._jvm
    return int(jvm.headwater.hadoop.UnusedDefaults.remove(spark.sparkContext._jsc.hadoopConfiguration()))
