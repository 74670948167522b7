"""``headwater fsck``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load
from headwater.timemachine.executor import Executor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    return load("aggregation-hdfs", tmp_path).path


def test_intact_checkpoint(command: Command, path: Path) -> None:
    """For a checkpoint as Spark left it, the exit status is 0."""
    ran = command("fsck", path, "--strict")
    assert ran.status == 0
    assert ran.err == "1 note\n"
    assert ran.out.startswith("info     format-1  state: ")


def test_error_exits_with_1(command: Command, path: Path) -> None:
    """An error is printed on a line of its own, with a summary, and the exit status is 1."""
    (path / "offsets/4").write_bytes(b"v1\n{")
    (path / "offsets/.4.crc").unlink()
    ran = command("fsck", path)
    assert ran.status == 1
    assert "error    torn-file  offsets/4: ends in the middle of its JSON" in ran.out.splitlines()
    assert ran.err == "1 error, 1 note\n"


def test_json_lines(command: Command, path: Path) -> None:
    """Each finding is printed as one JSON object, and nothing else is printed."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    ran = command("fsck", path, "--json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.err == ""
    assert all(one.keys() == {"severity", "code", "path", "message", "repairable"} for one in found)
    assert ("error", "stale-crc", "commits/.44.crc", True) in {
        (one["severity"], one["code"], one["path"], one["repairable"]) for one in found
    }


def test_strict(command: Command, path: Path) -> None:
    """With warnings only, the exit status is 0, and 1 with --strict."""
    (path / "commits/3").unlink()
    (path / "commits/.3.crc").unlink()
    assert command("fsck", path).status == 0
    assert command("fsck", path, "--strict").status == 1


def test_sink_given(command: Command, path: Path, tmp_path: Path) -> None:
    """--sink names a file sink to be checked; another kind of sink is refused."""
    (tmp_path / "out").mkdir()
    ran = command("fsck", path, "--sink", f"files:{tmp_path / 'out'}?format=parquet", "--json")
    assert "sink-log-missing" in {json.loads(line)["code"] for line in ran.out.splitlines()}
    assert command("fsck", path, "--sink", "console:").status == 2


def test_sink_recorded(command: Command, path: Path, tmp_path: Path) -> None:
    """The recorded sink of the job is checked without --sink."""
    record = {"job": "x", "source": "rate:", "sink": f"files:{tmp_path / 'out'}", "mode": "append"}
    (path / "_headwater").mkdir()
    (path / "_headwater/job.json").write_text(json.dumps(record))
    assert "sink-log-missing" in command("fsck", path).out


def test_changes_nothing(command: Command, path: Path) -> None:
    """Without --repair, no file is changed."""
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}
    command("fsck", path)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()} == before


def contents(path: Path) -> dict[str, bytes]:
    """Return the content of all files that Spark wrote."""
    every = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {name: data for name, data in every.items() if not name.startswith("_headwater/")}


def test_repair_sets_leftovers_aside_and_undo_puts_them_back(command: Command, path: Path) -> None:
    """Leftover checksums and old temporary files are set aside; undo restores every byte."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    (path / "offsets/.10.0a1b.tmp").write_bytes(b"v1")
    os.utime(path / "offsets/.10.0a1b.tmp", (1, 1))
    before = contents(path)
    ran = command("fsck", path, "--repair", "--yes")
    assert ran.status == 0
    assert ran.err.splitlines()[-1] == "repaired; remaining: 1 note"
    assert before.keys() - contents(path).keys() == {"commits/.44.crc", "offsets/.10.0a1b.tmp"}
    assert command("undo", path, "--yes").status == 0
    assert contents(path) == before


def test_repair_asks_first(command: Command, path: Path) -> None:
    """Without a terminal and without --yes, the plan is printed and nothing is changed."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    before = contents(path)
    ran = command("fsck", path, "--repair")
    assert ran.status == 2
    assert "repair: set aside commits/.44.crc" in ran.err
    assert contents(path) == before


def test_repair_of_a_truncated_file(command: Command, path: Path) -> None:
    """A truncated file is reported and not changed."""
    (path / "offsets/4").write_bytes(b"v1\n{")
    before = contents(path)
    ran = command("fsck", path, "--repair", "--yes")
    assert ran.status == 1
    assert "nothing can be repaired safely" in ran.err
    assert contents(path) == before


def test_repair_finishes_an_interrupted_change(command: Command, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted rewind is finished, and the checkpoint is consistent again."""

    def interrupt(self: Executor, step: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Executor, "_sync", interrupt)
        assert command("rewind", path, "--to", "6", "--allow-missing-input", "--yes").status == 130
    assert "interrupted-operation" in command("fsck", path).out
    ran = command("fsck", path, "--repair", "--yes")
    assert ran.status == 0
    assert json.loads(command("log", path, "-n", "1", "--json").out)["status"] == "planned"
    assert command("fsck", path).status == 0
