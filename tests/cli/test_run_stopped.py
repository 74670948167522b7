"""The end of a running job: stopped, stopped immediately, or killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from broker_support import HEADWATER, headwater
from cli.commands import assert_no_stack_trace, running

pytestmark = pytest.mark.services

JOBS = '''
from pathlib import Path
from headwater import Files, Job, Memory
from pyspark.sql import functions as F

NUMBERS = Files("in", schema="number INT", options={"maxFilesPerTrigger": "1"})

calls = []

def gated(rows):
    """Report that a batch has started and wait for permission to continue. The first call is a trial without rows."""
    calls.append(rows)
    if Path("gate").exists() and len(calls) > 1:
        with open("begun", "w"):
            pass
        with open("gate") as gate:
            gate.read()
    return rows

def per_digit(rows):
    """Numbers by their last digit."""
    return rows.groupBy((F.col("number") % 10).alias("digit")).agg(F.count("*").alias("many"), F.sum("number").alias("sum"))

GATED = Job("gated", gated, reads=NUMBERS, writes=Files("out", format="json"), per_batch=True)
PER_DIGIT = Job("per-digit", per_digit, reads=NUMBERS, writes=Memory("totals"), mode="complete")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "in").mkdir()
    return tmp_path


def put(folder: Path, number: int, *numbers: int) -> None:
    file = folder / f"{number}.tmp"
    file.write_text("".join(json.dumps({"number": one}) + "\n" for one in numbers))
    os.utime(file, (1_700_000_000 + number,) * 2)
    file.rename(folder / "in" / f"{number}.json")


def committed(folder: Path, job: str) -> list[int]:
    commits = folder / ".headwater" / "checkpoints" / job / "commits"
    return sorted(int(file.name) for file in commits.glob("[0-9]*"))


def written(folder: Path) -> list[int]:
    lines = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["number"] for line in lines)


def test_current_batch(folder: Path) -> None:
    """A second Ctrl-C abandons the current batch; SIGTERM finishes it; a second run on the checkpoint is refused."""
    put(folder, 0, 1, 2, 3)
    for name in ("begun", "gate"):
        os.mkfifo(folder / name)
    with running(folder, "run", "jobs.py:GATED") as job:
        (folder / "begun").read_text()
        job.signal_group(signal.SIGINT)
        job.wait_for("stopping after the current batch")
        job.signal_group(signal.SIGINT)
        assert job.end() == 130
        assert_no_stack_trace(job.errors)
        assert "will run again" in job.errors
    assert committed(folder, "gated") == []
    with running(folder, "run", "jobs.py:GATED") as job:
        (folder / "begun").read_text()
        other = headwater("run", "jobs.py:GATED", cwd=folder)
        assert (other.returncode, other.stderr[:22]) == (14, "error[checkpoint-busy]")
        job.signal_group(signal.SIGTERM)
        (folder / "gate").write_text("continue")
        assert job.end() == 0
        assert job.lines[-1] == "gated: stopped  1 batch  3 rows  dropped 0  malformed 0"
        assert_no_stack_trace(job.errors)
    assert committed(folder, "gated") == [0]
    assert written(folder) == [1, 2, 3]
    assert (folder / ".headwater" / "logs" / "gated.log").exists()


def test_a_terminal(folder: Path) -> None:
    """On a terminal the last line is rewritten; Ctrl-C stops an idle job without waiting for its next trigger."""
    put(folder, 0, 1, 2, 3)
    terminal, job_side = pty.openpty()
    job = subprocess.Popen(
        [HEADWATER, "run", "jobs.py:GATED", "--trigger", "1 hour"],
        cwd=folder, stdin=job_side, stdout=job_side, stderr=job_side, start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509
    )  # fmt: skip
    os.close(job_side)
    shown = ""
    try:
        while "batch 0  3 rows" not in shown or "waiting for next trigger" not in shown:
            shown += os.read(terminal, 4096).decode()
        os.write(terminal, b"\x03")
        while chunk := _read(terminal):
            shown += chunk
        assert job.wait(timeout=240) == 0
    finally:
        job.kill()
        job.wait()
        os.close(terminal)
    assert_no_stack_trace(shown)
    assert "\r\x1b[2Kgated: starting Spark" in shown
    kept = [line.rpartition("\x1b[2K")[2] for line in shown.replace("^C", "").split("\r\n")]
    assert kept[0].startswith("batch 0  3 rows"), shown
    assert kept[1].startswith("stopping after the current batch")
    assert kept[2] == "gated: stopped  1 batch  3 rows  dropped 0  malformed 0"
    assert committed(folder, "gated") == [0]


def _take_terminal() -> None:
    """Make standard input the controlling terminal of the new session, so that it delivers Ctrl-C."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode()
    except OSError:  # the other end is closed
        return ""


@pytest.mark.slow
def test_killed_repeatedly(folder: Path) -> None:
    """A job that is killed several times and restarted loses no record and counts none twice."""
    files, kills = 8, 2
    for place, whole_group in enumerate((False, True)):
        # However far the first run gets, there are files for the second one.
        for number in range(place * 4, place * 4 + 4):
            put(folder, number, *range(number * 7, number * 7 + 20))
        with running(folder, "run", "jobs.py:PER_DIGIT") as job:
            job.wait_for("batch ")
            if whole_group:
                job.signal_group(signal.SIGKILL)
            else:
                job.kill_python_alone()
    query = "SELECT * FROM totals ORDER BY digit"
    last = headwater("run", "jobs.py:PER_DIGIT", "--trigger", "available-now", "--query", query, cwd=folder)
    assert last.returncode == 0, last.stderr
    rows = [line.strip("|").split("|") for line in last.stdout.splitlines() if line.startswith("|")][1:]
    numbers = [one for number in range(files) for one in range(number * 7, number * 7 + 20)]
    expected = [[one for one in numbers if one % 10 == digit] for digit in range(10)]
    assert [[int(cell) for cell in row] for row in rows] == [
        [digit, len(group), sum(group)] for digit, group in enumerate(expected)
    ]
    batches = committed(folder, "per-digit")
    assert batches == list(range(len(batches)))
    offsets = folder / ".headwater/checkpoints/per-digit/offsets"
    ends = [json.loads((offsets / str(batch)).read_text().split("\n")[-1])["logOffset"] for batch in batches]
    # One file per batch. If Spark is killed between the source log and the plan, that file joins the next batch.
    jumps = [end - before for before, end in zip([-1, *ends], ends, strict=False)]
    assert sum(jumps) == files
    assert sorted(jumps)[:-kills] == [1] * (len(jumps) - kills)
    assert max(jumps) <= 2
