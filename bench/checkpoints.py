"""Checkpoints to measure on, generated or written by Spark, and the timing of a stream read from its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

START_MS = 1_750_000_000_000
STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{STATE}.RocksDBStateStoreProvider"
STATE_FILE = bytes(100)
STATE_BATCHES = 15
PROGRAM = Path(__file__).with_name("make_state.py")

CONF = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}


@dataclass(frozen=True)
class StreamTimes:
    """``ready_at`` is the start of the first batch, once the source's offsets are known; ``done_at`` is the last commit."""

    ready_at: float
    done_at: float
    batches: int
    batch_seconds: tuple[float, ...]


def read_stream_times(checkpoint: Path) -> StreamTimes:
    """Read when a stream began and ended from its checkpoint, independent of the program that ran it."""
    planned = {int(file.name): file for file in (checkpoint / "offsets").glob("[0-9]*")}
    commits = {int(file.name): file.stat().st_mtime for file in (checkpoint / "commits").glob("[0-9]*")}
    first, last = min(planned), max(commits)
    ready_at = json.loads(planned[first].read_text().splitlines()[1])["batchTimestampMs"] / 1000
    ends = [ready_at, *(commits[batch] for batch in sorted(commits))]
    return StreamTimes(ready_at, commits[last], len(commits), tuple(end - begin for begin, end in pairwise(ends)))


def _write_with_crc(path: Path, data: bytes) -> None:
    """Write a file and its Hadoop crc file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    crc = b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums)
    path.with_name(f".{path.name}.crc").write_bytes(crc)


def ensure_generated_checkpoint(parent: Path, batches: int) -> Path:
    """Return a generated checkpoint of a Kafka query with one stateful operator; it is created once and reused.

    The files have the layout of Spark 4.2, two state partitions and a state change in every batch. A listing or a rewind
    depends on the number of state files, not on their content, so the content is zeros.
    """
    folder = parent / f"log-{batches}"
    if not (folder / "commits" / str(batches - 1)).exists():
        shutil.rmtree(folder, ignore_errors=True)
        _generate_checkpoint(folder, batches)
    return folder


def _generate_checkpoint(folder: Path, batches: int) -> None:
    _write_with_crc(folder / "metadata", b'{"id":"00000000-0000-4000-8000-000000000000"}')
    _write_with_crc(folder / "sources/0/0", b'\0v1\n{"visits":{"0":0,"1":0}}')
    stores = '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]'
    operator = f'{{"operatorInfo":{{"operatorId":0,"operatorName":"stateStoreSave"}},"stateStoreInfo":{stores}}}'
    _write_with_crc(folder / "state/0/_metadata/metadata", f"v1\n{operator}".encode())
    for batch in range(batches):
        at = START_MS + batch * 10_000
        planned = {"batchWatermarkMs": at - 1_200_000, "batchTimestampMs": at, "conf": CONF}
        offset = {"visits": {"0": 500 * (batch + 1), "1": 480 * (batch + 1)}}
        texts = [json.dumps(value, separators=(",", ":")) for value in (planned, offset)]
        _write_with_crc(folder / f"offsets/{batch}", "\n".join(["v1", *texts]).encode())
        _write_with_crc(folder / f"commits/{batch}", f'v1\n{{"nextBatchWatermarkMs":{at - 1_190_000}}}'.encode())
        for partition in (0, 1):
            _write_with_crc(folder / f"state/0/{partition}/{batch + 1}.changelog", STATE_FILE)
            if batch % 10 == 0:
                _write_with_crc(folder / f"state/0/{partition}/{batch + 1}.zip", STATE_FILE)


def ensure_spark_checkpoint(parent: Path, keys: int) -> Path:
    """Return a checkpoint that Spark wrote with ``keys`` keys in RocksDB; it is created once and reused."""
    home = parent / f"state-{keys}"
    if not (home / "checkpoint" / "commits" / str(STATE_BATCHES - 1)).exists():
        subprocess.run(
            [sys.executable, str(PROGRAM), str(home), str(keys), str(STATE_BATCHES - 1)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
        )
    return home / "checkpoint"
