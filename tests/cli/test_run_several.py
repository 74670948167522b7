"""``headwater run`` with several jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli.commands import assert_no_stack_trace
from cli.one_process import run_all
from cli.running import Command
from headwater.jobs.loading import load_job

JOBS = '''
from headwater import Console, Files, Job, Memory
from pyspark.sql import functions as F

NUMBERS = Files("in", schema="number INT", options={"maxFilesPerTrigger": "1"})

def per_parity(rows):
    """How many numbers are even, how many odd."""
    return rows.groupBy((F.col("number") % 2).alias("odd")).count()

def failing(rows):
    """Fail on the number 7."""
    if rows.where("number = 7").count():
        raise ValueError("seven is not a number")
    return rows

def misspelt(rows):
    """Select a column that does not exist."""
    return rows.select("nmber")

PARITY = Job(
    "parity", per_parity, reads=NUMBERS, writes=Memory("parity"), mode="complete",
    conf={"spark.sql.shuffle.partitions": "3"},
)
OTHER = Job("parity", per_parity, reads=NUMBERS, writes=Memory("other"), mode="complete")
FAILING = Job("failing", failing, reads=NUMBERS, writes=Files("out", format="json"), per_batch=True)
MISSPELT = Job("misspelt", misspelt, reads=NUMBERS, writes=Console())
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.mark.services
def test_one_fails_and_the_others_continue(folder: Path) -> None:
    """Lines carry the job's name, each failure is printed once, each job has a summary, and the exit status is not 0."""
    for file, number in enumerate([6, 7, 8, 9]):
        path = folder / "in" / f"{file}.json"
        path.write_text(json.dumps({"number": number}) + "\n")
        os.utime(path, (1_700_000_000 + file,) * 2)
    run = ["run", "jobs.py:FAILING", "jobs.py:MISSPELT", "jobs.py:PARITY", "--trigger", "available-now"]
    (ran,) = run_all(folder, [*run, "--query", "SELECT sum(count) AS n FROM parity"])
    assert ran.status == 16, ran.err
    assert_no_stack_trace(ran.err)
    lines = ran.err.splitlines()
    batches = [line.split("  ")[0] for line in lines if ": batch " in line]
    assert [line for line in batches if line.startswith("parity")] == [f"parity: batch {number}" for number in range(4)]
    assert [line for line in batches if line.startswith("failing")] == ["failing: batch 0"]
    assert ran.err.count("error[job-failed]") == 1
    assert ran.err.count("error[unknown-column]: there is no column `nmber`") == 1
    assert "seven is not a number" in ran.err
    assert [line.partition("  ")[0] for line in lines[-3:]] == [
        "failing: failed (job-failed)",
        "misspelt: failed (unknown-column)",
        "parity: no more data",
    ]
    assert "|4  |" in ran.out
    checkpoints = folder / ".headwater" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["failing", "parity"]
    conf = {
        name: json.loads((checkpoints / name / "offsets" / "0").read_text().splitlines()[1])["conf"]
        for name in ("failing", "parity")
    }
    assert conf["parity"]["spark.sql.shuffle.partitions"] == "3"
    assert conf["failing"]["spark.sql.shuffle.partitions"] != "3", "a job's settings do not reach the other jobs"


def test_the_log_has_the_names_of_all_jobs() -> None:
    """Spark's log of several jobs is named after all of them."""
    from headwater.spark.job_session import log_file

    jobs = [load_job(f"jobs.py:{name}") for name in ("FAILING", "MISSPELT", "PARITY")]
    assert log_file(jobs) == Path(".headwater/logs/failing+misspelt+parity.log")


@pytest.mark.parametrize(
    ("arguments", "code", "status", "problem"),
    [
        (["--source", "files:in"], "bad-option", 2, "--source belongs to a single job"),
        (["--checkpoint", "x", "--set", "a=1"], "bad-option", 2, "--set belongs to a single job"),
        (["--every", "5s", "--query", "SELECT 1"], "bad-option", 2, "--every belongs to a single job"),
        ([], "jobs-collide", 10, "two of these jobs have the name parity"),
    ],
)
def test_refusals(command: Command, arguments: list[str], code: str, status: int, problem: str) -> None:
    """Options of a single job, and jobs that collide, are refused before anything starts."""
    ran = command("run", "jobs.py:PARITY", "jobs.py:OTHER", *arguments)
    assert (ran.status, ran.err.partition("]")[0]) == (status, f"error[{code}")
    assert problem in ran.err
    assert "\nhelp: " in ran.err
    assert not Path(".headwater").exists()


def test_any_refused_job_refuses_the_command(command: Command) -> None:
    """If a job is refused before Spark starts, no job starts."""
    ran = command("run", "jobs.py:PARITY", "jobs.py:MISSPELT", "--trigger", "soon")
    assert (ran.status, ran.err[:18]) == (2, "error[bad-trigger]")
