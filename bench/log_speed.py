"""How fast ``headwater log`` answers, held against a cold PySpark process that lists the same.

Every command is a fresh process. The checkpoints are made here: log files in the shape that Spark 4.2 writes, for as many
batches as wanted, with Hadoop's crc files beside them. PySpark lists through its own means: it reads ``offsets/`` and
``commits/`` as text and the operators through the ``state-metadata`` source.

    python bench/log_speed.py [--runs 5] [--without-spark]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "log_speed.json"
BATCHES = 1_000
STATE_FILES = 100_000
START_MS = 1_750_000_000_000

CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}

SPARK_LISTING = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF").getOrCreate())
spark.streams.active
path = sys.argv[1]
logs = {}
for log in ("offsets", "commits"):
    rows = spark.read.option("wholetext", True).text(f"{path}/{log}").withColumn("name", F.input_file_name()).collect()
    logs[log] = {int(row.name.rpartition("/")[2]): row.value for row in rows}
operators = spark.read.format("state-metadata").load(path).collect()
for batch in sorted(logs["offsets"]):
    status = "committed" if batch in logs["commits"] else "planned"
    print(batch, status, *logs["offsets"][batch].splitlines()[1:])
assert operators
spark.stop()
"""


def write(path: Path, data: bytes) -> None:
    """A file and its Hadoop crc file."""
    path.write_bytes(data)
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    crc = b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums)
    path.with_name(f".{path.name}.crc").write_bytes(crc)


def make_checkpoint(folder: Path, batches: int, state_files: int = 400) -> Path:
    """A checkpoint of a Kafka query with one stateful operator in two partitions."""
    for part in ("offsets", "commits", "sources/0", "state/0/_metadata", "state/0/0", "state/0/1"):
        (folder / part).mkdir(parents=True)
    write(folder / "metadata", b'{"id":"00000000-0000-4000-8000-000000000000"}')
    write(folder / "sources/0/0", b'\0v1\n{"visits":{"0":0,"1":0}}')
    stores = '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]'
    about = f'{{"operatorInfo":{{"operatorId":0,"operatorName":"stateStoreSave"}},"stateStoreInfo":{stores}}}'
    write(folder / "state/0/_metadata/metadata", f"v1\n{about}".encode())
    for batch in range(batches):
        at = START_MS + batch * 10_000
        planned = {"batchWatermarkMs": at - 1_200_000, "batchTimestampMs": at, "conf": CONF}
        offset = {"visits": {"0": 500 * (batch + 1), "1": 480 * (batch + 1)}}
        texts = [json.dumps(value, separators=(",", ":")) for value in (planned, offset)]
        write(folder / f"offsets/{batch}", "\n".join(["v1", *texts]).encode())
        write(folder / f"commits/{batch}", f'v1\n{{"nextBatchWatermarkMs":{at - 1_190_000}}}'.encode())
    _make_state(folder, batches, state_files)
    return folder


def _make_state(folder: Path, batches: int, state_files: int) -> None:
    """Changelogs up to the last batch, a snapshot at every tenth version; half of the files are crc files."""
    for partition in (0, 1):
        place = folder / f"state/0/{partition}"
        changes = state_files // 4 * 10 // 11
        first = max(1, batches + 1 - changes) if changes < batches else 1
        for version in range(first, first + changes):
            names = [f"{version}.changelog"] + ([f"{version}.zip"] if version % 10 == 0 or version == first else [])
            for name in names:
                (place / name).touch()
                (place / f".{name}.crc").touch()


def timed(command: list[str], runs: int) -> dict[str, float]:
    """Wall and CPU seconds of fresh processes, medians; the first run warms the file cache and is left out."""
    wall, cpu = [], []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        wall.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall_seconds": statistics.median(wall[1:]), "cpu_seconds": statistics.median(cpu[1:])}


def cpu_seconds_to_read(path: Path, runs: int) -> float:
    """What the reading itself costs in one process, imports left out."""
    code = (
        "import sys, time\n"
        "from headwater.checkpoint.files import open_files\n"
        "from headwater.checkpoint.history import History\n"
        "from headwater.views.batches import batch_as_dict\n"
        "spent = []\n"
        f"for _ in range({runs}):\n"
        "    started = time.process_time()\n"
        "    [batch_as_dict(batch) for batch in History(open_files(sys.argv[1])).batches()]\n"
        "    spent.append(time.process_time() - started)\n"
        "print(min(spent))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(home: Path, runs: int, *, with_spark: bool) -> dict[str, Any]:
    headwater = [sys.executable, "-m", "headwater", "log"]
    thousand = make_checkpoint(home / "thousand", BATCHES)
    large = make_checkpoint(home / "large", BATCHES, STATE_FILES)
    state_files = sum(1 for file in (large / "state").rglob("*") if file.is_file())
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        f"headwater log, {BATCHES:,} batches": [*headwater, str(thousand)],
        f"headwater log --json, {BATCHES:,} batches": [*headwater, str(thousand), "--json"],
        "headwater log -n 20, 400 state files": [*headwater, str(thousand), "-n", "20"],
        f"headwater log -n 20, {state_files:,} state files": [*headwater, str(large), "-n", "20"],
    }
    times = {name: timed(command, runs) for name, command in commands.items()}
    log = times[f"headwater log, {BATCHES:,} batches"]["wall_seconds"]
    results: dict[str, Any] = {"batches": BATCHES, "runs": runs, "times": times, "log_seconds": log}
    if with_spark:
        spark = timed([sys.executable, "-c", SPARK_LISTING, str(thousand)], max(1, runs // 2))
        # The JVM is a process of its own that PySpark does not wait for: its CPU time cannot be had this way.
        times[f"PySpark lists the same {BATCHES:,} batches"] = {"wall_seconds": spark["wall_seconds"]}
        results["times_faster"] = spark["wall_seconds"] / log

    per_batch = {}
    for batches in (250, 1_000, 4_000):
        path = make_checkpoint(home / f"linear-{batches}", batches)
        per_batch[batches] = cpu_seconds_to_read(path, 3) / batches * 1e6
        shutil.rmtree(path)
    results["cpu_microseconds_per_batch"] = per_batch
    results["linearity"] = max(per_batch.values()) / min(per_batch.values())
    return results


def table(results: dict[str, Any]) -> list[str]:
    lines = [f"{'':<48} {'wall':>10} {'CPU':>10}"]
    for name, spent in results["times"].items():
        cpu = f"{spent['cpu_seconds']:8.3f} s" if "cpu_seconds" in spent else ""
        lines.append(f"{name:<48} {spent['wall_seconds']:8.3f} s {cpu}")
    for batches, micros in results["cpu_microseconds_per_batch"].items():
        lines.append(f"{f'reading alone, per batch, of {batches:,}':<48} {'':>10} {micros:7.1f} µs")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--without-spark", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), chosen.runs, with_spark=not chosen.without_spark)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(table(results)))
    faster = f", {results['times_faster']:.0f} times faster than PySpark" if "times_faster" in results else ""
    print(
        f"log of {BATCHES:,} batches in {results['log_seconds']:.2f} s{faster}; "
        f"cost per batch within a factor of {results['linearity']:.2f} from 250 to 4,000 batches"
    )


if __name__ == "__main__":
    main()
