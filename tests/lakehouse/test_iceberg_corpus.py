"""Headwater's reader and planner on Iceberg tables that real Spark wrote, with Spark's own rows and PyIceberg as oracles."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from corpus_maker.iceberg_tables import STORIES, name_of
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.source_offsets import SourceRange
from headwater.checkpoint.table_offsets import IcebergPosition, iceberg_position
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId
from headwater.lakehouse.iceberg_files import live_files, manifests_of, missing_of
from headwater.lakehouse.iceberg_metadata import TableMetadata
from headwater.lakehouse.iceberg_source import (
    initial_position,
    reads_between,
    start_position,
    unread_rows,
    unreadable_part,
)
from headwater.lakehouse.iceberg_table import IcebergTable
from headwater.lakehouse.tables import open_table
from headwater.timemachine.effects import find_rereads
from headwater.timemachine.rewind import plan_query_rewind
from headwater.timemachine.tables import checkpointed, fsck
from headwater.timemachine.undo import plan_query_undo

FOLDER = Path(__file__).parents[1] / "corpus" / "iceberg"
NAMES = sorted(archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz"))
Unpack = Callable[[str], "Home"]


@cache
def _archive(name: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(lzma.decompress((FOLDER / f"{name}.tar.xz").read_bytes()))) as tar:
        return {member.name: held.read() for member in tar if (held := tar.extractfile(member))}


class Home:
    """An archive that was unpacked, in the current folder: the paths of the tables are relative."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(name).absolute()
        for path, data in _archive(name).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.folder / "checkpoint")

    @property
    def uri(self) -> str:
        return str(self.note("case")["uri"])

    def note(self, name: str) -> Any:
        return json.loads(_archive(self.name)[f"{name}.json"])

    @property
    def table(self) -> TableMetadata:
        return self.opened.table

    @property
    def opened(self) -> IcebergTable:
        found = open_table(self.uri)
        assert isinstance(found, IcebergTable)
        return found

    @property
    def rows(self) -> list[str]:
        """The rows of the current snapshot, as Spark read them."""
        head = self.table.head
        return [] if head is None else self.note("snapshots")[str(head)]

    @property
    def batches(self) -> list[int]:
        return list(History(self.files).logs.commits.ids)

    def rewind(self, to: int | None) -> None:
        """Rewind checkpoint and table. The archives do not have the files that the query has read."""
        plan_query_rewind(self.files, to=to, sink=self.uri).apply(allow_missing_input=True)

    def codes(self) -> list[str]:
        return [one.code for one in fsck(self.files, self.uri) if one.path.startswith("iceberg:")]


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unpack:
    monkeypatch.chdir(tmp_path)
    return Home


