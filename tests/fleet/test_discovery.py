"""Finding checkpoints by their shape."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint
from fleet.streams import write_stream
from headwater.checkpoint.filetree import FolderNames
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.fleet import discovery
from headwater.fleet.discovery import Discovery

Corpus = Callable[[str], CorpusCheckpoint]


def found(root: Path) -> list[str]:
    return Discovery(LocalTree(root)).search()


def test_checkpoints_at_any_depth(tmp_path: Path) -> None:
    """Checkpoints are found at any depth, also the default ones of Headwater, and none inside another one."""
    for name in ("a", "teams/b/c", ".headwater/checkpoints/d"):
        write_stream(tmp_path / name)
    write_stream(tmp_path / "a" / "_headwater" / "kept" / "before" / "files")
    assert found(tmp_path) == [".headwater/checkpoints/d", "a", "teams/b/c"]


def test_root_may_be_a_checkpoint(tmp_path: Path) -> None:
    """A root that is a checkpoint has an empty path."""
    assert found(write_stream(tmp_path)) == [""]


@pytest.mark.parametrize("name", ["aggregation-changelog", "stateless", "spark3.4-join-hdfs", "aggregation-format2"])
def test_checkpoints_of_spark(corpus: Corpus, name: str) -> None:
    """What Spark wrote is found, whatever version and kind of query."""
    assert Discovery(
        MemoryTree({f"x/{path}": data for path, data in corpus(name).files.contents.items()})
    ).search() == ["x"]


def test_query_before_its_first_batch(tmp_path: Path) -> None:
    """A query that has not planned a batch has only an id. Another file of that name is not a checkpoint."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metadata").write_text('{"id":"9d8e"}')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_text("title: photos")
    assert found(tmp_path) == ["new"]


def test_data_is_left_out(tmp_path: Path) -> None:
    """The data of tables is not searched, but checkpoints beside it are."""
    for name in ("table/_delta_log", "sink/_spark_metadata", "iceberg/metadata", "iceberg/data"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("table/part", "table/_checkpoints/etl", "sink/x", "sink/checkpoint", "lake/day=1/y", ".git/z"):
        write_stream(tmp_path / name)
    assert found(tmp_path) == ["sink/checkpoint", "table/_checkpoints/etl"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a folder above does not make the search endless, and a checkpoint is found once."""
    write_stream(tmp_path / "a")
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "a")
    assert found(tmp_path) == ["a"]


def test_repeated_search_lists_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second search lists no folder that has not changed, and sees a checkpoint that was added or removed."""
    monkeypatch.setattr(discovery, "_RECENT_SECONDS", -1)
    for number in range(5):
        write_stream(tmp_path / "old" / str(number))
    search = Discovery(LocalTree(tmp_path))
    assert len(search.search()) == 5
    listed = search.folders_listed
    assert len(search.search()) == 5
    assert search.folders_listed == listed
    write_stream(tmp_path / "old" / "new")
    shutil.rmtree(tmp_path / "old" / "0")
    assert search.search() == ["old/1", "old/2", "old/3", "old/4", "old/new"]
    assert search.folders_listed == listed + 2


def test_listing_that_may_be_out_of_date(tmp_path: Path) -> None:
    """A folder that was changed just before it was listed is listed again: its time may not show the next change."""
    search = Discovery(LocalTree(tmp_path))
    assert search.search() == []
    before = tmp_path.stat()
    write_stream(tmp_path / "a")
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert search.search() == ["a"]


def test_too_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root with too many folders is searched in part, and the search says so."""
    monkeypatch.setattr(discovery, "MOST_FOLDERS", 4)
    for number in range(9):
        write_stream(tmp_path / str(number))
    search = Discovery(LocalTree(tmp_path))
    assert search.search() == ["0", "1", "2"]
    assert not search.is_complete


class PartlyClosed(LocalTree):
    """A tree with a folder that may not be listed, also for root."""

    def names(self, folder: str) -> FolderNames:
        if folder == "closed":
            raise PermissionError(folder)
        return super().names(folder)


def test_folder_without_permission(tmp_path: Path) -> None:
    """A folder that cannot be listed hides only what is below it."""
    for name in ("a", "closed/b"):
        write_stream(tmp_path / name)
    assert Discovery(PartlyClosed(tmp_path)).search() == ["a"]
