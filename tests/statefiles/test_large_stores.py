"""Large stores: read in parts, on demand, and with the same rows as small ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.large_state import ADDED, BATCHES, STORES, ensure_large_state, user_name
from rocksdict import BlockBasedOptions, Options, Rdict

from corpus_support import CorpusCheckpoint, corpus_names
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles import flat_file, large_stores, partition, scan, sst_file
from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.codecs import CODECS, compress, decompressed_pieces
from headwater.statefiles.flat_file import FlatFile
from headwater.statefiles.key_lookup import key_filter
from headwater.statefiles.keyencoder import partition_of_row
from headwater.statefiles.live_rows import has_keys_once, live_rows
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import DELETE, PUT, Records, concat, records_of
from headwater.statefiles.sqltypes import Atomic
from headwater.statefiles.sst_file import TableFile
from headwater.statefiles.threads import in_order
from statefiles.encoding import Operation, plain_records, typed_records

Corpus = Callable[[str], CorpusCheckpoint]
USERS = 30_000
QUICK = (
    "aggregation-rocksdb",
    "aggregation-hdfs",
    "custom-changelog",
    "join-format2",
    "evictions",
    "row-checksum-hdfs",
)


def quick_first(names: list[str]) -> list[Any]:
    """Return names as parameters, most of them slow."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.fixture
def tiny_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every store as a large one, with parts of a few records."""
    monkeypatch.setattr(partition, "LARGE_BYTES", 0)
    monkeypatch.setattr(partition, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(large_stores, "RECORDS_AT_ONCE", 4)
    monkeypatch.setattr(flat_file, "PIECE_BYTES", 300)
    monkeypatch.setattr(flat_file, "BLOCK_BYTES", 100)
    monkeypatch.setattr(sst_file, "_READ_AT_ONCE", 0)
    monkeypatch.setattr(sst_file, "_TAIL_BYTES", 100)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", quick_first(corpus_names()))
def test_state_in_parts_has_the_same_rows(name: str, corpus: Corpus, request: pytest.FixtureRequest) -> None:
    """Every store that is read in parts of a few records has the rows that it has when it is read at once."""
    files = corpus(name).files
    whole = StateReader(files)
    batches = [whole.committed[0], whole.committed[len(whole.committed) // 2], whole.latest()]
    readable = [batch for batch in batches if batch in whole.readable()]
    expected = {
        (target.label, batch): rows_of(whole.table(target, batch))
        for batch in readable
        for target in whole.targets(batch)
    }
    request.getfixturevalue("tiny_parts")
    reader = StateReader(files)
    for batch in readable:
        for target in reader.targets(batch):
            assert rows_of(reader.table(target, batch)) == expected[target.label, batch], target.label


@pytest.mark.parametrize("name", ["aggregation-hdfs", "aggregation-rocksdb", "custom-changelog", "dedup-format2"])
def test_every_key_is_found_in_parts(name: str, corpus: Corpus, tiny_parts: None) -> None:
    """A key that is given by one of its fields is found in tiny pieces and blocks as in the complete state."""
    reader = StateReader(corpus(name).files)
    batch = reader.latest()
    compared = 0
    for target in reader.targets(batch):
        if target.kind not in ("rows", "value"):
            continue
        table = reader.table(target, batch)
        for field in target.schema.key.fields:
            if not isinstance(field.type, Atomic) or field.type.name not in ("string", "integer", "long"):
                continue
            for value in {row["key"][field.name] for row in table.to_pylist()} - {None}:
                expected = [row for row in table.to_pylist() if row["key"][field.name] == value]
                keys = key_filter(reader.decoder(target, batch), {field.name: str(value)})
                assert rows_of(reader.table(target, batch, keys)) == sorted(map(repr, expected))
                compared += 1
    assert compared


@pytest.mark.parametrize("name", quick_first(corpus_names()))
def test_spark_puts_each_key_into_the_partition_that_its_hash_names(name: str, corpus: Corpus) -> None:
    """The partition that is computed from a stored key is the one in which Spark put it."""
    reader = StateReader(corpus(name).files)
    batch = reader.latest()
    for target in reader.targets(batch):
        stores = reader.stores(target, batch)
        if len(stores) < 2 or target.kind == "raw":
            continue
        for store in stores:
            rows = reader.partition(target, store).rows(batch)
            keys = reader.decoder(target, batch).keys(rows)
            computed = [partition_of_row(target, keys.slice(number, 1), len(stores)) for number in range(len(rows))]
            assert set(computed) <= {store.partition_id, None}, target.label


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("large")
    return lambda store: ensure_large_state(folder, USERS, store)


class Counted(LocalTree):
    """A folder that records how many bytes of which files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[tuple[str, int]] = []

    def read(self, path: str) -> bytes:
        return self._count(path, super().read(path))

    def read_range(self, path: str, start: int, size: int) -> bytes:
        return self._count(path, super().read_range(path, start, size))

    def _count(self, path: str, data: bytes) -> bytes:
        self.reads.append((path, len(data)))
        return data


