"""From what a user calls a checkpoint to its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.checkpoint.locate import open_checkpoint
from headwater.core.errors import CheckpointUnreadable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("visits", "totals"):
        (tmp_path / ".headwater" / "checkpoints" / name / "offsets").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "commits").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("called", ["visits", ".headwater/checkpoints/visits", "data/inner", "file:data/inner"])
def test_found(called: str, home: Path) -> None:
    """A job's name, a path and a file URI lead to a checkpoint."""
    assert open_checkpoint(called).entries("")


def test_full_path(home: Path) -> None:
    """An absolute path leads to it, too."""
    assert open_checkpoint(str(home / "data" / "inner")).location == str(home / "data" / "inner")


def test_unknown_name_lists_the_known_ones(home: Path) -> None:
    """A name that is nearly right gets the right one to paste."""
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint("vists")
    assert refused.value.code == "no-checkpoint"
    assert refused.value.evidence["known names"] == "totals, visits"
    assert refused.value.remedy == "headwater log visits"


def test_folder_above_a_checkpoint(home: Path) -> None:
    """A folder that holds checkpoints and is none says which are inside."""
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint("data")
    assert refused.value.code == "not-a-checkpoint"
    assert refused.value.remedy == "headwater log data/inner"


@pytest.mark.parametrize("called", ["nowhere", "/nowhere/at/all", "nosuch://bucket/x"])
def test_nothing_there(called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is not there, or that cannot be reached, is refused with a remedy."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointUnreadable) as refused:
        open_checkpoint(called)
    assert refused.value.remedy


def test_new_checkpoint_counts(tmp_path: Path) -> None:
    """A query that has only just started has left its id and nothing else."""
    (tmp_path / "metadata").write_text('{"id":"x"}')
    assert open_checkpoint(str(tmp_path))
