"""``log`` and ``fsck`` on every checkpoint below a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Command
from fleet.streams import T0, record, write_stream


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three streams: one feeds another, the third one has a gap in its log."""
    clean = {"job": "clean", "source": "kafka://b:9092/visits", "sink": "kafka://b:9092/clean"}
    records = [record(number, lag_rows=3, state_rows=10, state_bytes=1000) for number in range(8)]
    write_stream(tmp_path / "streams" / "clean", job=clean, records=records)
    write_stream(tmp_path / "streams" / "totals", source="clean", committed=7)
    write_stream(tmp_path / "streams" / "more" / "gap")
    (tmp_path / "streams" / "more" / "gap" / "offsets" / "4").write_bytes(b"v1\n{")
    return tmp_path / "streams"


def test_log_of_a_root(command: Command, root: Path) -> None:
    """`log ROOT` prints one line for each checkpoint, and which ones feed each other."""
    ran = command("log", root)
    assert ran.status == 0
    lines = ran.out.splitlines()
    columns = "NAME STATUS BATCH AGE IN/S CAPACITY/S LAG WATERMARK STATE DROPPED KEPT ROWS TROUBLE"
    assert " ".join(lines[0].split()) == columns
    assert {line.split()[0] for line in lines[1:4]} == {"clean", "totals", "more/gap"}
    assert lines[-1] == "clean → totals (kafka clean, by the name of the topic only)"
    assert next(line for line in lines if line.startswith("totals")).split()[2] == "7*"
    assert ran.err == "3 checkpoints\n"


def test_log_of_a_root_as_json(command: Command, root: Path) -> None:
    """`log ROOT --json` prints one object for each checkpoint."""
    ran = command("log", root, "--json")
    found = {one["name"]: one for one in map(json.loads, ran.out.splitlines())}
    clean = found["clean"]
    assert clean["checkpoint"] == str(root / "clean")
    assert (clean["job"], clean["last_batch"], clean["last_batch_status"]) == ("clean", 7, "committed")
    assert (clean["lag"], clean["state_rows"], clean["state_growth"]) == (3, 10, 0)
    assert clean["feeds"] == [{"name": "totals", "by": "kafka clean", "certain": False}]
    assert clean["watermark"] == "2023-11-14T22:12:20.000Z" and T0 == 1_700_000_000_000
    assert found["totals"]["last_batch_status"] == "planned"
    assert ran.err == ""


def test_log_of_several_checkpoints(command: Command, root: Path) -> None:
    """Several checkpoints are shown as those of a root are."""
    ran = command("log", root / "clean", root / "totals")
    assert sorted(line.split()[0] for line in ran.out.splitlines()[1:3]) == ["clean", "totals"]


def test_options_of_one_checkpoint(command: Command, root: Path) -> None:
    """Options that select batches or repair are refused for a root."""
    for arguments in (("log", root, "-n", "3"), ("log", root, "--follow"), ("fsck", root, "--repair")):
        ran = command(*arguments)
        assert ran.status == 2
        assert "error[one-checkpoint-only]" in ran.err


def test_fsck_of_a_root(command: Command, root: Path) -> None:
    """`fsck ROOT` checks each checkpoint, and exits with status 1 if any of them has an error."""
    ran = command("fsck", root)
    assert ran.status == 1
    lines = ran.out.splitlines()
    assert "clean: no findings" in lines
    assert lines[lines.index(next(line for line in lines if line.startswith("more/gap: "))) + 1].startswith("  error ")
    assert ran.err == "3 checkpoints, 1 with errors\n"
    found = [json.loads(line) for line in command("fsck", root, "--json").out.splitlines()]
    assert {one["checkpoint"] for one in found} >= {str(root / "more" / "gap")}
    assert all(one.keys() == {"checkpoint", "severity", "code", "path", "message", "repairable"} for one in found)


def test_fsck_of_an_intact_root(command: Command, tmp_path: Path) -> None:
    """Without errors the exit status is 0."""
    write_stream(tmp_path / "a")
    assert command("fsck", tmp_path).status == 0


def test_folder_without_checkpoints(command: Command, tmp_path: Path) -> None:
    """A folder with files and no checkpoint at any depth is refused as before."""
    (tmp_path / "x").mkdir()
    ran = command("log", tmp_path)
    assert ran.status == 13
    assert "is not a checkpoint" in ran.err
