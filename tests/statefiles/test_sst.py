"""RocksDB's table files, compared with RocksDB itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

from corpus_support import CorpusCheckpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.live_rows import live_rows
from headwater.statefiles.records import Records, concat
from headwater.statefiles.refusals import UnknownFormat
from headwater.statefiles.rocksdb_snapshot import open_snapshot, read_snapshot, read_through_rocksdb
from headwater.statefiles.sst import read_tables

Corpus = Callable[[str], CorpusCheckpoint]


def content(records: Records) -> dict[bytes, bytes]:
    return {records.key(number): records.value(number) for number in range(len(records))}


def create_database(
    folder: Path, compression: DBCompressionType, writes: list[list[tuple[bytes, bytes | None]]]
) -> dict[bytes, bytes]:
    """Create a database with one table per list of writes; return its contents."""
    options = Options(raw_mode=True)
    options.set_compression_type(compression)
    tables = BlockBasedOptions()
    tables.set_format_version(5)  # Spark's
    options.set_block_based_table_factory(tables)
    options.set_disable_auto_compactions(True)
    database = Rdict(str(folder), options)
    for some in writes:
        for key, value in some:
            if value is None:
                del database[key]
            else:
                database[key] = value
        database.flush()
    found = dict(database.items())
    database.close()
    return found


def tables_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.sst"))


@pytest.mark.parametrize("compression", [DBCompressionType.lz4(), DBCompressionType.none(), DBCompressionType.zstd()])
def test_tables_have_the_contents_that_rocksdb_reads(compression: DBCompressionType, tmp_path: Path) -> None:
    """Keys that are overwritten or deleted across several tables are read as by RocksDB itself."""
    dice = random.Random(3)
    keys = [b"key-%05d-%s" % (number, b"x" * dice.randrange(30)) for number in range(4000)]
    writes: list[list[tuple[bytes, bytes | None]]] = [
        [(key, dice.randbytes(dice.randrange(50))) for key in keys],
        [(key, dice.randbytes(9)) for key in dice.sample(keys, 500)],
        [(key, None) for key in dice.sample(keys, 300)],
        [(b"one alone", b"")],
    ]
    expected = create_database(tmp_path, compression, writes)
    parts = read_tables(LocalTree(tmp_path), tables_in(tmp_path))
    assert len(parts) == 4
    assert content(live_rows(concat(parts))) == expected


@pytest.mark.parametrize("lengths", [(1, 4), (100, 180), (3, 260), (250, 400), (0, 1)])
def test_keys_of_any_length_are_read_as_by_rocksdb(lengths: tuple[int, int], tmp_path: Path) -> None:
    """Keys that share any part with their predecessor, and values of up to 20,000 bytes, are those of RocksDB."""
    dice = random.Random(sum(lengths))
    shortest, longest = lengths
    keys = {b"".join(dice.choices((b"a", b"b"), (9, 1), k=dice.randint(shortest, longest))) for _ in range(3000)}
    sizes = (0, 7, 127, 128, 300, 20_000)
    writes = [(key, dice.randbytes(dice.choices(sizes, (9, 9, 3, 3, 3, 0.02))[0])) for key in sorted(keys)]
    expected = create_database(tmp_path, DBCompressionType.lz4(), [[*writes]])
    assert content(concat(read_tables(LocalTree(tmp_path), tables_in(tmp_path)))) == expected


def test_some_keys_need_few_blocks(tmp_path: Path) -> None:
    """Reading a few keys of a table returns these and only their neighbors."""
    keys = [b"key-%06d" % number for number in range(20_000)]
    expected = create_database(tmp_path, DBCompressionType.lz4(), [[(key, key[::-1]) for key in keys]])
    wanted = sorted([keys[0], keys[777], keys[12_345], keys[-1], b"before all", b"zzz after all"])
    (part,) = read_tables(LocalTree(tmp_path), tables_in(tmp_path), wanted)
    found = content(part)
    assert {key: found.get(key) for key in wanted} == {key: expected.get(key) for key in wanted}
    assert len(part) < 3000


def test_a_corrupt_block_is_refused(tmp_path: Path) -> None:
    """A flipped bit in a table is detected by its checksum."""
    create_database(tmp_path, DBCompressionType.lz4(), [[(b"key-%d" % number, b"value") for number in range(500)]])
    (name,) = tables_in(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[100] ^= 4
    (tmp_path / name).write_bytes(bytes(data))
    with pytest.raises(CheckpointUnreadable, match="checksum"):
        read_tables(LocalTree(tmp_path), [name])


def test_a_file_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    """A file that is not a table, is empty or does not exist is refused by name."""
    (tmp_path / "1.sst").write_bytes(b"nothing like a table" * 10)
    (tmp_path / "2.sst").write_bytes(b"")
    for name in ("1.sst", "2.sst", "3.sst"):
        with pytest.raises(CheckpointUnreadable, match=name):
            read_tables(LocalTree(tmp_path), [name])


@pytest.mark.parametrize("name", ["aggregation-rocksdb", "custom-rocksdb", "join-format2"])
def test_snapshots_of_spark_read_as_rocksdb_reads_them(name: str, corpus: Corpus) -> None:
    """Every snapshot in a checkpoint has the keys and values that RocksDB reads."""
    held = corpus(name)
    files = LocalTree(held.path)
    snapshots = sorted(path.relative_to(held.path).as_posix() for path in held.path.rglob("*.zip"))
    assert snapshots
    for path in snapshots:
        snapshot = open_snapshot(files, path)
        ours = content(live_rows(concat(read_snapshot(files, path))))
        theirs = content(read_through_rocksdb(files, snapshot))
        # RocksDB is opened without Spark's merge operator and joins merged values with a comma.
        assert ours.keys() == theirs.keys()
        assert {key: ours[key] for key in ours if b"," not in theirs[key]} == {
            key: value for key, value in theirs.items() if b"," not in value
        }


def test_unknown_tables_are_read_through_rocksdb(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in an unknown format are read by RocksDB instead."""
    held = corpus("aggregation-rocksdb")
    files = LocalTree(held.path)
    path = min(path.relative_to(held.path).as_posix() for path in held.path.rglob("*.zip"))
    expected = content(live_rows(concat(read_snapshot(files, path))))

    def unknown(*_: object) -> list[Records]:
        raise UnknownFormat("state-format-unknown", "a table in a future format")

    monkeypatch.setattr("headwater.statefiles.rocksdb_snapshot.read_tables", unknown)
    assert content(concat(read_snapshot(files, path))) == expected
