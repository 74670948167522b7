"""Local folders and their twin in memory behave alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.checkpoint.filetree import FileTree, names, walk
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.memory_tree import MemoryTree

CONTENT = {"offsets/0": b"v1", "offsets/1": b"v1\n", "state/0/0/1.delta": b"x" * 7, "metadata": b"{}"}


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileTree:
    made: FileTree = LocalTree(tmp_path) if request.param == "local" else MemoryTree()
    for path, data in CONTENT.items():
        made.write(path, data)
    return made


def test_reads_what_was_written(files: FileTree) -> None:
    """Every file reads back as written, and the walk finds each once."""
    assert {path: files.read(path) for path, _ in walk(files)} == CONTENT


def test_listing_tells_files_folders_and_sizes(files: FileTree) -> None:
    """A listing is sorted and knows folders from files."""
    assert names(files, "") == ["metadata", "offsets", "state"]
    assert [entry.is_folder for entry in files.entries("")] == [False, True, True]
    assert [entry.size for entry in files.entries("offsets")] == [2, 3]


def test_tree_gives_each_folder_with_its_file_names(files: FileTree) -> None:
    """One look at a tree gives the names in every folder that holds files."""
    found = {folder: sorted(held) for folder, held in files.tree("").items() if held}
    assert found == {"": ["metadata"], "offsets": ["0", "1"], "state/0/0": ["1.delta"]}
    assert {folder: held for folder, held in files.tree("state").items() if held} == {"state/0/0": ["1.delta"]}


def test_missing_places(files: FileTree) -> None:
    """A missing file raises FileNotFoundError, a missing folder is empty."""
    with pytest.raises(FileNotFoundError):
        files.read("offsets/9")
    assert files.entries("nowhere") == []
    assert files.tree("nowhere") == {}
    assert not files.exists("nowhere")
    files.remove_folder("nowhere")


def test_move_copy_and_remove(files: FileTree) -> None:
    """Moving takes a file away, copying keeps it, removing a folder takes all below it."""
    files.move("offsets/1", "kept/1")
    files.copy("metadata", "kept/metadata")
    files.remove("offsets/0")
    files.remove_folder("state")
    assert sorted(path for path, _ in walk(files)) == ["kept/1", "kept/metadata", "metadata"]


def test_local_write_leaves_no_draft(tmp_path: Path) -> None:
    """Replacing a file leaves nothing but the file."""
    files = LocalTree(tmp_path)
    files.write("a", b"1")
    files.write("a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_empty_folders_go_and_their_topmost_one_stays(tmp_path: Path) -> None:
    """Folders above files that were moved away go; others that are empty only when nothing at all is left."""
    files = LocalTree(tmp_path)
    for path in ("state/0/0/1.delta", "state/0/1/1.delta"):
        files.write(path, b"")
    (tmp_path / "state/0/2/_metadata").mkdir(parents=True)
    files.remove("state/0/0/1.delta")
    files.drop_empty_folders(["state/0/0"])
    assert sorted(files.tree("state")) == ["state", "state/0", "state/0/1", "state/0/2", "state/0/2/_metadata"]
    files.remove("state/0/1/1.delta")
    files.drop_empty_folders(["state/0/1"])
    assert sorted(files.tree("state")) == ["state"]


@pytest.mark.parametrize("written", ["{}", "file:{}", "file://{}"])
def test_local_paths_in_all_their_forms(written: str, tmp_path: Path) -> None:
    """A plain path and Spark's two forms of file URI name the same folder."""
    (tmp_path / "metadata").write_bytes(b"{}")
    assert open_files(written.format(tmp_path)).read("metadata") == b"{}"
