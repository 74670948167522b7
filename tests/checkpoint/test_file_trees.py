"""Local folders and trees in memory behave alike."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.local_tree import BLOCK_BYTES, LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.core.errors import CheckpointUnreadable

CONTENT = {"offsets/0": b"v1", "offsets/1": b"v1\n", "state/0/0/1.delta": b"x" * 7, "metadata": b"{}"}


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileTree:
    made: FileTree = LocalTree(tmp_path) if request.param == "local" else MemoryTree()
    for path, data in CONTENT.items():
        made.write(path, data)
    return made


def names(files: FileTree, folder: str) -> list[str]:
    return [entry.name for entry in files.entries(folder)]


def test_files_read_back_as_written(files: FileTree) -> None:
    """Every file reads back as written, in one piece or in blocks, and the walk finds each once."""
    assert {path: files.read(path) for path, _ in walk(files)} == CONTENT
    assert {path: b"".join(files.read_blocks(path)) for path, _ in walk(files)} == CONTENT


def test_large_file_is_read_in_blocks(tmp_path: Path) -> None:
    """A file on disk that is larger than a block comes in several."""
    data = bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    files = LocalTree(tmp_path)
    files.write("large", data)
    blocks = list(files.read_blocks("large"))
    assert [len(block) for block in blocks] == [BLOCK_BYTES, 3]
    assert b"".join(blocks) == data


def test_listing_has_files_folders_and_sizes(files: FileTree) -> None:
    """A listing is sorted and distinguishes folders from files."""
    assert names(files, "") == ["metadata", "offsets", "state"]
    assert [entry.is_folder for entry in files.entries("")] == [False, True, True]
    assert [entry.size for entry in files.entries("offsets")] == [2, 3]


def test_tree_has_the_file_names_of_each_folder(files: FileTree) -> None:
    """A tree is the file names in every folder that contains files."""
    found = {folder: sorted(held) for folder, held in files.tree("").items() if held}
    assert found == {"": ["metadata"], "offsets": ["0", "1"], "state/0/0": ["1.delta"]}
    assert {folder: held for folder, held in files.tree("state").items() if held} == {"state/0/0": ["1.delta"]}


def test_missing_files_and_folders(files: FileTree) -> None:
    """Reading a missing file raises FileNotFoundError; a missing folder is empty."""
    with pytest.raises(FileNotFoundError):
        files.read("offsets/9")
    with pytest.raises(FileNotFoundError):
        list(files.read_blocks("offsets/9"))
    assert files.entries("nowhere") == []
    assert files.tree("nowhere") == {}
    assert not files.exists("nowhere")
    files.remove_folder("nowhere")


def test_a_draft_of_a_killed_process_is_not_written_through(tmp_path: Path) -> None:
    """Such a draft can be a hard link to a file of a restore point, which stays as it is."""
    files = LocalTree(tmp_path)
    files.write("kept", b"kept")
    (tmp_path / ".metadata.headwater.tmp").hardlink_to(tmp_path / "kept")
    files.write("metadata", b"new")
    assert (files.read("kept"), files.read("metadata")) == (b"kept", b"new")


def test_a_shared_file_is_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between file systems, sharing copies. If that is killed half way, nothing is at the target."""
    origin, into = LocalTree(tmp_path / "origin"), LocalTree(tmp_path / "into")
    origin.write("part-0", b"0123456789")

    class Killed(BaseException):
        pass

    def copy_half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:5])
        raise Killed

    def refuse_link(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "hardlink_to", refuse_link)
        with monkeypatch.context() as killed:
            killed.setattr("headwater.checkpoint.local_tree.shutil.copy2", copy_half)
            with pytest.raises(Killed):
                origin.share("part-0", into)
        assert not into.exists("part-0")
        origin.share("part-0", into)
    assert into.read("part-0") == b"0123456789"
    origin.share("part-0", into)  # over a file that is there
    assert names(into, "") == ["part-0"]


