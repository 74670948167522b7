"""``headwater rewind``, ``undo`` and ``compact``."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine import executor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint whose input files exist."""
    held = load("aggregation-changelog", tmp_path)
    for log in (held.path / "sources/0").glob("[0-9]*"):
        log.write_text(log.read_text().replace(held.location.rpartition("/")[0], str(held.path.parent)))
        log.with_name(f".{log.name}.crc").unlink()
    return held.path


def last_batch(path: Path) -> tuple[int, int | None]:
    history = History(LocalTree(path))
    return history.batch_ids[-1], history.last_committed


def test_dry_run_as_json(command: Command, path: Path) -> None:
    """The plan is one JSON object on one line, and no file is moved."""
    before = sorted(path.rglob("*"))
    ran = command("rewind", path, "--to", 4, "--dry-run", "--json")
    assert ran.status == 0, ran.err
    (line,) = ran.out.splitlines()
    plan = json.loads(line)
    assert {"to", "next_batch", "set_aside", "rewritten", "rereads", "warnings"} <= plan.keys()
    assert (plan["to"], plan["next_batch"], plan["rereads"][0]["still_there"]) == (4, 5, True)
    assert sorted(path.rglob("*")) == before


def test_rewind_and_undo(command: Command, path: Path) -> None:
    """The plan is printed, then how to undo it; undo restores the checkpoint."""
    ran = command("rewind", path, "--redo", 5, "--yes")
    assert ran.status == 0, ran.err
    assert f"Rewind {path} to batch 4\n" in ran.out
    assert "next batch  5, with its recorded offsets" in ran.out
    assert "undone      batches 5 to 9 (5 batches)" in ran.out
    assert "read again  source 0 (files), 2 files: available" in ran.out
    assert f"To undo: headwater undo {path}" in ran.err
    assert last_batch(path) == (5, 4)
    ran = command("undo", path, "--yes")
    assert ran.status == 0, ran.err
    assert ran.err == "done: the rewind was undone\n"
    assert last_batch(path) == (9, 9)


def test_without_a_terminal_yes_is_needed(command: Command, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is moved without confirmation."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ran = command("rewind", path, "--to", 4)
    assert ran.status == 2
    assert "error[not-confirmed]" in ran.err
    assert last_batch(path) == (9, 9)


def test_restart_from_scratch(command: Command, path: Path) -> None:
    """With `--redo 0`, no batch is kept and batch 0 runs next."""
    plan = json.loads(command("rewind", path, "--redo", 0, "--dry-run", "--json").out)
    assert (plan["to"], plan["next_batch"]) == (None, 0)
    assert command("rewind", path, "--redo", 0, "--yes").status == 0
    assert last_batch(path) == (0, None)


def test_to_time(command: Command, path: Path) -> None:
    """A time keeps the batches that were committed by then."""
    for batch in range(10):
        os.utime(path / f"commits/{batch}", (1_700_000_000 + 60 * batch,) * 2)
    plan = json.loads(command("rewind", path, "--to-time", "2023-11-14T22:17:30Z", "--dry-run", "--json").out)
    assert plan["to"] == 4


def test_exactly_one_target_is_required(command: Command, path: Path) -> None:
    """A rewind without a target, or with two, is refused."""
    assert command("rewind", path).status == 2
    assert command("rewind", path, "--to", 4, "--redo", 5).status == 2


def test_missing_input_is_refused(command: Command, path: Path) -> None:
    """A rewind whose input is missing needs --allow-missing-input."""
    newest = max((path.parent / "input").rglob("*.json"))
    newest.unlink()
    ran = command("rewind", path, "--to", 4, "--yes")
    assert ran.status == 15
    assert "error[source-gone]" in ran.err
    assert newest.name in ran.err
    assert last_batch(path) == (9, 9)
    assert command("rewind", path, "--to", 4, "--yes", "--allow-missing-input").status == 0


def test_interrupted_rewind(command: Command, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb that changes a checkpoint reports an interrupted rewind; --abort rolls it back, --resume finishes it."""
    for how, end in (("--abort", (9, 9)), ("--resume", (5, 4))):
        with monkeypatch.context() as held:
            move, moves = executor._move, iter(range(20))
            held.setattr(executor, "_move", lambda *a, move=move, moves=moves: (next(moves), move(*a)))
            with pytest.raises(StopIteration):
                command("rewind", path, "--to", 4, "--yes", "--debug")
        for verb in (["rewind", path, "--to", 3], ["undo", path], ["compact", path]):
            ran = command(*verb, "--yes")
            assert (ran.status, "error[interrupted-operation]" in ran.err) == (15, True), verb
            assert "--resume" in ran.err
        assert "was interrupted" in command("log", path).err
        assert command("fsck", path).status == 1
        for option in (["--dry-run"], ["--to", 3], ["--redo", 0], ["--replan"], ["--cascade", "--allow-duplicates"]):
            refused = command("rewind", path, how, *option)
            assert (refused.status, f"{option[0]} cannot be combined with {how}" in refused.err) == (2, True), option
            assert command("fsck", path).status == 1
        ran = command("rewind", path, how)
        assert ran.status == 0, ran.err
        assert last_batch(path) == end
        assert command("fsck", path).status == 0


def test_compact(command: Command, path: Path) -> None:
    """Compact reports how much it deletes, and undo is refused afterwards."""
    assert command("rewind", path, "--to", 4, "--yes").status == 0
    ran = command("compact", path, "--yes")
    assert ran.status == 0, ran.err
    assert "MB) set aside in" in ran.out
    ran = command("undo", path, "--yes")
    assert ran.status == 15
    assert "error[quarantine-emptied]" in ran.err
    assert command("compact", path, "--yes").out.startswith("0 files")