def test_the_archives_are_those_that_the_maker_writes() -> None:
    """Every story has an archive, and no archive is left over."""
    assert sorted(name_of(story) for story in STORIES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_snapshot_has_the_rows_that_spark_counts(unpacked: Unpack, name: str) -> None:
    """The files of each snapshot have as many rows as Spark reads, and exist; PyIceberg lists the same files."""
    home = unpacked(name)
    for number, rows in home.note("snapshots").items():
        manifests = manifests_of(home.table.snapshots[int(number)])
        files = list(live_files(manifests))
        deleted = sum(file.rows for file in files if not file.is_data)
        assert sum(file.rows for file in files if file.is_data) - deleted == len(rows), number
        assert missing_of(files) == []
    if home.table.head is not None and name != "version-3":
        scan = StaticTable.from_metadata(str(_newest(home))).scan()
        listed = {file.path for file in live_files(manifests_of(home.table.snapshots[home.table.head])) if file.is_data}
        assert {task.file.file_path for task in scan.plan_files()} == listed


def _newest(home: Home) -> Path:
    return max(
        home.folder.glob("warehouse/shop/sales/metadata/v*.json"), key=lambda file: int(file.name[1:].split(".")[0])
    )


@pytest.mark.parametrize("name", ["append", "complete", "empty-batches", "compacted", "version-1", "version-3"])
def test_every_batch_can_be_rewound_to(unpacked: Unpack, name: str) -> None:
    """Checkpoint and table return to each batch, and undo brings back both."""
    home = unpacked(name)
    whole, head = home.rows, home.table.head
    for to in (*home.batches[-2::-1], None):
        plan = plan_query_rewind(home.files, to=to, sink=home.uri)
        assert plan.table is not None
        expected = home.opened.version_of(checkpointed(History(home.files)), -1 if to is None else to)
        home.rewind(to)
        assert home.codes() == ["table-equal"]
        assert home.table.head == expected
        assert len(home.rows) <= len(whole) or name == "complete"
        plan_query_undo(home.files).apply()
        assert (home.rows, home.table.head) == (whole, head)
        assert home.codes() == ["table-equal"]


def test_pyiceberg_reads_what_headwater_commits(unpacked: Unpack) -> None:
    """The metadata that a rewind and an undo write is valid: PyIceberg reads the rows that Spark had at the batch."""
    home = unpacked("append")
    home.rewind(1)
    table = StaticTable.from_metadata(str(_newest(home)))
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert len(table.metadata.refs) == 2
    plan_query_undo(home.files).apply()
    home.rewind(None)
    table = StaticTable.from_metadata(str(_newest(home)))
    assert table.current_snapshot() is None


def test_a_foreign_delete_is_refused(unpacked: Unpack) -> None:
    """A DELETE of another program, which wrote a file of deletes, is not undone; later batches can be."""
    home = unpacked("foreign-delete")
    with pytest.raises(ChangeRefused, match="other programs have changed the table") as refusal:
        plan_query_rewind(home.files, to=1, sink=home.uri)
    assert "--redo 3" in str(refusal.value.remedy)
    home.rewind(2)
    assert len(home.rows) == 8


def test_expired_snapshots(unpacked: Unpack) -> None:
    """Only the batches whose snapshots are left can be rewound to."""
    home = unpacked("expired")
    with pytest.raises(ChangeRefused) as refusal:
        plan_query_rewind(home.files, to=1, sink=home.uri)
    assert refusal.value.code == "snapshot-expired"
    home.rewind(2)
    assert len(home.rows) == 9


def test_a_table_that_was_rolled_back(unpacked: Unpack) -> None:
    """fsck reports the batches that are missing, and the command that it names repairs the pair."""
    home = unpacked("rolled-back")
    (finding,) = [one for one in fsck(home.files, home.uri) if one.path.startswith("iceberg:")]
    assert finding.code == "table-behind"
    assert "--redo 2" in finding.message
    plan = plan_query_rewind(home.files, to=1, sink=home.uri)
    assert plan.table is not None and plan.table.action is None
    home.rewind(1)
    assert home.codes() == ["table-equal"]


def _reads(home: Home) -> list[SourceRange]:
    history = History(LocalTree(home.folder / "checkpoint-reader"))
    return [history.batch(BatchId(number)).sources[0] for number in history.batch_ids]


def test_what_each_batch_read(unpacked: Unpack) -> None:
    """The files between the offsets of each batch are all files of the table, each exactly once."""
    home = unpacked("source")
    table, found = home.table, []
    initial = initial_position(LocalTree(home.folder / "checkpoint-reader"), "0")
    for part in _reads(home):
        end = iceberg_position(part.end)
        assert end is not None
        start = start_position(table, iceberg_position(part.start) or initial, end)
        found += [file.path for read in reads_between(table, start, end) for file in read.files]
        assert unreadable_part(table, start, end) is None
    assert table.head is not None
    everything = {file.path for file in live_files(manifests_of(table.snapshots[table.head]))}
    assert sorted(found) == sorted(everything)
    assert unread_rows(table, end) == 0
    assert unread_rows(table, IcebergPosition(-1, -1)) == 12


def test_rereads_of_a_table(unpacked: Unpack) -> None:
    """A rewind of a reader names the rows and files, and notices files that are gone and a table that was rolled back."""
    home = unpacked("source")
    history = History(LocalTree(home.folder / "checkpoint-reader"))

    def reread(*, replan: bool = False) -> Any:
        return find_rereads(history, 0, None, [home.uri], replan=replan)[0]

    assert (reread().still_there, reread().rows, reread().files) == (True, 12, 12)
    home.rewind(2)
    assert reread().still_there is False
    assert reread().why == "the table was rolled back; rewind to batch 1 or an earlier one, with --replan"
    assert reread(replan=True).still_there is True
    plan_query_undo(home.files).apply()
    next(iter((home.folder / "warehouse/shop/sales/data").rglob("*.parquet"))).unlink()
    assert reread().still_there is False
    assert "1 file no longer exist" in reread().why


def test_snapshots_of_a_source_that_expired(unpacked: Unpack) -> None:
    """A snapshot that has expired cannot be read again."""
    table = unpacked("expired").table
    assert table.head is not None
    start, end = IcebergPosition(1, 0), IcebergPosition(table.head, 1)
    with pytest.raises(CheckpointUnreadable, match="snapshot 1 has expired"):
        list(reads_between(table, start, end))
    assert "has expired" in str(unreadable_part(table, start, end))
