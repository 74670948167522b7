"""The Python API of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from corpus_support import load
from headwater import Checkpoint
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem


def test_exported() -> None:
    """`Checkpoint` is part of the public names."""
    assert "Checkpoint" in headwater.__all__
    assert headwater.Checkpoint is Checkpoint


def test_batches(corpus) -> None:
    """Batches are listed oldest first; a single batch is selected by number or by revision."""
    checkpoint = Checkpoint(corpus("aggregation-hdfs").path)
    assert [batch.batch_id for batch in checkpoint.batches] == list(range(10))
    assert checkpoint.batch(3) == checkpoint.batches[3]
    assert checkpoint.batch("HEAD~1").batch_id == 8
    with pytest.raises(UsageProblem):
        checkpoint.batch(99)


def test_sees_new_batches(tmp_path: Path) -> None:
    """A checkpoint object sees batches that were added later."""
    path = load("aggregation-hdfs", tmp_path).path
    checkpoint = Checkpoint(path)
    assert len(checkpoint.batches) == 10
    (path / "offsets/10").write_bytes((path / "offsets/9").read_bytes())
    assert [batch.status for batch in checkpoint.batches[-2:]] == ["committed", "planned"]


def test_nothing_there(tmp_path: Path) -> None:
    """A folder that is not a checkpoint is refused immediately."""
    with pytest.raises(CheckpointUnreadable):
        Checkpoint(tmp_path)


def test_rewind_refuses_missing_input(tmp_path: Path) -> None:
    """Applying a plan is refused if the input of undone batches is gone, and changes nothing, unless that is allowed."""
    checkpoint = Checkpoint(load("aggregation-hdfs", tmp_path).path)
    plan = checkpoint.plan_rewind(to=4)
    assert [reread.still_there for reread in plan.rereads] == [False]
    with pytest.raises(ChangeRefused) as refused:
        plan.apply()
    assert refused.value.code == "source-gone"
    assert [batch.batch_id for batch in checkpoint.batches] == list(range(10))
    plan.apply(allow_missing_input=True)
    assert [batch.batch_id for batch in checkpoint.batches if batch.status == "committed"] == list(range(5))


def test_rewind_takes_what_the_command_line_takes(tmp_path: Path) -> None:
    """A number, a revision and None name the last batch to keep; a batch that is not in the logs is refused."""
    checkpoint = Checkpoint(load("aggregation-hdfs", tmp_path).path)
    assert [checkpoint.plan_rewind(to=to).to for to in (4, "4", "HEAD~5", None)] == [4, 4, 4, None]
    with pytest.raises(ChangeRefused) as refused:
        checkpoint.plan_rewind(to=99)
    assert refused.value.code == "no-batch"
