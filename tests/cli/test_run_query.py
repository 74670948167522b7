"""SQL on a memory table while the job runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_support import HEADWATER
from cli.commands import assert_no_stack_trace
from cli.running import Command

pytestmark = pytest.mark.services

JOBS = '''
from headwater import Files, Job, Memory

NUMBERS = Files("in", schema="number INT", options={"maxFilesPerTrigger": "1"})

def per_digit(rows):
    """Numbers by their last digit."""
    return rows.groupBy((rows.number % 10).alias("digit")).count()

def numbers(rows):
    """The numbers themselves."""
    return rows

PER_DIGIT = Job("per-digit", per_digit, reads=NUMBERS, writes=Memory("totals"), mode="complete")
PER_BATCH = Job("per-batch", numbers, reads=NUMBERS, writes=Memory("totals"), per_batch=True)
'''
RESULT = re.compile(r"after batch (\d+):\n\+-+\+\n\|n *\|\n\+-+\+\n\|(\w+) *\|\n\+-+\+\n\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "in").mkdir()
    return tmp_path


def put(folder: Path, file: int, *numbers: int) -> None:
    written = folder / f"{file}.tmp"
    written.write_text("".join(json.dumps({"number": number}) + "\n" for number in numbers))
    os.utime(written, (1_700_000_000 + file,) * 2)
    written.rename(folder / "in" / f"{file}.json")


def read_until(job: subprocess.Popen[str], result: tuple[str, str]) -> str:
    """Read standard output until a result of a batch has been printed, and return what was read."""
    assert job.stdout is not None
    read = ""
    while result not in RESULT.findall(read):
        line = job.stdout.readline()
        assert line, read
        read += line
    return read


@pytest.mark.parametrize(
    ("job", "sql"),
    [
        ("PER_DIGIT", "SELECT sum(count) AS n FROM totals"),
        pytest.param("PER_BATCH", "SELECT count(*) AS n FROM totals", marks=pytest.mark.slow),
    ],
)
def test_repeated_results(folder: Path, job: str, sql: str) -> None:
    """The query is repeated while the job runs; each result names its batch, and the last one is that of the last batch."""
    put(folder, 0, 1, 2, 3)
    command = [HEADWATER, "run", f"jobs.py:{job}", "--query", sql, "--every", "500ms"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            shown = read_until(process, ("0", "3"))
            shown += read_until(process, ("0", "3"))
            put(folder, 1, 4, 5)
            shown += read_until(process, ("1", "5"))
            os.killpg(process.pid, signal.SIGINT)
            rest, errors = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert_no_stack_trace(errors)
    results = RESULT.findall(shown + rest)
    assert "".join(match[0] for match in RESULT.finditer(shown + rest)) == shown + rest
    assert set(results) == {("0", "3"), ("1", "5")}
    assert results == sorted(results)
    assert results.count(("0", "3")) >= 2
    assert RESULT.findall(rest)[-1:] == [("1", "5")], "the result at the end"


SELECT: Callable[[str], list[str]] = lambda every: ["--query", "SELECT 1", "--every", every]  # noqa: E731


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--every", "5s"], "--every needs --query"),
        (["--sink", "files:out", "--mode", "append", *SELECT("5s")], "--every needs a memory sink"),
        (SELECT("0s"), "greater than zero"),
        (SELECT("5"), "greater than zero"),
        (SELECT("soon"), "greater than zero"),
    ],
)
def test_refusals(
    command: Command, arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--every without a query, without a memory table or without a valid interval is refused before anything starts."""
    monkeypatch.chdir(tmp_path)
    ran = command("run", "sliding-counts", *arguments)
    assert (ran.status, ran.err[:17]) == (2, "error[bad-option]")
    assert problem in ran.err
    assert "\nhelp: --" in ran.err
    assert list(tmp_path.iterdir()) == []
