"""The zip of a RocksDB snapshot."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.rocksdb_zip import SnapshotFile, open_snapshot_zip
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.rocksdb_snapshot import open_snapshot

PATH = "state/0/0/1.zip"
TABLE = {"localFileName": "000008.sst", "dfsSstFileName": "000008-a.sst", "sizeBytes": 7}
LOG = {"localFileName": "000009.log", "dfsLogFileName": "000009-b.log", "sizeBytes": 3}


def zipped(metadata: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("metadata", metadata)
    return packed.getvalue()


def test_files_and_families() -> None:
    """A snapshot has the files outside the zip, relative to the store, and the ids of its column families."""
    about = {"sstFiles": [TABLE], "logFiles": [LOG], "columnFamilyMapping": {"default": 1}}
    snapshot = open_snapshot_zip(zipped(b"v1\n" + json.dumps(about).encode()), PATH)
    assert snapshot.tables == (SnapshotFile("SSTs/000008-a.sst", 7, "000008.sst"),)
    assert snapshot.logs == (SnapshotFile("logs/000009-b.log", 3, "000009.log"),)
    assert snapshot.files == snapshot.tables + snapshot.logs
    assert snapshot.families == {"default": 1}


def test_the_version_that_spark_40_writes() -> None:
    """It is 2 in checkpoint format 2, and nothing else is different."""
    about = json.dumps({"sstFiles": [TABLE]}).encode()
    first, second = (open_snapshot_zip(zipped(b"v%d\n" % number + about), PATH) for number in (1, 2))
    assert (first.version, second.version) == (1, 2)
    assert first.tables == second.tables


@pytest.mark.parametrize(
    ("data", "code", "state_code"),
    [
        (b"", "empty-file", "state-broken"),
        (b"PK not a zip", "bad-zip", "state-broken"),
        (zipped(b"v3\n{}"), "newer-version", "state-format-unknown"),
        (zipped(b'v1\n{"sstFiles":'), "torn-file", "state-broken"),
        (zipped(b'v1\n{"sstFiles":{}}'), "bad-json", "state-broken"),
        (zipped(b'v1\n{"sstFiles":[{"localFileName":"a"}]}'), "bad-json", "state-broken"),
        (zipped(b"v1\n{}"), "bad-json", "state-broken"),
        (zipped(b'v1\n{"sstFiles":[],"logFiles":{}}'), "bad-json", "state-broken"),
        (zipped(b'v1\n{"sstFiles":[],"columnFamilyMapping":[1]}'), "bad-json", "state-broken"),
        (zipped(b'v1\n{"sstFiles":[],"columnFamilyMapping":{"a":"1"}}'), "bad-json", "state-broken"),
    ],
)
def test_unreadable_snapshot(data: bytes, code: str, state_code: str) -> None:
    """fsck and the state reader refuse the same snapshots, each with its own code."""
    with pytest.raises(CheckpointUnreadable) as refused:
        open_snapshot_zip(data, PATH)
    assert (refused.value.code, refused.value.problem.split()[0]) == (code, PATH)
    with pytest.raises(CheckpointUnreadable) as refused:
        open_snapshot(MemoryTree({PATH: data}), PATH)
    assert (refused.value.code, refused.value.problem.split()[0]) == (state_code, PATH)


def test_corrupt_file_in_the_zip() -> None:
    """A changed byte in any file of the zip is found by its checksum."""
    files = as_memory_files("aggregation-rocksdb")
    data = bytearray(files.read("state/0/0/1.zip"))
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        info = next(entry for entry in held.infolist() if entry.filename.startswith("OPTIONS"))
    data[info.header_offset + 30 + len(info.filename) + info.compress_size // 2] ^= 1
    snapshot = open_snapshot_zip(bytes(data), PATH)
    with pytest.raises(CheckpointUnreadable) as refused:
        snapshot.verify()
    assert refused.value.code == "bad-zip"
