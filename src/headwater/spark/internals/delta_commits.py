"""A commit of given actions through Delta's own transaction (``DeltaLog``, ``OptimisticTransaction``).

Delta checks the actions against the protocol of the table and writes them in its own form, with what its table features
add to a commit. It offers nothing public that sets back the transaction of a query.

Seen on: PySpark 4.2.0 with Delta 4.4.0. On 4.0.5, only the probe was run, and succeeds; Delta has no release for 4.3.
Without it: ``--engine spark`` is refused, and tables with features that Headwater does not know cannot be rewound.
"""

from __future__ import annotations

import json

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import Commit
from headwater.spark.session import temporary_settings

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def probe(spark: SparkSession) -> bool:
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
            "org.apache.spark.sql.delta.OptimisticTransaction"
        )
    except Py4JError:
        return False
    return True


def commit(spark: SparkSession, table: str, read_version: int, planned: Commit) -> None:
    """Commit the planned actions on top of a version. Raise ``ChangeRefused`` if Delta rejects them."""
    jvm = spark._jvm
    lines = [
        json.dumps({kind: action})
        for kind, actions in planned.actions.items()
        if kind != "commitInfo"
        for action in actions
    ]
    try:
        with temporary_settings(spark, {USER_METADATA: str(planned.info["userMetadata"])}):
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)
            log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
            transaction = log.startTransaction()
            found = transaction.readVersion()
            if found != read_version:
                raise ChangeRefused(
                    "table-moved",
                    "another program has committed to the table since this was planned",
                    evidence={"table": table, "planned on version": read_version, "newest version": found},
                    remedy="headwater rewind CKPT --abort",
                )
            actions = jvm.java.util.ArrayList()
            for line in lines:
                actions.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line))
            found_actions = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
            operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
            transaction.commit(found_actions, operation)
    except (PySparkException, Py4JError) as error:
        raise ChangeRefused(
            "spark-refuses",
            "Delta rejected the commit that rewinds the table",
            evidence={"table": table, "reason": str(error).splitlines()[0]},
        ) from error
