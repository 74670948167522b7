"""``headwater state --view`` and ``--schema``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cli.commands import imported_by
from cli.running import Command
from corpus_support import CorpusCheckpoint, load
from headwater import Checkpoint
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import JobFailed, UsageProblem
from headwater.jobs.loading import load_job
from headwater.views.html import arrow_html

Corpus = Callable[[str], CorpusCheckpoint]

JOBS = """
from headwater import Console, Files, Job

def rows_per_variable(rows):
    counts = {}
    for row in rows:
        counts[row["var"]] = counts.get(row["var"], 0) + 1
    return [{"variable": name, "rows": count} for name, count in sorted(counts.items())]

def failing(rows):
    return rows[1_000_000]

def mixed(rows):
    return [{"a": 1}, {"a": "text"}]

def job(name, view):
    return Job(name, lambda frame: frame, reads=Files("in", schema="a INT"), writes=Console(), state_view=view)

GOOD, PLAIN, FAILING, MIXED, EMPTY = (
    job("good", rows_per_variable), job("plain", None), job("failing", failing), job("mixed", mixed),
    job("empty", lambda rows: []),
)
"""
SCHEMA = (
    "key: window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, user STRING; value: count BIGINT, max TIMESTAMP, sum BIGINT"
)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "viewed_jobs.py"
    file.write_text(JOBS)
    return file


@pytest.fixture
def recorded(tmp_path: Path, jobs: Path) -> Path:
    """A checkpoint of custom state that records a job with a view."""
    path = load("custom-changelog", tmp_path).path
    record = JobRecord(job="good", reference=f"{jobs}:GOOD", has_state_view=True)
    LocalTree(path).write(JOB_FILE, record.to_bytes())
    return path


def rows_per_variable(command: Command, path: Path, *options: object) -> list[dict[str, object]]:
    raw = [json.loads(line)["var"] for line in command("state", path, "--json", *options).out.splitlines()]
    return [{"variable": name, "rows": raw.count(name)} for name in sorted(set(raw))]


def test_view_of_the_recorded_job(command: Command, recorded: Path) -> None:
    """The recorded job's function gets the rows of every variable, as of any batch."""
    for options in ([], ["--at", "HEAD~2"]):
        ran = command("state", recorded, "--view", "--json", *options)
        assert [json.loads(line) for line in ran.out.splitlines()] == rows_per_variable(command, recorded, *options)


def test_view_as_a_table_and_as_files(command: Command, recorded: Path, tmp_path: Path) -> None:
    """The rows of a view can be printed and written in every format."""
    expected = rows_per_variable(command, recorded)
    ran = command("state", recorded, "--view", "--limit", 1)
    assert ran.out.split()[:2] == ["variable", "rows"]
    assert "state of good after batch" in ran.err
    assert f"{len(expected) - 1} more" in ran.err
    lines = command("state", recorded, "--view", "--format", "csv").out.splitlines()
    assert lines[0] == '"variable","rows"'
    assert len(lines) == len(expected) + 1
    target = tmp_path / "view.parquet"
    assert command("state", recorded, "--view", "--format", "parquet", "--out", target).status == 0
    assert pq.read_table(target).to_pylist() == expected


def test_sql_on_a_view(command: Command, recorded: Path) -> None:
    """``--where`` and ``--sql`` apply to the rows of the view."""
    expected = rows_per_variable(command, recorded)
    name = expected[0]["variable"]
    found = command("state", recorded, "--view", "--where", f"variable = '{name}'", "--json").out
    assert json.loads(found) == expected[0]
    total = command("state", recorded, "--view", "--sql", "select cast(sum(rows) as int) as n from state", "--json").out
    assert json.loads(total) == {"n": sum(int(str(row["rows"])) for row in expected)}


def test_view_of_a_named_job(command: Command, corpus: Corpus, jobs: Path) -> None:
    """``--job`` names the job of a checkpoint without a record, which is otherwise refused."""
    path = corpus("custom-changelog").path
    assert "error[unknown-job]" in command("state", path, "--view").err
    assert command("state", path, "--view", "--job", f"{jobs}:GOOD", "--json").out