@pytest.mark.parametrize("store", STORES)
def test_large_state_has_every_user_once(
    store: str, large: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is read in many parts has all users, each with the value of the last batch that changed it."""
    monkeypatch.setattr(partition, "LARGE_BYTES", 1000)
    monkeypatch.setattr(large_stores, "RECORDS_AT_ONCE", 3000)
    monkeypatch.setattr(flat_file, "PIECE_BYTES", 300_000)
    reader = StateReader(LocalTree(large(store)))
    (target,) = reader.targets(reader.latest())
    pieces = list(reader.pieces(target, reader.latest()))
    assert len(pieces) > 5
    rows = pa.concat_tables(pieces)
    counts = {
        key["user"]: value["count"]
        for key, value in zip(*map(pa.ChunkedArray.to_pylist, rows.columns[:2]), strict=True)
    }
    total = USERS + ADDED * (BATCHES - 1)
    assert rows.num_rows == total
    assert counts.keys() == {user_name(number) for number in range(total)}
    assert counts[user_name(total - 1)] == (total - 1) % 1000 + BATCHES - 1
    assert counts[user_name(0)] == 0


@pytest.mark.parametrize("store", ["rocksdb", "changelog", "format2"])
def test_a_single_key_needs_few_blocks(
    store: str, large: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large RocksDB tables, the look-up of a key reads the index and one range of blocks, in one partition."""
    monkeypatch.setattr(sst_file, "_READ_AT_ONCE", 1 << 16)
    files = Counted(large(store))
    reader = StateReader(files)
    batch = reader.latest()
    (target,) = reader.targets(batch)
    user = user_name(USERS // 2)
    files.reads.clear()
    table = reader.table(target, batch, key_filter(reader.decoder(target, batch), {"user": user}))
    assert table["key"].to_pylist() == [{"user": user}]
    read = [(path, size) for path, size in files.reads if path.endswith(".sst")]
    biggest = max(files.size(path) for path, _ in read)
    assert biggest > sst_file._READ_AT_ONCE
    assert len({path.split("/")[2] for path, _ in read}) == 1
    of_biggest = [size for path, size in read if files.size(path) == biggest]
    assert len(of_biggest) <= 3
    assert sum(of_biggest) < biggest / 5


def test_an_unknown_key_is_searched_everywhere(large: Callable[[str], Path]) -> None:
    """A key that is not in the partition of its hash is looked for in the others before it counts as missing."""
    files = Counted(large("changelog"))
    reader = StateReader(files)
    (target,) = reader.targets(reader.latest())
    keys = key_filter(reader.decoder(target, reader.latest()), {"user": "nobody"})
    assert reader.table(target, reader.latest(), keys).num_rows == 0
    assert {path.split("/")[2] for path, _ in files.reads if path.endswith(".sst")} == {"0", "1"}


def test_blocks_are_chosen_by_the_known_bytes_of_keys(tmp_path: Path) -> None:
    """Every key with some known bytes lies in the chosen blocks, whichever bytes are known, and the blocks are few."""
    dice = random.Random(5)
    keys = sorted(
        {bytes([0, dice.randrange(9), dice.randrange(3), *b"%05d" % dice.randrange(10**5)]) for _ in range(5000)}
    )
    options, blocks = Options(raw_mode=True), BlockBasedOptions()
    blocks.set_block_size(512)
    blocks.set_format_version(5)
    options.set_block_based_table_factory(blocks)
    database = Rdict(str(tmp_path), options)
    for key in keys:
        database[key] = b"value"
    database.flush()
    database.close()
    (path,) = tmp_path.glob("*.sst")
    table = TableFile(LocalTree(tmp_path), path.name)
    separators = [table.index.separator(number) for number in range(len(table.index))]
    shares = []
    for key in dice.sample(keys, 30):
        mask = bytes(dice.choice((0, 0xFF)) for _ in key)
        wanted = {
            other for other in keys if all(a == b or not known for a, b, known in zip(other, key, mask, strict=True))
        }
        chosen = set(table.index.with_pattern(key, mask).tolist())
        places = {next(number for number, after in enumerate(separators) if other <= after) for other in wanted}
        assert places <= chosen
        shares.append(len(chosen) / len(separators))
    known = table.index.with_pattern(keys[777], b"\xff\0" + b"\xff" * 6)
    assert len(known) < len(separators) / 3
    assert min(shares) < 0.1


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_have_the_bytes_of_the_file(codec: str) -> None:
    """A file that is decompressed piece by piece, from blocks of any size, has the same bytes in the same order."""
    data = np.random.default_rng(2).integers(0, 20, 400_000, np.uint8).tobytes()
    packed = compress(data, codec)
    for size in (7, 1000, len(packed)):
        blocks = [packed[at : at + size] for at in range(0, len(packed), size)][:20_000]
        if len(blocks) * size >= len(packed):
            pieces = [piece.tobytes() for piece in decompressed_pieces(blocks, "x.delta", 100_000)]
            assert b"".join(pieces) == data
            assert len(pieces) > 1


def _operations(count: int) -> list[Operation]:
    """Return operations of which long runs have the same lengths and others do not."""
    dice = random.Random(count)
    found: list[Operation] = []
    while len(found) < count:
        if dice.random() < 0.5:
            found += [("put", dice.randbytes(16), dice.randbytes(24)) for _ in range(dice.randrange(20_000))]
        else:
            name = dice.choice(["put", "delete"])
            found += [
                (name, dice.randbytes(dice.randrange(40)), dice.randbytes(dice.randrange(40)))
                for _ in range(dice.randrange(3000))
            ]
    return found


@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
def test_files_are_scanned_in_pieces(typed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scanned in pieces, with runs of equal lengths, a file has the records that a sequential scan finds."""
    operations = _operations(40_000)
    data = typed_records(operations) if typed else plain_records(operations)
    path = "state/0/0/2.changelog"
    files = MemoryTree({path: compress(data, "lz4")})
    monkeypatch.setattr(flat_file, "PIECE_BYTES", 300_000)
    parts = list(FlatFile(files, path).parts())
    assert len(parts) > 3
    assert [entry for part in parts for entry in _entries(part)] == [
        (key, b"" if name == "delete" else value) for name, key, value in operations
    ]
    assert np.concatenate([part.rank for part in parts]).tolist() == list(range(len(operations)))
    key = next(key for name, key, _ in operations[len(operations) // 3 :] if len(key) > 10)
    found = [entry for part in FlatFile(files, path).parts_with(key, key) for entry in _entries(part)]
    assert key in [entry[0] for entry in found]
    assert len(found) < 100


def _entries(records: Records) -> list[tuple[bytes, bytes]]:
    return [(records.key(number), records.value(number)) for number in range(len(records))]


def test_a_run_of_equal_lengths_ends_where_a_length_differs() -> None:
    """Records that look alike except for one length are found where they really begin."""
    operations: list[Operation] = [("put", b"k" * 16, b"v" * 24)] * 30_000
    operations[20_000] = ("put", b"k" * 16, b"v" * 23)
    space = ByteSpace(plain_records(operations))
    starts = scan.record_starts(space, 0, "x.delta", typed=False)
    assert starts.tolist() == [48 * number - (number > 20_000) for number in range(30_000)]


def test_truncated_large_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file that ends early is refused by name."""
    monkeypatch.setattr(flat_file, "PIECE_BYTES", 100_000)
    data = plain_records(_operations(20_000))
    for end in (len(data) - 4, len(data) // 2):
        file = FlatFile(MemoryTree({"a.delta": compress(data[:end], "lz4")}), "a.delta")
        with pytest.raises(CheckpointUnreadable, match=r"a\.delta is truncated"):
            list(file.parts())


def test_results_come_in_order_and_errors_reach_the_caller() -> None:
    """Functions that run in threads return in order; what one raises is raised where its result would be."""

    def fail() -> int:
        raise ValueError("a part cannot be read")

    functions: list[Callable[[], Any]] = [lambda number=number: number for number in range(50)]
    assert list(in_order(functions, 3)) == list(range(50))
    results = in_order([*functions, fail, *functions], 3)
    assert [next(results) for _ in range(50)] == list(range(50))
    with pytest.raises(ValueError, match="cannot be read"):
        next(results)


@pytest.mark.parametrize("width", [2, 7, 8, 30])
def test_tables_that_overlap_leave_the_rows_of_a_full_comparison(width: int) -> None:
    """A large table and small ones with changes of its keys, and newer files on top, leave what `live_rows` leaves."""
    rng = random.Random(width)

    def records(count: int, first: int, operations: list[int]) -> Records:
        keys = sorted({f"{rng.randrange(3 * count):0{width}}".encode() for _ in range(count)})
        values = [str(rng.random()).encode() for _ in keys]
        operation = np.array([rng.choice(operations) for _ in keys], np.uint8)
        return records_of(keys, values, operation, first + np.arange(len(keys)))

    def pairs(found: Records) -> list[tuple[bytes, bytes]]:
        return sorted(found.pairs())

    for small in (0, 5, 400):
        tables = [records(400, 0, [PUT]), *([records(small, 1000, [PUT, DELETE])] if small else [])]
        live = large_stores._live_in_range(tables)
        assert pairs(live) == pairs(live_rows(concat(tables)))
        newer = records(20, 5000, [PUT, DELETE])
        hiding = large_stores.NewerRecords(newer)
        left = [*hiding.left(live).pairs(), *hiding.live().pairs()]
        assert sorted(left) == pairs(live_rows(concat([*tables, newer])))


def test_tables_with_keys_apart_are_read_as_one() -> None:
    """Tables whose keys don't interleave, as compaction leaves them, are one for the comparison with a third table."""

    def puts(numbers: range, rank: int) -> Records:
        keys = [b"key-%06d" % number for number in numbers]
        return records_of(keys, keys, np.full(len(keys), PUT, np.uint8), np.full(len(keys), rank))

    apart = [puts(range(200, 300), 1), puts(range(100), 1), puts(range(100, 200), 1)]
    assert [len(one) for one in large_stores._joined_neighbors(apart)] == [300]
    assert len(large_stores._joined_neighbors([*apart, puts(range(99, 101), 2)])) == 3
    for tables in (apart, [*apart, puts(range(50, 250, 30), 2)], [puts(range(5), 1), puts(range(4, 9), 2)]):
        live = large_stores._live_in_range(tables)
        assert sorted(live.pairs()) == sorted(live_rows(concat(tables)).pairs())


def test_keys_that_occur_twice_are_noticed() -> None:
    """Records in the order of their keys are all live only if they are puts of different keys."""
    keys, values, rank = [b"a", b"b", b"b"], [b""] * 3, np.arange(3)
    assert not has_keys_once(records_of(keys, values, np.full(3, PUT, np.uint8), rank))
    assert has_keys_once(records_of([b"a", b"b", b"bb"], values, np.full(3, PUT, np.uint8), rank))
    assert not has_keys_once(records_of([b"a", b"b", b"c"], values, np.array([PUT, DELETE, PUT], np.uint8), rank))
