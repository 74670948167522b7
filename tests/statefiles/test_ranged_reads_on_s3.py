"""Large state on S3: a look-up requests only the parts of files that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.large_state import BATCHES, ensure_large_state, user_name

from headwater.checkpoint.locate import open_files
from headwater.checkpoint.object_tree import ObjectTree
from headwater.core.ids import BatchId
from headwater.spark.state_source import StateSource
from s3_support import S3

USERS = 80_000


class CountedRequests:
    """The file system of an object store that records what is read of which object."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self.reads: list[tuple[str, int]] = []
        self.others: list[str] = []

    def cat_file(self, path: str, **options: Any) -> bytes:
        data: bytes = self._system.cat_file(path, **options)
        self.reads.append((path, len(data)))
        return data

    def __getattr__(self, name: str) -> Any:
        self.others.append(name)
        return getattr(self._system, name)


def counted(url: str) -> tuple[ObjectTree, CountedRequests]:
    files = open_files(url)
    assert isinstance(files, ObjectTree)
    requests = CountedRequests(files._system)
    files._system = requests
    return files, requests


@pytest.fixture(scope="module", params=["rocksdb", "format2"])
def uploaded(request: pytest.FixtureRequest, s3: S3, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    store = str(request.param)
    local = ensure_large_state(tmp_path_factory.mktemp("large"), USERS, store)
    return s3.upload(local, f"large-{store}"), local


@pytest.mark.parametrize("where", [True, False], ids=["where", "key"])
def test_one_key_takes_a_few_ranges(where: bool, uploaded: tuple[str, Path]) -> None:
    """Of the tables, the look-up of a key reads a few kilobytes in one partition, whichever option names the key."""
    url, local = uploaded
    files, requests = counted(url)
    source = StateSource(files)
    user = user_name(USERS // 2)
    options: dict[str, Any] = {"where": f"user = '{user}'"} if where else {"key": {"user": user}}
    (answer,) = source.answers(BatchId(BATCHES - 1), **options)
    assert answer.table["key"].to_pylist() == [{"user": user}]
    tables = [(path, size) for path, size in requests.reads if path.endswith(".sst")]
    largest = max(tables, key=lambda read: (local / "state" / read[0].partition("/state/")[2]).stat().st_size)[0]
    stored = (local / "state" / largest.partition("/state/")[2]).stat().st_size
    assert len([path for path, _ in tables if path == largest]) <= 3
    assert sum(size for path, size in tables if path == largest) < stored / 5
    assert len({path.partition("/state/")[2].split("/")[1] for path, _ in tables}) == 1
    assert "size" not in requests.others  # the snapshot records how large its tables are
    assert len(requests.reads) < 30


def test_complete_state_reads_each_byte_once(uploaded: tuple[str, Path]) -> None:
    """Reading everything transfers the tables about once, and has every row."""
    url, local = uploaded
    files, requests = counted(url)
    (answer,) = StateSource(files).answers(BatchId(BATCHES - 1))
    assert answer.table.num_rows == USERS + 10 * (BATCHES - 1)
    stored = sum(path.stat().st_size for path in (local / "state").rglob("*.sst"))
    assert sum(size for path, size in requests.reads if path.endswith(".sst")) < 1.5 * stored


def test_ranges_of_an_object_are_those_of_a_file(uploaded: tuple[str, Path]) -> None:
    """A range has the bytes of the file, fewer at its end, and none after it."""
    url, local = uploaded
    files = open_files(url)
    path = "state/0/_metadata/metadata"
    data = (local / path).read_bytes()
    assert files.size(path) == len(data)
    assert files.read_range(path, 5, 10) == data[5:15]
    assert files.read_range(path, len(data) - 3, 10) == data[-3:]
    assert files.read_range(path, len(data), 10) == b""
    with pytest.raises(FileNotFoundError):
        files.read_range("state/nothing", 0, 10)
