"""Large checkpoints for every state store, written without Spark: users with a count and the time of their last visit.

The files have the layout of Spark 4.2. The first batch has all users; each later one changes a thousand of them and adds
ten. RocksDB itself writes the tables. ``python -m bench.large_state FOLDER USERS STORE`` writes one checkpoint.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.checkpoints import CONF, START_MS, STATE
from headwater.statefiles.buffers import texts
from headwater.statefiles.codecs import compress
from headwater.statefiles.murmur3 import partition_of
from headwater.statefiles.sqltypes import Atomic

STORES = ("hdfs", "rocksdb", "changelog", "format2")
BATCHES = 5
CHANGED, ADDED = 1_000, 10
_SLICE = 1_000_000
_KEY = '{"type":"struct","fields":[{"name":"user","type":"string","nullable":true,"metadata":{}}]}'
_VALUE = (
    '{"type":"struct","fields":[{"name":"count","type":"long","nullable":false,"metadata":{}},'
    '{"name":"last","type":"timestamp","nullable":true,"metadata":{}}]}'
)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_END = struct.pack(">i", -1)


def user_name(number: int) -> str:
    return f"user-{number:09d}"


def ensure_large_state(parent: Path, users: int, store: str, partitions: int = 2) -> Path:
    """Return a checkpoint with so many users in one of ``STORES``; it is created once and reused."""
    folder = parent / f"{store}-{users}"
    if not (folder / "commits" / str(BATCHES - 1)).exists():
        shutil.rmtree(folder, ignore_errors=True)
        _Writer(folder, users, store, partitions).write()
    return folder


@dataclass
class _Writer:
    folder: Path
    users: int
    store: str
    partitions: int
    ids: dict[int, list[str]] = field(default_factory=dict)

    def write(self) -> None:
        for partition in range(self.partitions):
            place = self.folder / "state/0" / str(partition)
            place.mkdir(parents=True)
            if self.store == "hdfs":
                self._hdfs(place, partition)
            else:
                self._rocksdb(place, partition)
        self._logs()

    def _rows(self, batch: int, partition: int) -> Iterator[np.ndarray]:
        """Yield the rows that a batch puts, as in a changelog: ``length, key, length, value``."""
        if batch == 0:
            ranges = [(first, min(first + _SLICE, self.users)) for first in range(0, self.users, _SLICE)]
        else:
            end = self.users + ADDED * batch
            ranges = [(max(0, end - CHANGED - ADDED), end)]
        for first, end in ranges:
            yield _encoded(np.arange(first, end), batch, partition, self.partitions, hdfs=self.store == "hdfs")

    def _plain(self, batch: int, partition: int) -> bytes:
        return b"".join([*(rows.tobytes() for rows in self._rows(batch, partition)), _END])

    def _hdfs(self, place: Path, partition: int) -> None:
        everything = compress(self._plain(0, partition), "lz4")
        (place / "1.delta").write_bytes(everything)
        (place / "1.snapshot").write_bytes(everything)
        for batch in range(1, BATCHES):
            (place / f"{batch + 1}.delta").write_bytes(compress(self._plain(batch, partition), "lz4"))

    def _rocksdb(self, place: Path, partition: int) -> None:
        scratch = self.folder / "scratch"
        database = _Database(scratch, place)
        lineage: list[tuple[int, str]] = []
        for batch in range(BATCHES):
            version = batch + 1
            name = str(version)
            if self.store == "format2":
                self.ids.setdefault(batch, []).append(str(uuid.uuid4()))
                name = f"{version}_{self.ids[batch][-1]}"
            if batch == 0 or self.store == "rocksdb":
                for rows in self._rows(batch, partition):
                    database.put(rows)
                database.snapshot(place / f"{name}.zip", compact=batch == 0)
            if batch and self.store != "rocksdb":
                header = _lineage(lineage) if self.store == "format2" else b""
                (place / f"{name}.changelog").write_bytes(compress(header + self._plain(batch, partition), "lz4"))
            if self.store == "format2":
                lineage.append((version, self.ids[batch][-1]))
        database.close()

    def _logs(self) -> None:
        provider = "HDFSBackedStateStoreProvider" if self.store == "hdfs" else "RocksDBStateStoreProvider"
        conf = {**CONF, _PROVIDER: f"{STATE}.{provider}", "spark.sql.shuffle.partitions": str(self.partitions)}
        stores = f'[{{"storeName":"default","numColsPrefixKey":0,"numPartitions":{self.partitions}}}]'
        operator = f'{{"operatorInfo":{{"operatorId":0,"operatorName":"stateStoreSave"}},"stateStoreInfo":{stores}}}'
        self._text("metadata", '{"id":"00000000-0000-4000-8000-000000000000"}')
        self._text("state/0/_metadata/metadata", f"v1\n{operator}")
        schema = self.folder / "state/0/0/_metadata/schema"
        schema.parent.mkdir(exist_ok=True)
        schema.write_bytes(_utf("v2") + b"".join(struct.pack(">i", 1) + _utf(part) for part in (_KEY, _VALUE)))
        for batch in range(BATCHES):
            planned = {"batchWatermarkMs": 0, "batchTimestampMs": START_MS + batch * 10_000, "conf": conf}
            offset = {"visits": {"0": self.users + CHANGED * batch}}
            self._text(f"offsets/{batch}", "\n".join(["v1", json.dumps(planned), json.dumps(offset)]))
            commit: dict[str, object] = {"nextBatchWatermarkMs": 0}
            if self.store == "format2":
                commit["stateUniqueIds"] = {"0": [[unique_id] for unique_id in self.ids[batch]]}
            self._text(f"commits/{batch}", f"v{2 if self.store == 'format2' else 1}\n{json.dumps(commit)}")

    def _text(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _encoded(users: np.ndarray, batch: int, partition: int, partitions: int, *, hdfs: bool) -> np.ndarray:
    names = np.array([user_name(number).encode() for number in users.tolist()])
    column = texts([name.decode() for name in names.tolist()])
    chosen = partition_of([Atomic("string")], [column], len(users), partitions) == partition
    order = np.flatnonzero(chosen)
    if hdfs:  # a hash map has its keys in no order
        order = np.random.default_rng(1).permutation(order)
    users, names = users[order], names[order]
    width = names.dtype.itemsize
    padded = (width + 7) // 8 * 8
    extra = 0 if hdfs else 1
    fields: list[tuple[str, object]] = [("key_length", ">i4")]
    fields += [] if hdfs else [("key_version", "u1")]
    fields += [("key_nulls", "<i8"), ("slot", "<i8"), ("name", f"S{padded}"), ("value_length", ">i4")]
    fields += [] if hdfs else [("value_version", "u1")]
    fields += [("value_nulls", "<i8"), ("count", "<i8"), ("last", "<i8")]
    rows = np.zeros(len(users), np.dtype(fields))
    rows["key_length"], rows["value_length"] = extra + 16 + padded, extra + 24
    rows["slot"], rows["name"] = 16 << 32 | width, names
    rows["count"], rows["last"] = users % 1000 + batch, (START_MS + users) * 1000
    return rows


class _Database:
    """A RocksDB database with Spark's options, and snapshots of it as Spark writes them."""

    def __init__(self, scratch: Path, place: Path) -> None:
        from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict

        shutil.rmtree(scratch, ignore_errors=True)
        options, blocks = Options(raw_mode=True), BlockBasedOptions()
        blocks.set_block_size(4096)
        blocks.set_bloom_filter(10, False)
        blocks.set_format_version(5)
        blocks.set_checksum_type(ChecksumType.xxh3())
        options.set_block_based_table_factory(blocks)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_disable_auto_compactions(True)
        self._scratch, self._tables = scratch, place / "SSTs"
        self._database = Rdict(str(scratch), options)
        self._copied: dict[str, str] = {}
        self._tables.mkdir()

    def put(self, rows: np.ndarray) -> None:
        from rocksdict import WriteBatch

        data, width = rows.tobytes(), rows.dtype.itemsize
        key = slice(4, 4 + int(rows["key_length"][0])) if len(rows) else slice(0, 0)
        batch = WriteBatch(raw_mode=True)
        for number, at in enumerate(range(0, len(data), width)):
            row = data[at : at + width]
            batch.put(row[key], row[key.stop + 4 :])
            if number % 10_000 == 9_999:
                self._database.write(batch)
                batch = WriteBatch(raw_mode=True)
        self._database.write(batch)

    def snapshot(self, zip_path: Path, *, compact: bool) -> None:
        self._database.flush()
        if compact:
            self._database.compact_range(None, None)
        live = sorted(Path(item["name"]).name for item in self._database.live_files())
        for name in live:
            if name not in self._copied:
                self._copied[name] = f"{name.removesuffix('.sst')}-{uuid.uuid4()}.sst"
                shutil.copy(self._scratch / name, self._tables / self._copied[name])
        tables = [
            {
                "localFileName": name,
                "dfsSstFileName": self._copied[name],
                "sizeBytes": (self._scratch / name).stat().st_size,
            }
            for name in live
        ]
        metadata = {
            "sstFiles": tables,
            "numKeys": 0,
            "numInternalKeys": 0,
            "columnFamilyMapping": {},
            "columnFamilyTypeMap": {},
            "maxColumnFamilyId": 0,
        }
        with zipfile.ZipFile(zip_path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(self._scratch.iterdir()):
                if file.name.startswith(("MANIFEST", "CURRENT", "OPTIONS")):
                    archive.write(file, file.name)
            archive.writestr("metadata", f"v1\n{json.dumps(metadata)}")

    def close(self) -> None:
        self._database.close()
        shutil.rmtree(self._scratch)


def _lineage(lineage: list[tuple[int, str]]) -> bytes:
    items = [{"version": number, "checkpointUniqueId": unique_id} for number, unique_id in lineage]
    return _utf("v3") + _utf(json.dumps(items, separators=(",", ":")))


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


if __name__ == "__main__":
    print(ensure_large_state(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
