"""``headwater log``."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from broker_support import run_here
from cli.commands import imported_by
from cli.running import Command
from corpus_support import load
from headwater import Checkpoint
from headwater.checkpoint.failures import FailureRecord, add_failure
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from two_sources import TwoSources
from waiting_support import PATIENCE_SECONDS


def test_table(command: Command, corpus) -> None:
    """The table has a heading and a line per batch; -n limits it to the newest batches."""
    path = corpus("aggregation-hdfs").path
    lines = command("log", path).out.splitlines()
    assert lines[0].split() == [
        *(
            "BATCH",
            "STATUS",
            "PLANNED",
            "(UTC)",
            "TOOK",
            "ROWS",
            "READ",
            "WATERMARK",
            "(UTC)",
            "LAG",
            "STATE",
            "REWIND",
        )
    ]
    assert [line.split()[0] for line in lines[1:]] == [str(number) for number in range(10)]
    newest = command("log", path, "-n", "3").out.splitlines()
    assert [line.split()[0] for line in newest[1:]] == ["7", "8", "9"]
    assert newest[-1].endswith("yes")
    assert "files" in newest[-1]


def test_a_relative_name_is_no_promotion(tmp_path: Path) -> None:
    """A checkpoint below the working directory may be named with a dot."""
    path = load("aggregation-hdfs", tmp_path).path
    done = run_here("log", f"./{path.name}", cwd=path.parent)
    assert done.returncode == 0
    assert "promoted" not in done.stderr


def test_reason_is_in_the_table(command: Command, tmp_path: Path) -> None:
    """The table shows why a batch cannot be rewound to, and how many stores can be rebuilt."""
    path = load("aggregation-rocksdb", tmp_path).path
    (path / "state/0/1/4.zip").unlink()
    line = command("log", path).out.splitlines()[4]
    assert line.endswith("no: state version 4 of operator 0, store default, partition 1 cannot be rebuilt")
    assert " v4 1/2 " in line


def test_failure_of_the_last_run(command: Command, tmp_path: Path) -> None:
    """A warning shows that the last run failed, and why, unless the job is running again."""
    files = LocalTree(load("aggregation-hdfs", tmp_path).path)
    add_failure(files, FailureRecord(time.time_ns() // 1_000_000 + 60_000, "job-failed", "totals failed: overflow"))
    shown = command("log", files.location)
    assert shown.err.startswith("warning: the last run failed at 20")
    assert "Z: totals failed: overflow" in shown.err
    with hold_lease(files, "totals", "cannot run"):
        assert command("log", files.location).err == ""


def test_since(command: Command, corpus) -> None:
    """--since takes a time; a time after the last batch is not an error."""
    path = corpus("aggregation-hdfs").path
    every = [json.loads(line) for line in command("log", path, "--json").out.splitlines()]
    since = command("log", path, "--json", "--since", every[6]["planned_at"])
    assert [json.loads(line)["batch_id"] for line in since.out.splitlines()] == [6, 7, 8, 9]
    late = command("log", path, "--since", "2100-01-01T00:00:00Z")
    assert (late.status, late.out, late.err) == (0, "", "no batches since then\n")
    assert command("log", path, "--since", "noon").status == 2


def test_no_checkpoint(command: Command, tmp_path: Path) -> None:
    """A missing checkpoint is an error, printed as JSON with --json."""
    ran = command("log", tmp_path / "nothing")
    assert ran.status == 13
    assert ran.err.startswith("error[no-checkpoint]: ")
    assert "help: " in ran.err
    assert json.loads(command("log", tmp_path / "nothing", "--json").err)["error"] == "no-checkpoint"


def test_new_checkpoint(command: Command, tmp_path: Path) -> None:
    """A checkpoint without batches is not an error."""
    (tmp_path / "metadata").write_text('{"id":"x"}')
    ran = command("log", tmp_path)
    assert (ran.status, ran.out, ran.err) == (0, "", "no batches yet\n")


def test_corrupt_batch_does_not_hide_the_others(command: Command, tmp_path: Path) -> None:
    """A truncated file affects one batch, whose line shows the problem."""
    path = load("aggregation-hdfs", tmp_path).path
    (path / "offsets/4").write_bytes(b"v1\n{")
    lines = [json.loads(line) for line in command("log", path, "--json").out.splitlines()]
    assert [line["batch_id"] for line in lines if "problem" in line] == [4]
    assert lines[4]["why_not"] == "offsets/4 ends in the middle of its JSON"


def test_follow(tmp_path: Path) -> None:
    """--follow prints the existing batches, then a new batch when it is planned and again when it is committed."""
    path = load("aggregation-hdfs", tmp_path).path
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "log", str(path), "--json", "--follow", "-n", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(PATIENCE_SECONDS, process.kill)
    overdue.start()
    try:
        assert process.stdout is not None
        seen = [_batch(process.stdout.readline())]
        (path / "offsets/10").write_bytes((path / "offsets/9").read_bytes())
        seen.append(_batch(process.stdout.readline()))
        (path / "commits/10").write_bytes((path / "commits/9").read_bytes())
        seen.append(_batch(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        overdue.cancel()
        process.stdout.close()
    assert seen == [(9, "committed"), (10, "planned"), (10, "committed")]


def _batch(line: str) -> tuple[int, str]:
    batch = json.loads(line)
    return batch["batch_id"], batch["status"]


@pytest.mark.parametrize("verb", ["log", "show", "fsck"])
def test_no_heavy_import(verb: str, corpus) -> None:
    """Reading a local checkpoint imports no Spark, pandas, Arrow, object store or rich."""
    heavy = {"pyspark", "py4j", "pandas", "numpy", "pyarrow", "duckdb", "fsspec", "rocksdict", "nicegui", "rich"}
    assert not heavy & imported_by(verb, corpus("aggregation-rocksdb").path, "--json")


@pytest.fixture
def held_back(tmp_path: Path) -> Path:
    """Return a checkpoint of a job in which the source `clicks` delivers nothing after batch 1."""
    made = TwoSources().with_job(clicks="kafka://h:1/clicked", ads="kafka://h:1/shown")
    made.batch(5, 5, watermark=None, after=1).batch(5, 5, watermark=1, after=2)
    return made.batch(5, 0, watermark=2).batch(5, 0, watermark=2).write(tmp_path / "join")


@pytest.mark.parametrize("arguments", [["--json"], [], ["--help"]])
def test_a_closed_pipe_is_no_failure(corpus, arguments: list[str]) -> None:
    """If the reader of the output goes away, as head does, the command ends quietly."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "log", str(corpus("aggregation-hdfs").path), *arguments],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lost_connection_is_a_failure(command: Command, corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to a server that breaks is not taken for a closed pipe."""

    def broken(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("headwater.cli.checkpoint_options.open_to_read", broken)
    ran = command("state", corpus("aggregation-hdfs").path)
    assert (ran.status, "BrokenPipeError" in ran.err) == (17, True)


def test_held_back_watermark(command: Command, held_back: Path) -> None:
    """A line below the table names the source that holds the watermark back; JSON has it with each batch."""
    expected = (
        "watermark unchanged since batch 2, probably because clicks has been idle since batch 2 "
        "(policy min: the slowest source determines it)"
    )
    assert command("log", held_back).out.splitlines()[-1] == expected
    assert command("log", held_back, "-n", 1).out.splitlines()[-1] == expected
    batches = [json.loads(line) for line in command("log", held_back, "--json").out.splitlines()]
    assert [batch["watermark_hold"] is not None for batch in batches] == [False, False, False, True]
    assert batches[-1]["watermark_hold"]["text"] == expected
    assert [(source["name"], source["label"]) for source in batches[-1]["sources"]] == [("0", "ads"), ("1", "clicks")]


def test_held_back_watermark_of_one_batch(command: Command, held_back: Path) -> None:
    """`show` names the source, too, and heads each source with its name and topic."""
    lines = command("show", held_back, 3).out.splitlines()
    (unchanged,) = [line for line in lines if line.split()[:1] == ["unchanged"]]
    assert "clicks has been idle since batch 2" in unchanged
    assert "source 1 (clicks): kafka clicked, rows 0" in lines
    assert json.loads(command("show", held_back, 3, "--json").out)["watermark_hold"]["held_by"][0]["label"] == "clicks"
    assert not [line for line in command("show", held_back, 1).out.splitlines() if "unchanged" in line]


def test_held_back_watermark_in_python(held_back: Path) -> None:
    """`Checkpoint.watermark_hold` returns the answer as of any batch."""
    checkpoint = Checkpoint(held_back)
    hold = checkpoint.watermark_hold()
    assert hold is not None and hold.held_by[0].label == "clicks"
    assert checkpoint.watermark_hold(1) is None


@pytest.mark.parametrize("scheme", ["nowhere", "hdfs"])
def test_a_store_without_a_driver(command: Command, scheme: str, corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that nothing can open is refused; the driver of HDFS is there, but finds no Hadoop on this machine."""
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    url = f"{scheme}://127.0.0.1:1/checkpoint"
    for arguments in (["log", url], ["fork", str(corpus("dedup-hdfs").path), url]):
        ran = command(*arguments)
        assert ran.status == 13
        assert f"error[unknown-store]: cannot open {scheme}://" in ran.err