def test_move_copy_and_remove(files: FileTree) -> None:
    """Moving removes the source, copying keeps it, and removing a folder removes everything below it."""
    files.move("offsets/1", "kept/1")
    files.copy("metadata", "kept/metadata")
    files.remove("offsets/0")
    files.remove_folder("state")
    assert sorted(path for path, _ in walk(files)) == ["kept/1", "kept/metadata", "metadata"]


def test_append(files: FileTree) -> None:
    """Appending adds to the end of a file and creates a missing one."""
    files.append("metadata", b"\n")
    files.append("new/log", b"1")
    files.append("new/log", b"2")
    assert (files.read("metadata"), files.read("new/log")) == (b"{}\n", b"12")


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_shared_file_has_the_same_contents(files: FileTree, kind: str, tmp_path: Path) -> None:
    """A shared file is in both trees, whatever their kinds, and replacing it in one leaves the other as it was."""
    other: FileTree = LocalTree(tmp_path / "other") if kind == "local" else MemoryTree()
    files.share("state/0/0/1.delta", other)
    other.write("state/0/0/1.delta", other.read("state/0/0/1.delta") + b"y")
    assert files.read("state/0/0/1.delta") == b"x" * 7
    assert other.read("state/0/0/1.delta") == b"x" * 7 + b"y"


def test_local_trees_share_by_hard_links(tmp_path: Path) -> None:
    """Two folders on one file system share a file without a copy."""
    files, other = LocalTree(tmp_path / "a"), LocalTree(tmp_path / "b")
    files.write("state/1.delta", b"x")
    files.share("state/1.delta", other)
    assert other.local_path("state/1.delta").samefile(files.local_path("state/1.delta"))


def test_local_trees_share_by_copies_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file system cannot link, the file is copied."""

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    files, other = LocalTree(tmp_path / "a"), LocalTree(tmp_path / "b")
    files.write("state/1.delta", b"x")
    files.share("state/1.delta", other)
    assert other.read("state/1.delta") == b"x"
    assert not other.local_path("state/1.delta").samefile(files.local_path("state/1.delta"))


def test_only_local_trees_have_paths(tmp_path: Path) -> None:
    """Other programs can open the files of a local tree only."""
    assert LocalTree(tmp_path).local_path("offsets/0") == tmp_path / "offsets" / "0"
    assert MemoryTree().local_path("offsets/0") is None


def test_local_files_are_file_uris_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is known to Spark by its absolute path."""
    monkeypatch.chdir(tmp_path)
    assert LocalTree(Path("ck")).spark_uri("state/0") == f"file:{tmp_path}/ck/state/0"
    assert LocalTree(Path("ck")).spark_uri() == f"file:{tmp_path}/ck"


@pytest.mark.parametrize(
    ("location", "like", "uri"),
    [
        ("s3://bucket/ck/", None, "s3a://bucket/ck/state"),
        ("s3a://bucket/ck", None, "s3a://bucket/ck/state"),
        ("s3n://bucket/ck", None, "s3a://bucket/ck/state"),
        ("s3://bucket/ck", "s3a://bucket/old/state", "s3a://bucket/ck/state"),
        ("s3a://bucket/ck", "s3://bucket/old/state", "s3://bucket/ck/state"),
        ("s3://bucket/ck", "file:/old/state", "s3a://bucket/ck/state"),
        ("memory://bucket/ck", None, "memory://bucket/ck/state"),
    ],
)
def test_s3_is_s3a_to_spark(location: str, like: str | None, uri: str) -> None:
    """Spark knows S3 as s3a, unless it has recorded another scheme for the same store."""
    assert ObjectTree(location).spark_uri("state", like=like) == uri


