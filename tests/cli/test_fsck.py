"""``headwater fsck``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load
from headwater.checkpoint.filetree import Entry
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.change import Change
from headwater.timemachine.executor import Executor
from headwater.timemachine.journal import PendingCascade


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
    assert "with --repair --yes" in ran.err
    assert "--dry-run" not in ran.err
    assert contents(path) == before


def test_repair_in_json(command: Command, path: Path) -> None:
    """With --json, standard output has findings only; what was repaired is a note."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    ran = command("fsck", path, "--repair", "--yes", "--json")
    assert all(json.loads(line).keys() >= {"severity", "code"} for line in ran.out.splitlines())
    assert ran.err.splitlines() == ["repair: set aside commits/.44.crc"]


def test_repair_and_sources(command: Command, tmp_path: Path) -> None:
    """An error of a source remains after a repair, and so does its exit status."""
    path = load("stateless", tmp_path).path
    for name in ("commits/4", "commits/.4.crc"):
        (path / name).unlink()
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    ran = command("fsck", path, "--sources", "--repair", "--yes")
    assert "error    file-vanished" in ran.out
    assert ran.err.splitlines()[-1] == "repaired; remaining: 1 error, 2 notes"
    assert ran.status == 1


def test_repair_during_a_cascade(command: Command, path: Path) -> None:
    """An interrupted rewind of several streams has to be finished first, so nothing is set aside."""
    (path / "commits/.44.crc").write_bytes(b"crc\0")
    (path / "_headwater").mkdir()
    members = PendingCascade(((str(path), Change("x", "rewind", "to batch 4", (), "")),))
    (path / "_headwater/cascade.json").write_bytes(members.to_bytes())
    before = contents(path)
    ran = command("fsck", path, "--repair", "--yes")
    assert (ran.status, contents(path)) == (15, before)
    assert "error[interrupted-operation]" in ran.err
    assert f"headwater rewind {path} --resume" in ran.err


@pytest.mark.parametrize("name", ["pending", "cascade"])
@pytest.mark.parametrize("data", ["{}", "[]", '{"members": []}', '{"stage": 1, "change": 5}', '{"members": [{}]}'])
def test_damaged_record_of_an_interrupted_change(command: Command, path: Path, name: str, data: str) -> None:
    """A record that lacks its fields is corrupt, which is not an internal error."""
    (path / "_headwater").mkdir()
    (path / f"_headwater/{name}.json").write_text(data)
    ran = command("fsck", path, "--repair", "--yes")
    assert ran.status == 13
    assert f"error[journal-unreadable]: _headwater/{name}.json is corrupt" in ran.err


def test_unreadable_checkpoint_among_several(
    command: Command, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint whose logs cannot be listed has a finding, and the others are checked."""
    for name in ("a", "b", "c"):
        shutil.copytree(path, tmp_path / "root" / name)
    listed = LocalTree.entries

    def entries(self: LocalTree, folder: str) -> list[Entry]:
        if self.root == tmp_path / "root/b" and folder == "offsets":
            raise PermissionError(13, "Permission denied")
        return listed(self, folder)

    monkeypatch.setattr(LocalTree, "entries", entries)
    ran = command("fsck", tmp_path / "root", "--sources", "--json")
    assert ran.status == 1
    found = [json.loads(line) for line in ran.out.splitlines()]
    failed = [one for one in found if one["severity"] == "error"]
    assert {one["checkpoint"] for one in failed} == {str(tmp_path / "root/b")}
    assert len(failed) == len({(one["code"], one["path"], one["message"]) for one in failed})
    checked = [one["checkpoint"] for one in found if one["code"] == "source-checked"]
    assert checked == [str(tmp_path / "root/a"), str(tmp_path / "root/c")]


def test_relative_path_of_a_sink(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink can be named with .. in its path, which Spark resolves in the paths of its log."""
    found = load("sink-stateless", tmp_path)
    for log in (found.sink / "_spark_metadata").iterdir():
        if log.name.startswith("."):
            log.unlink()
        else:
            log.write_text(log.read_text().replace(f"{found.about['location']}/sink", str(found.sink)))
    monkeypatch.chdir(found.path)
    assert "sink-elsewhere" not in command("fsck", ".", "--sink", "files:../sink").out
    next(found.sink.glob("part-*")).unlink()
    assert "sink-file-missing" in command("fsck", ".", "--sink", "files:../sink").out


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
