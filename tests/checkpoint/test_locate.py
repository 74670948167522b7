"""Opening a checkpoint by job name, path or URL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.checkpoint.filetree import Entry
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import absolute_location, new_start, open_checkpoint
from headwater.core.errors import CheckpointUnreadable, ServiceUnreachable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("visits", "totals"):
        (tmp_path / ".headwater" / "checkpoints" / name / "offsets").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "commits").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["visits", ".headwater/checkpoints/visits", "data/inner", "file:data/inner"])
def test_found(name: str, home: Path) -> None:
    """A checkpoint can be named by its job, a path or a file URI."""
    assert open_checkpoint(name).entries("")


def test_absolute_path(home: Path) -> None:
    """A checkpoint can be named by its absolute path."""
    assert open_checkpoint(str(home / "data" / "inner")).location == str(home / "data" / "inner")


def test_unknown_name_lists_the_known_ones(home: Path) -> None:
    """A misspelled name is refused with the closest known name."""
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint("vists")
    assert refused.value.code == "no-checkpoint"
    assert refused.value.evidence["known names"] == "totals, visits"
    assert refused.value.remedy == "headwater log visits"


def test_folder_above_a_checkpoint(home: Path) -> None:
    """A folder that is not a checkpoint itself is refused with the checkpoints inside it."""
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint("data")
    assert refused.value.code == "not-a-checkpoint"
    assert refused.value.remedy == "headwater log data/inner"


@pytest.mark.parametrize("name", ["nowhere", "/nowhere/at/all", "nosuch://bucket/x"])
def test_nothing_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A location that does not exist or is not supported is refused with a remedy."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint(name)
    assert refused.value.remedy


def test_new_checkpoint(tmp_path: Path) -> None:
    """The checkpoint of a query that has just started contains only the query's id."""
    (tmp_path / "metadata").write_text('{"id":"x"}')
    assert open_checkpoint(str(tmp_path))


def test_newest_start(home: Path) -> None:
    """The name of a job that gets a checkpoint at each start means the newest one; an exact name comes first."""
    at = datetime(2026, 11, 16, 10, 30, tzinfo=UTC)
    names = []
    for _ in range(11):
        path = home / new_start("words", at)
        (path / "offsets").mkdir(parents=True)
        names.append(path.name)
    assert names[:2] == ["words-20261116-103000", "words-20261116-103000-2"]
    assert open_checkpoint("words").location.endswith("/words-20261116-103000-11")
    (home / new_start("words", at + timedelta(seconds=1)) / "offsets").mkdir(parents=True)
    assert open_checkpoint("words").location.endswith("/words-20261116-103001")
    (home / ".headwater" / "checkpoints" / "words" / "offsets").mkdir(parents=True)
    assert open_checkpoint("words").location.endswith("/words")


@pytest.mark.parametrize(
    "other", ["words-2", "words-20261116", "words-count-20261116-103000", "my-words-20261116-103000"]
)
def test_similar_names_are_no_starts(other: str, home: Path) -> None:
    """A checkpoint with a similar name is not mistaken for a start of the job."""
    (home / ".headwater" / "checkpoints" / other / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointUnreadable):
        open_checkpoint("words")


@pytest.mark.usefixtures("unreachable_s3")
def test_a_store_that_does_not_answer() -> None:
    """The error has the reason that the client of the store gives."""
    with pytest.raises(ServiceUnreachable) as refused:
        open_checkpoint("s3://bucket/ckpt")
    assert "Could not connect to the endpoint URL" in str(refused.value.evidence["reason"])


def test_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder above checkpoints may have one that only the administrator can list, such as lost+found."""
    (tmp_path / "visits/offsets").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    listed = LocalTree.entries

    def entries(self: LocalTree, folder: str) -> list[Entry]:
        if folder == "lost+found":
            raise PermissionError(13, "Permission denied")
        return listed(self, folder)

    monkeypatch.setattr(LocalTree, "entries", entries)
    with pytest.raises(CheckpointUnreadable, match="is not a checkpoint") as caught:
        open_checkpoint(str(tmp_path))
    assert caught.value.evidence["checkpoints inside"] == "visits"


def test_absolute_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two spellings of a location are the same, with .. resolved as Hadoop does; a URL keeps its path."""
    monkeypatch.chdir(tmp_path)
    for spelling in ("x", "./y/../x/", f"file:{tmp_path}/y/../x", f"file://{tmp_path}/./x"):
        assert absolute_location(spelling) == str(tmp_path / "x")
    assert absolute_location("s3a://bucket/a/../b/") == "s3://bucket/a/../b"
