"""Run and rewind a stream on an object store, in a process of its own, because it needs other jars.

    python s3_stream.py ENDPOINT

Prints one JSON object: the contents of the sink and of the state at each stage.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.locate import open_files
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.repartition import repartition
from headwater.spark.session import start_session
from headwater.statefiles.reader import state_rows
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo

ROOT = "s3a://headwater-tests/rewind"
SCHEMA = "user STRING, at TIMESTAMP"


def main(endpoint: str) -> dict[str, Any]:
    from pyspark.sql import functions as F

    conf = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
        "spark.sql.shuffle.partitions": "1",
        # RocksDB uploads its snapshots as local files, and moto does not support s3a's optimized upload of those.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.sql.streaming.fileSource.log.compactInterval": "2",
        "spark.sql.streaming.fileSink.log.compactInterval": "2",
    }
    log = Path(tempfile.mkdtemp()) / "spark.log"
    spark = start_session("s3", master="local[2]", conf=conf, jars=("s3",), log=log)
    place = f"{ROOT}/{{}}".format
    checkpoint = open_files(place("checkpoint").replace("s3a", "s3"))
    checkpoint.write(JOB_FILE, json.dumps({"job": "windows", "sink": f"files:{place('sink')}"}).encode())
    sink = open_files(place("sink").replace("s3a", "s3"))

    def feed(number: int) -> None:
        rows = [{"user": f"user {nth}", "at": f"2024-05-01T10:{number * 10 + nth:02d}:00Z"} for nth in range(3)]
        inbox = open_files(place("input").replace("s3a", "s3"))
        inbox.write(f"{number}.json", "".join(f"{json.dumps(row)}\n" for row in rows).encode())

    def run(files_per_batch: int, name: str = "") -> dict[str, Any]:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch).json(place("input"))
        windows = rows.withWatermark("at", "5 minutes").groupBy(F.window("at", "5 minutes"), "user").count()
        writer = windows.writeStream.outputMode("append").trigger(availableNow=True).format("json")
        writer.option("checkpointLocation", place(f"checkpoint{name}")).start(place(f"sink{name}")).awaitTermination()
        unload_state_stores(spark)
        return look(name)

    def look(name: str = "") -> dict[str, Any]:
        files = open_files(place(f"checkpoint{name}").replace("s3a", "s3"))
        found = spark.read.json(place(f"sink{name}")).select(F.to_json(F.struct("*"))).collect()
        return {
            "last": History(files).last_committed,
            "sink": sorted(row[0] for row in found),
            "state": sorted(
                json.dumps({**row, "partition_id": None}, default=str, sort_keys=True) for row in state_rows(files)
            ),
        }

    seen: dict[str, Any] = {}
    for number in range(3):
        feed(number)
    seen["first"] = run(1)
    plan_rewind(checkpoint, to=0, sink=sink).apply()
    seen["again"] = run(1)
    plan_rewind(checkpoint, to=0, replan=True, sink=sink).apply()
    seen["larger"] = run(2)
    plan_undo(checkpoint, sink=sink, drop_newer=True).apply()
    seen["undone"] = look()
    plan_rewind(checkpoint, to=None, replan=True, sink=sink).apply()
    seen["over"] = run(3)
    seen["state files"] = checkpoint.tree("state").get("state/0/0", [])
    seen["control"] = run(3, name="-control")
    repartition(spark, checkpoint, 3)
    unload_state_stores(spark)
    seen["repartitioned"] = look()
    feed(3)
    seen["after repartition"] = run(3)
    seen["control after"] = run(3, name="-control")
    spark.stop()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
