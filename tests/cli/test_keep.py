"""``headwater keep``, ``kept`` and ``stop``, and the names of restore points in other commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.running import Command
from corpus_support import load
from headwater import Checkpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint whose input files exist."""
    held = load("aggregation-changelog", tmp_path)
    for log in (held.path / "sources/0").glob("[0-9]*"):
        log.write_text(log.read_text().replace(held.location.rpartition("/")[0], str(held.path.parent)))
        log.with_name(f".{log.name}.crc").unlink()
    return held.path


def read_arrow(file: Path) -> pa.Table:
    with pa.ipc.open_file(file) as reader:
        return reader.read_all()


def forget(path: Path, first: int) -> None:
    """Remove the logs of older batches, as Spark does."""
    for log in ("offsets", "commits"):
        for number in range(first):
            (path / log / str(number)).unlink(missing_ok=True)
            (path / log / f".{number}.crc").unlink(missing_ok=True)


def test_keep_and_list(command: Command, path: Path) -> None:
    """A point is listed with its batch, time, watermark and size, as a table and as JSON, and can be dropped."""
    assert "no restore points" in command("kept", path).err
    ran = command("keep", path, "early", "--at", 4)
    assert (ran.status, ran.out[:23]) == (0, "kept batch 4 as early (")
    assert f"headwater rewind {path} --to early" in ran.err
    assert json.loads(command("keep", path, "--json").out)["name"] == "batch-9"
    assert "headwater run JOB --keep-every 1h --keep-for 7d" in command("keep", path, "--every", "1h").err
    first, second = map(json.loads, command("kept", path, "--json").out.splitlines())
    assert (first["name"], first["batch_id"], first["own_bytes"], first["automatic"]) == ("early", 4, 0, False)
    assert first["shared_bytes"] > 1000
    assert first["kept_at"].endswith("Z")
    assert second["watermark"] == "2024-05-01T10:52:02.463Z"
    assert "early" in command("kept", path).out
    assert command("keep", path, "--drop", "early").err == "dropped early\n"
    assert "early" not in command("kept", path).out
    assert (command("keep", path, "--drop", "early").status, command("keep", path, "x", "--drop", "y").status) == (2, 2)


def test_log_marks_kept_batches(command: Command, path: Path) -> None:
    """The log shows the names at their batches, and how many points belong to batches that it no longer has."""
    command("keep", path, "early", "--at", 4)
    command("keep", path, "late", "--at", 8)
    assert "yes, kept as early" in command("log", path).out
    kept = {line["batch_id"]: line["kept"] for line in map(json.loads, command("log", path, "--json").out.splitlines())}
    assert (kept[4], kept[5], kept[8]) == (["early"], [], ["late"])
    forget(path, 6)
    assert "1 restore point of batches that are no longer in the log" in command("log", path).err


def test_commands_take_the_name_of_a_point(command: Command, path: Path, tmp_path: Path) -> None:
    """state, show, diff, export, fork and rewind work on a point whose batch is no longer in the checkpoint."""
    state = command("state", path, "--at", 4, "--json").out
    difference = command("diff", path, 4, "HEAD", "--json").out
    command("keep", path, "early", "--at", 4)
    forget(path, 6)
    assert command("state", path, "--at", 4).status == 2
    assert command("state", path, "--at", "early", "--json").out == state
    assert sorted(command("diff", path, "early", "HEAD", "--json").out.splitlines()) == sorted(difference.splitlines())
    assert json.loads(command("show", path, "early", "--json").out)["batch_id"] == 4
    ran = command("export", path, tmp_path / "early.parquet", "--at", "early")
    assert (ran.status, "as of batch 4 written" in ran.err) == (0, True), ran.err
    (file,) = Checkpoint(path).export(tmp_path / "early.arrow", at="early")
    assert pq.read_table(tmp_path / "early.parquet").num_rows == len(state.splitlines()) == read_arrow(file).num_rows
    assert command("fork", path, tmp_path / "fork", "--at", "early").status == 0
    assert command("state", tmp_path / "fork", "--json").out == state
    plan = command("rewind", path, "--to", "early", "--dry-run")
    assert f"Rewind {path} to batch 4 from the restore point early\n" in plan.out
    assert "\n  restored    " in plan.out
    assert json.loads(command("rewind", path, "--to", "early", "--dry-run", "--json").out)["restored"]
    ran = command("rewind", path, "--to", "early", "--yes")
    assert ran.status == 0, ran.err
    assert command("state", path, "--json").out == state
    assert command("undo", path, "--yes").status == 0
    assert command("state", path, "--at", 4).status == 2


def test_unknown_names(command: Command, path: Path) -> None:
    """A misspelled name lists the points; an invalid one is refused before anything is read."""
    command("keep", path, "early", "--at", 4)
    ran = command("rewind", path, "--to", "erly")
    assert (ran.status, ran.err[:23]) == (2, "error[unknown-revision]")
    assert "early" in ran.err
    assert command("keep", path, "41").err.startswith("error[bad-name]")
    assert command("keep", path, "early").err.startswith("error[kept-exists]")


HOLDER = """
import sys, time
from pathlib import Path
from headwater.checkpoint.file_lock import file_lock
from headwater.checkpoint.lease import LOCK, RECORD, Lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.stop_request import StopRequests
files = LocalTree(Path(sys.argv[1]))
files.write(LOCK, b"")
with file_lock(files.local_path(LOCK)):
    lease = Lease.of_this_process("visits")
    files.write(RECORD, lease.to_bytes())
    requests = StopRequests(files, lease)
    print("held", flush=True)
    while len(sys.argv) > 2 or requests.poll() is None:
        time.sleep(0.05)
"""


def holder(path: Path, *options: str) -> subprocess.Popen[str]:
    """Start a process that holds the lease as a job does; it stops on request, or never with an option."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_stop(command: Command, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process stops on request; one that does not answer is named; without one there is nothing to stop."""
    assert command("stop", path).out == f"nothing is running on {path}\n"
    with holder(path) as running:
        assert command("stop", path).out == "stopped visits after batch 9\n"
        assert running.wait(10) == 0
    monkeypatch.setattr("headwater.checkpoint.stop_request.ANSWER_SECONDS", 0.3)
    with holder(path, "deaf") as running:
        ran = command("stop", path)
        assert (ran.status, ran.err[:16]) == (14, "error[no-answer]")
        assert f"kill {running.pid}" in ran.err
        waiting = command("stop", path, "--wait", 0.1)
        assert (waiting.status, waiting.err[:20]) == (14, "error[still-running]")
        assert f"process {running.pid}" in command("stop", path, "--wait", 0).out
        assert "headwater stop" in command("rewind", path, "--to", 4, "--yes").err
        running.kill()
