"""Run a stream on a disk, on an object store and on the disk again, in a process of its own: it needs other jars.

    python s3_move.py ENDPOINT

A restore point is made on the object store through Spark's Hadoop client, as a running job makes it, and rewound to at the
end. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.restore_points import require_point
from headwater.spark.internals.hadoop_tree import HadoopTree
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import start_session
from headwater.timemachine.keep import make_point
from headwater.timemachine.move_plan import plan_move
from headwater.timemachine.restore import plan_restore

sys.path.insert(0, str(Path(__file__).parents[1]))
from timemachine.spark_runs import EAGER, STORES
from timemachine.stream_pairs import EVENT, QUERIES, events

ROOT = "s3a://headwater-tests/moved"


def main(endpoint: str) -> dict[str, Any]:
    conf = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        **EAGER,
        **STORES["changelog"],
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    }
    home = Path(tempfile.mkdtemp())
    spark = start_session("s3", master="local[2]", conf=conf, jars=("s3",), log=home / "spark.log")

    def feed(inbox: str, number: int) -> None:
        lines = "".join(f"{json.dumps(row)}\n" for row in events(number, 0, timedelta(minutes=8)))
        open_files(inbox).write(f"{number:04d}.json", lines.encode())
        if number < 3:  # much older than their copies on S3 will be, as the files of a real stream
            os.utime(Path(inbox) / f"{number:04d}.json", (1_000_000_000 + number, 1_000_000_000 + number))

    def run(base: str) -> list[str]:
        rows = spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(f"{base}/in")
        writer = QUERIES["aggregation"][0]({"events": rows}).writeStream.outputMode("append").trigger(availableNow=True)
        options = writer.format("json").option("checkpointLocation", f"{base}/checkpoint")
        options.start(f"{base}/out").awaitTermination()
        unload_state_stores(spark)
        return written(base)

    def written(base: str) -> list[str]:
        found = spark.read.json(f"{base}/out").collect()
        return sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in found)

    def take(old: str, new: str) -> None:
        maps = [f"{old}/{name}={new}/{name}" for name in ("in", "out")]
        plan_move(open_files(f"{old}/checkpoint"), f"{new}/checkpoint", folders=maps).apply()

    here, back, control = str(home / "disk"), str(home / "back"), str(home / "control")

    def run_control(first: int) -> list[str]:
        """Run the control with the stops that the moved stream has: a no-data batch after each advances the watermark."""
        for number in range(first, first + 3):
            feed(f"{control}/in", number)
        return run(control)

    for number in range(3):
        feed(f"{here}/in", number)
    seen: dict[str, Any] = {"rows before": len(run(here))}
    take(here, ROOT)
    for number in range(3, 6):
        feed(f"{ROOT}/in", number)
    seen["rows on s3"] = len(run(ROOT))
    point = make_point(HadoopTree(spark, f"{ROOT}/checkpoint"), "on-s3", sink=HadoopTree(spark, f"{ROOT}/out"))
    seen["kept"] = {"name": point.name, "batch": point.batch_id}
    seen["batch on s3"] = History(open_files(f"{ROOT}/checkpoint")).last_committed
    take(ROOT, back)
    for number in range(6, 9):
        feed(f"{back}/in", number)
    seen["moved"], seen["control"] = run(back), [run_control(first) for first in (0, 3, 6)][-1]
    files = open_files(f"{back}/checkpoint")
    plan_restore(files, require_point(files, "on-s3"), sink=open_files(f"{back}/out")).apply()
    seen["restored"] = History(files).last_committed
    seen["rerun"] = run(back)
    spark.stop()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
