"""Checkpoints to measure on: logs in the shape that Spark 4.2 writes, made here; and states that Spark itself makes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

START_MS = 1_750_000_000_000
STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{STATE}.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
BATCHES_OF_STATE = 15
PROGRAM = Path(__file__).parent / "contenders" / "make_state.py"

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


def write(path: Path, data: bytes) -> None:
    """A file and its Hadoop crc file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    crc = b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums)
    path.with_name(f".{path.name}.crc").write_bytes(crc)


def logged(folder: Path, batches: int, *, state_bytes: int = 100) -> Path:
    """A Kafka query of so many batches with one stateful operator in two partitions, a change of state in every batch.

    What is in its state files does not matter to a listing or a rewind; how many there are does.
    """
    write(folder / "metadata", b'{"id":"00000000-0000-4000-8000-000000000000"}')
    write(folder / "sources/0/0", b'\0v1\n{"visits":{"0":0,"1":0}}')
    stores = '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]'
    about = f'{{"operatorInfo":{{"operatorId":0,"operatorName":"stateStoreSave"}},"stateStoreInfo":{stores}}}'
    write(folder / "state/0/_metadata/metadata", f"v1\n{about}".encode())
    state = bytes(state_bytes)
    for batch in range(batches):
        at = START_MS + batch * 10_000
        planned = {"batchWatermarkMs": at - 1_200_000, "batchTimestampMs": at, "conf": CONF}
        offset = {"visits": {"0": 500 * (batch + 1), "1": 480 * (batch + 1)}}
        texts = [json.dumps(value, separators=(",", ":")) for value in (planned, offset)]
        write(folder / f"offsets/{batch}", "\n".join(["v1", *texts]).encode())
        write(folder / f"commits/{batch}", f'v1\n{{"nextBatchWatermarkMs":{at - 1_190_000}}}'.encode())
        for partition in (0, 1):
            write(folder / f"state/0/{partition}/{batch + 1}.changelog", state)
            if batch % 10 == 0:
                write(folder / f"state/0/{partition}/{batch + 1}.zip", state)
    return folder


def with_state(folder: Path, keys: int) -> Path:
    """A checkpoint that Spark made, with so many keys in RocksDB, snapshots and changelogs; made once and kept."""
    home = folder / f"state-{keys}"
    if not (home / "checkpoint" / "commits" / str(BATCHES_OF_STATE - 1)).exists():
        subprocess.run(
            [sys.executable, str(PROGRAM), str(home), str(keys), str(BATCHES_OF_STATE - 1)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
        )
    return home / "checkpoint"