def test_local_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    """Replacing a file leaves only that file behind."""
    files = LocalTree(tmp_path)
    files.write("a", b"1")
    files.write("a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_empty_folders_are_dropped_except_top_level_ones(tmp_path: Path) -> None:
    """Emptied folders are dropped with the empty folders in them; other empty folders only if no file is left at all."""
    files = LocalTree(tmp_path)
    files.write("state/1/0/1.delta", b"")
    (tmp_path / "state/1/0/_metadata").mkdir()
    for path in ("state/0/0/1.delta", "state/0/1/1.delta"):
        files.write(path, b"")
    (tmp_path / "state/0/2/_metadata").mkdir(parents=True)
    for path in ("state/1/0/1.delta", "state/0/0/1.delta"):
        files.remove(path)
    files.drop_empty_folders(["state/1/0", "state/0/0"])
    assert sorted(files.tree("state")) == ["state", "state/0", "state/0/1", "state/0/2", "state/0/2/_metadata"]
    files.remove("state/0/1/1.delta")
    files.drop_empty_folders(["state/0/1"])
    assert sorted(files.tree("state")) == ["state"]


@pytest.mark.parametrize("written", ["{}", "file:{}", "file://{}"])
def test_local_paths_in_all_their_forms(written: str, tmp_path: Path) -> None:
    """A plain path and both forms of file URI that Spark uses name the same folder."""
    (tmp_path / "metadata").write_bytes(b"{}")
    assert open_files(written.format(tmp_path)).read("metadata") == b"{}"


def test_subtree(files: FileTree) -> None:
    """A folder of any tree is a tree of its own: its listing and its files are those below the folder."""
    state = files.subtree("state/0")
    assert {path: state.read(path) for path, _ in walk(state)} == {"0/1.delta": b"x" * 7}
    assert state.exists("0/1.delta")
    assert state.location == f"{files.location.rstrip('/')}/state/0"


def test_subtree_of_a_local_folder(tmp_path: Path) -> None:
    """A folder of a tree is a tree of its own, and cannot lie outside."""
    files = LocalTree(tmp_path)
    files.write("_headwater/scratch/metadata", b"{}")
    assert files.subtree("_headwater/scratch").read("metadata") == b"{}"
    with pytest.raises(CheckpointUnreadable):
        files.subtree("../elsewhere")


def test_link(files: FileTree) -> None:
    """A linked file has the same contents, replaces another one, and keeps them when the first one is replaced."""
    files.link("state/0/0/1.delta", "kept/deep/1.delta")
    files.link("offsets/0", "offsets/1")
    files.write("state/0/0/1.delta", b"new")
    assert files.read("kept/deep/1.delta") == b"x" * 7
    assert files.read("offsets/1") == files.read("offsets/0")
    with pytest.raises(FileNotFoundError):
        files.link("nowhere/1", "kept/2")


def test_a_link_without_hard_links_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file system cannot link, the file is copied through a temporary file, and takes space of its own."""

    def refuse(*_: object) -> None:
        raise PermissionError

    files = LocalTree(tmp_path)
    files.write("a/1", b"x" * 9)
    files.link("a/1", "linked/1")
    assert files.own_bytes("linked") == 0
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    files.link("a/1", "copied/1")
    assert files.read("copied/1") == b"x" * 9
    assert names(files, "copied") == ["1"]
    assert files.own_bytes("copied") == 9


@pytest.mark.parametrize("name", ["job[12]", "job*", "job?"])
def test_objects_below_a_name_that_looks_like_a_pattern(name: str) -> None:
    """A change reaches the objects of this tree, and not those of others that the pattern would match."""
    files, other = ObjectTree(f"memory://patterns/{name}"), ObjectTree("memory://patterns/job1")
    for tree in (files, other):
        for path in ("commits/1", "state/0/1.delta", "state/0/2.delta"):
            tree.write(path, tree.location.encode())
    untouched = other.tree("")
    files.move("commits/1", "aside/commits/1")
    files.copy("aside/commits/1", "copied")
    assert files.read("aside/commits/1") == files.read("copied") == files.location.encode()
    assert not files.exists("commits/1")
    files.remove_folder("state")
    assert files.tree("state") == {} and other.tree("") == untouched
