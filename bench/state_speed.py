"""How long it takes to have a state: Headwater against a cold PySpark process with the ``statestore`` source.

    python bench/state_speed.py [--keys 100000 1000000] [--runs 5] [--folder DIR]

Makes one checkpoint for each size and store with Spark (kept in the folder, so that a second run only measures), then
runs each way to read it in a fresh process, the same number of times, in turn, and takes the best of each. Spark's
rows go to its ``noop`` sink, which is the least it can do; ours become an Arrow table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

STATE = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "changelog": {
        "providerClass": f"{STATE}.RocksDBStateStoreProvider",
        "rocksdb.changelogCheckpointing.enabled": "true",
    },
    "rocksdb": {
        "providerClass": f"{STATE}.RocksDBStateStoreProvider",
        "rocksdb.changelogCheckpointing.enabled": "false",
    },
    "hdfs": {"providerClass": f"{STATE}.HDFSBackedStateStoreProvider"},
}
BATCHES = 3
AIMS = {100_000: 15, 1_000_000: 6}

SPARK = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
spark = builder.getOrCreate()
spark.streams.active
spark.read.format("statestore").load(sys.argv[1]).write.format("noop").mode("overwrite").save()
"""
OURS = "import sys; from headwater import Checkpoint; print(Checkpoint(sys.argv[1]).state().num_rows)"
MAKE = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
folder, keys, conf = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
for name, value in {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC", **conf}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for number, (first, end) in enumerate([(0, keys), (keys - 500, keys + 500), (keys - 200, keys + 900)]):
    rows = spark.range(first, end).select(
        F.timestamp_seconds(F.lit(1714557600) + (F.col("id") % 50) * 600).alias("at"),
        F.concat(F.lit("user-"), F.col("id").cast("string")).alias("user"))
    rows.coalesce(1).write.parquet(str(folder / "input" / str(number)))
files = spark.readStream.schema("at timestamp, user string").option("maxFilesPerTrigger", 1)
visits = files.option("recursiveFileLookup", True).parquet(str(folder / "input")).withWatermark("at", "10 days")
counted = (visits.groupBy(F.window("at", "10 minutes"), "user")
    .agg(F.count("*").alias("visits"), F.max("at").alias("last")))
query = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(folder / "checkpoint"))
query.trigger(availableNow=True).start().awaitTermination()
"""


@dataclass(frozen=True)
class Cost:
    seconds: float
    megabytes: int


def made(folder: Path, keys: int, store: str) -> Path:
    """A checkpoint with so many keys, made unless it is there already."""
    home = folder / f"{store}-{keys}"
    if not (home / "checkpoint" / "commits" / str(BATCHES - 1)).exists():
        conf = {f"spark.sql.streaming.stateStore.{name}": value for name, value in STORES[store].items()}
        subprocess.run(
            [sys.executable, "-c", MAKE, str(home), str(keys), json.dumps(conf)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    return home / "checkpoint"


def once(command: list[str]) -> Cost:
    """A fresh process from start to end, and the most memory that it had."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {' '.join(command[-3:])}")
    return Cost(seconds, used.ru_maxrss // 1024)


def best(commands: dict[str, list[str]], runs: int) -> dict[str, Cost]:
    """Each command so many times, in turn, so that a busy minute is shared; the fastest run of each."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(once(command))
    return {name: min(costs, key=lambda cost: cost.seconds) for name, costs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, nargs="+", default=list(AIMS))
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=list(STORES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "headwater-state-speed")
    arguments = parser.parse_args()
    rows, met = [], True
    for keys in arguments.keys:
        for store in arguments.stores:
            row = measured(made(arguments.folder, keys, store), keys, store, arguments.runs)
            met &= row["times"] >= AIMS.get(keys, 1) and row["ours_mb"] < 1024
            rows.append(row)
            print(
                f"{keys:>9,} keys  {store:<9}  Spark {row['spark_s']:5.2f} s   "
                f"Headwater {row['ours_s']:5.2f} s {row['ours_mb']:>4} MB   {row['times']:4.1f} times   "
                f"one key {row['key_s']:.2f} s   diff {row['diff_s']:.2f} s",
                flush=True,
            )
    results = Path(__file__).with_name("results") / "state_speed.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    least = min(row["times"] for row in rows)
    print(f"state: {least:.1f} times as fast as Spark at the least; aims {'met' if met else 'missed'}")


def measured(checkpoint: Path, keys: int, store: str, runs: int) -> dict[str, object]:
    headwater = [str(Path(sys.executable).with_name("headwater"))]
    costs = best(
        {
            "spark": [sys.executable, "-c", SPARK, str(checkpoint)],
            "ours": [sys.executable, "-c", OURS, str(checkpoint)],
            "key": [*headwater, "history", str(checkpoint), "--key", f"user=user-{keys // 2}", "--json"],
            "diff": [*headwater, "diff", str(checkpoint), "1", "2", "--json"],
        },
        runs,
    )
    return {
        "keys": keys,
        "store": store,
        "spark_s": round(costs["spark"].seconds, 3),
        "ours_s": round(costs["ours"].seconds, 3),
        "ours_mb": costs["ours"].megabytes,
        "times": round(costs["spark"].seconds / costs["ours"].seconds, 1),
        "key_s": round(costs["key"].seconds, 3),
        "diff_s": round(costs["diff"].seconds, 3),
    }


if __name__ == "__main__":
    main()