@pytest.mark.parametrize(
    ("name", "status", "problem"),
    [
        ("PLAIN", 2, "error[no-state-view]: plain has no state_view"),
        ("FAILING", 16, "error[state-view-failed]: the state_view of failing failed"),
        ("MIXED", 16, "the rows that the state_view of mixed returned do not form a table"),
        ("EMPTY", 0, "state of empty after batch"),
    ],
)
def test_jobs_without_a_usable_view(
    command: Command, corpus: Corpus, jobs: Path, name: str, status: int, problem: str
) -> None:
    """A job without a view, a view that fails, and a view without rows are reported."""
    ran = command("state", corpus("custom-changelog").path, "--view", "--job", f"{jobs}:{name}")
    assert (ran.status, problem in ran.err) == (status, True), ran.err


def test_options_that_contradict_a_view(command: Command, recorded: Path) -> None:
    """Options that would hide rows from the job's function are refused, and so is a job without a view."""
    for options in (["--var", "x"], ["--store", "default"], ["--key", "a=b"]):
        assert "cannot be combined with --view" in command("state", recorded, "--view", *options).err
    assert "--job has no effect without --view" in command("state", recorded, "--job", "word-count").err


def test_view_starts_no_jvm(recorded: Path) -> None:
    """A view loads the job, but nothing that starts a Spark session."""
    modules = imported_by("state", recorded, "--view", "--json")
    assert "job_file_viewed_jobs" in modules
    assert "headwater.spark.session" not in modules


def test_view_in_python(recorded: Path, jobs: Path, command: Command) -> None:
    """``Checkpoint.state(view=True)`` returns the view as an Arrow table."""
    checkpoint = Checkpoint(recorded)
    expected = rows_per_variable(command, recorded)
    assert checkpoint.state(view=True).to_pylist() == expected
    first = f"variable = '{expected[0]['variable']}'"
    assert checkpoint.state(view=True, where=first).to_pylist() == expected[:1]
    assert "State of good after batch" in str(arrow_html(checkpoint.state(view=True)))
    with pytest.raises(UsageProblem, match="has no state_view"):
        checkpoint.state(view=True, job=f"{jobs}:PLAIN")
    with pytest.raises(JobFailed):
        checkpoint.state(view=True, job=load_job(f"{jobs}:FAILING"))
    with pytest.raises(UsageProblem, match="every row"):
        checkpoint.state(view=True, var="x")
    with pytest.raises(UsageProblem, match="without view"):
        checkpoint.state(job=f"{jobs}:PLAIN")


def test_view_of_weekly_totals() -> None:
    """The view of weekly-totals has a user, a total and the date of the last purchase, written as in the input."""
    view = load_job("weekly-totals").state_view
    assert view is not None

    def purchase(day: int, amount: int) -> dict[str, object]:
        value = {"user_map_key": {"date": date(2020, 4, day)}, "user_map_value": {"amount": amount}}
        return {"var": "purchases", "key": {"user": "Sankar"}, "value": value}

    timer = {"var": "$eventTimers", "key": {"user": "Sankar"}, "value": {"expiration_timestamp_ms": 1}}
    assert view([purchase(20, 200), timer]) == [{"user": "Sankar", "total": 200, "lastshopped": "20-04-2020"}]
    assert view([purchase(25, 300), purchase(20, 200)]) == [
        {"user": "Sankar", "total": 500, "lastshopped": "25-04-2020"}
    ]


def test_state_without_a_schema_file(command: Command, corpus: Corpus, tmp_path: Path) -> None:
    """Without its schema file a state is shown as bytes with a note; with ``--schema`` every command decodes it."""
    expected = corpus("aggregation-hdfs").path
    path = load("aggregation-hdfs", tmp_path).path
    (path / "state/0/0/_metadata/schema").unlink()
    raw = command("state", path, "--json")
    assert "has no schema file: keys and values are shown as bytes in base64" in raw.err
    assert set(json.loads(raw.out.splitlines()[0])["key"]) == {"key_bytes"}
    one = json.loads(raw.out.splitlines()[0])["key"]["key_bytes"]
    assert len(command("state", path, "--key", f"key_bytes={one}", "--json").out.splitlines()) == 1
    assert command("history", path, "--key", f"key_bytes={one}", "--json").out
    assert f"\n {one} " in f"\n{command('state', path, '--limit', 0).out}"
    for verb in (
        ["state", "--json"],
        ["diff", "6", "8", "--json"],
        ["history", "--key", "user=çelik", "--json"],
        ["bisect", "--where", "count > 1", "--json"],
    ):
        wanted = command(verb[0], expected, *verb[1:])
        found = command(verb[0], path, *verb[1:], "--schema", SCHEMA)
        assert (found.status, found.out) == (wanted.status, wanted.out), verb
    assert command("bisect", path, "--where", "value_bytes is null").out.startswith("not true after any")
