"""``headwater fsck``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    return load("aggregation-hdfs", tmp_path).path


def test_sound_checkpoint(command: Command, path: Path) -> None:
    """A checkpoint as Spark left it exits with 0 and says so."""
    ran = command("fsck", path, "--strict")
    assert ran.status == 0
    assert ran.err == "1 note\n"
    assert ran.out.startswith("info     format-1  state: ")


def test_error_exits_with_1(command: Command, path: Path) -> None:
    """An error gives status 1, its finding on a line of its own, and a sum."""
    (path / "offsets/4").write_bytes(b"v1\n{")
    (path / "offsets/.4.crc").unlink()
    ran = command("fsck", path)
    assert ran.status == 1
    assert "error    torn-file  offsets/4: ends in the middle of its JSON" in ran.out.splitlines()
    assert ran.err == "1 error, 1 note\n"


def test_json_lines(command: Command, path: Path) -> None:
    """Each finding is one JSON object, and nothing else is printed."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    ran = command("fsck", path, "--json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.err == ""
    assert all(one.keys() == {"severity", "code", "path", "message", "repairable"} for one in found)
    assert ("error", "stale-crc", "commits/.44.crc", True) in {
        (one["severity"], one["code"], one["path"], one["repairable"]) for one in found
    }


def test_strict_minds_warnings(command: Command, path: Path) -> None:
    """A warning alone exits with 0, and with 1 under --strict."""
    (path / "commits/3").unlink()
    (path / "commits/.3.crc").unlink()
    assert command("fsck", path).status == 0
    assert command("fsck", path, "--strict").status == 1


def test_sink_given(command: Command, path: Path, tmp_path: Path) -> None:
    """--sink names a file sink, which is then checked; anything else is no file sink."""
    (tmp_path / "out").mkdir()
    ran = command("fsck", path, "--sink", f"files:{tmp_path / 'out'}?format=parquet", "--json")
    assert "sink-log-missing" in {json.loads(line)["code"] for line in ran.out.splitlines()}
    assert command("fsck", path, "--sink", "console:").status == 2


def test_sink_recorded(command: Command, path: Path, tmp_path: Path) -> None:
    """The sink that the job's record names is checked without being asked for."""
    record = {"job": "x", "source": "rate:", "sink": f"files:{tmp_path / 'out'}", "mode": "append"}
    (path / "_headwater").mkdir()
    (path / "_headwater/job.json").write_text(json.dumps(record))
    assert "sink-log-missing" in command("fsck", path).out


def test_changes_nothing(command: Command, path: Path) -> None:
    """Looking leaves every file as it was."""
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}
    command("fsck", path)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()} == before
