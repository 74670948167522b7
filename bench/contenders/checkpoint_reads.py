"""Headwater's reads of a checkpoint with Spark's own data sources: ``log``, ``state``, ``key`` and ``diff``.

Each prints the number of rows that it found as a JSON line, to be compared with Headwater's.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

read, path, *more = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
)
spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF").getOrCreate()
spark.streams.active  # noqa: B018  starts what the state source needs


def state(batch: str | None = None):
    reader = spark.read.format("statestore")
    return (reader.option("batchId", batch) if batch else reader).load(path)


if read == "log":
    logs = {}
    for log in ("offsets", "commits"):
        rows = (
            spark.read.option("wholetext", True).text(f"{path}/{log}").withColumn("name", F.input_file_name()).collect()
        )
        logs[log] = {int(row.name.rpartition("/")[2]): row.value for row in rows}
    operators = spark.read.format("state-metadata").load(path).collect()
    assert operators
    found = [(batch, batch in logs["commits"], text) for batch, text in sorted(logs["offsets"].items())]
elif read == "state":
    state().write.mode("overwrite").parquet(more[0])
    found = [None] * spark.read.parquet(more[0]).count()
elif read == "key":
    found = state().where(F.col("key.user") == more[0]).collect()
else:
    before, after = (
        state(batch).select("key", F.col("value").alias(name)) for batch, name in zip(more, "ab", strict=True)
    )
    both = before.join(after, "key", "full_outer").where("not (a <=> b)")
    found = both.collect()
print(json.dumps({"rows": len(found)}))
spark.stop()
