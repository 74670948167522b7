"""``headwater run`` and ``check`` in processes of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from broker_support import headwater
from cli.commands import assert_no_stack_trace, lines_after_note
from cli.one_process import run_all
from cli.running import Ran

pytestmark = pytest.mark.services

JOBS = '''
from headwater import Console, Files, Job
from pyspark.sql import functions as F

VISITS = Files("in", schema="user STRING, at TIMESTAMP", options={"maxFilesPerTrigger": "1"})

def visits(rows):
    """The visits themselves."""
    return rows

def per_batch(rows, *, least: int = 0):
    """Visits per user within each batch."""
    return rows.groupBy("user").count().where(F.col("count") >= least)

def misspelt(rows):
    """Select a column that does not exist."""
    return rows.select("usr")

ALL = Job("all", visits, reads=VISITS, writes=Console())
PER_BATCH = Job("per-batch", per_batch, reads=VISITS, writes=Console(), per_batch=True, mode="update")
MISSPELT = Job("misspelt", misspelt, reads=VISITS, writes=Console())
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    (place / "jobs.py").write_text(JOBS)
    (place / "in").mkdir()
    for number, users in enumerate([["ann", "ann", "bob"], ["bob"]]):
        lines = [json.dumps({"user": user, "at": "2024-03-01T10:00:00Z"}) for user in users]
        file = place / "in" / f"{number}.json"
        file.write_text("\n".join([*lines, "no json", ""]))
        os.utime(file, (1_700_000_000 + number,) * 2)
    return place


COUNTED = "SELECT user, count(*) AS n FROM {} GROUP BY user ORDER BY user"
WRITE_TABLE = [
    *("run", "jobs.py:ALL", "--trigger", "available-now", "--checkpoint", "first"),
    *("--sink", "table:kept", "--query", COUNTED.format("kept")),
]
IN_ANOTHER_PROCESS = {
    "read table": [
        *("run", "jobs.py:ALL", "--trigger", "available-now", "--checkpoint", "second"),
        *("--source", "table:kept", "--sink", "memory:seen", "--query", COUNTED.format("seen")),
    ],
    "misspelt": ["run", "jobs.py:MISSPELT"],
    "check": ["check", "jobs.py:ALL", "--sink", "kafka://127.0.0.1:1/visits"],
    "no server": ["run", "word-count", "--source", "socket://127.0.0.1:1"],
    "json log": [
        *("run", "jobs.py:ALL", "--trigger", "available-now", "--checkpoint", "logged", "--log-format", "json"),
        *("--sink", "memory:logged", "--metrics", "0"),
    ],
    "json failure": ["run", "jobs.py:MISSPELT", "--log-format", "json"],
    "failing query": [
        *("run", "jobs.py:ALL", "--sink", "memory:seen", "--query", "SELECT usr FROM seen", "--every", "0.2s"),
        *("--checkpoint", "failing"),
    ],
}


@pytest.fixture(scope="module")
def processes(folder: Path) -> dict[str, Ran]:
    """The results of commands in two processes that follow each other, each with one JVM."""
    first = headwater(*WRITE_TABLE, cwd=folder)
    others = run_all(folder, *IN_ANOTHER_PROCESS.values())
    return {
        "write table": Ran(first.returncode, first.stdout, first.stderr),
        **dict(zip(IN_ANOTHER_PROCESS, others, strict=True)),
    }


def test_console_and_progress_of_a_piped_run(folder: Path) -> None:
    """Spark's tables go to standard output, one plain line per batch to standard error; --conf and --set have effect."""
    run = ["run", "jobs.py:PER_BATCH", "--trigger", "available-now", "--set", "least=1"]
    conf = ["--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.sql.session.timeZone=Europe/Oslo"]
    (ran,) = run_all(folder, [*run, *conf, "--query", "SELECT current_timezone() AS zone"])
    assert ran.status == 0, ran.err
    assert ran.out.count("Batch: ") == 2
    assert "|ann |2    |" in ran.out
    assert ran.out.count("|bob |1    |") == 2
    lines = lines_after_note(ran.err)
    assert [line.split("  ")[0] for line in lines] == ["batch 0", "batch 1", "per-batch: no more data"]
    assert all(line.endswith("malformed 1") for line in lines[:2])
    assert lines[2].endswith("2 batches  6 rows  dropped 0  malformed 2")
    assert "\r" not in ran.err
    assert "\x1b" not in ran.err
    offsets = (folder / ".headwater" / "checkpoints" / "per-batch" / "offsets" / "0").read_text()
    recorded = json.loads(offsets.splitlines()[1])["conf"]
    assert recorded["spark.sql.shuffle.partitions"] == "3"
    assert "|Europe/Oslo|" in ran.out
    assert "RocksDB" in recorded["spark.sql.streaming.stateStore.providerClass"]
    record = json.loads((folder / ".headwater" / "checkpoints" / "per-batch" / "_headwater" / "job.json").read_text())
    assert (record["job"], record["reference"], record["settings"]) == ("per-batch", "jobs.py:PER_BATCH", {"least": 1})


def test_a_table_from_one_process_to_the_next(processes: dict[str, Ran]) -> None:
    """A table outlives the process that wrote it; --query runs when the job ends."""
    for ran in (processes["write table"], processes["read table"]):
        assert ran.status == 0, ran.err
        rows = [line.split("|")[1:3] for line in ran.out.splitlines() if line.startswith("|")]
        assert [[cell.strip() for cell in row] for row in rows] == [["user", "n"], ["ann", "2"], ["bob", "2"]]


def test_json_log(processes: dict[str, Ran]) -> None:
    """With --log-format json, every line is a JSON object; a refusal is one too."""
    ran, refused = processes["json log"], processes["json failure"]
    assert ran.status == 0, ran.err

    def lines_of(text: str) -> list[dict[str, Any]]:
        """Return the objects, without the warning that some versions of Spark lack internals."""
        found = [json.loads(line) for line in text.splitlines()]
        return [line for line in found if "running without" not in line.get("message", "")]

    lines = lines_of(ran.err)
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "message"),
        ("info", "batch"),
        ("info", "batch"),
        ("info", "ended"),
    ]
    assert lines[0]["message"].startswith("metrics: http://127.0.0.1:")
    assert [(line["job"], line["batch_id"], line["rows"], line["malformed"]) for line in lines[1:3]] == [
        ("all", 0, 4, 1),
        ("all", 1, 2, 1),
    ]
    assert lines[1]["phases_ms"]["addBatch"] >= 0
    assert (lines[3]["outcome"], lines[3]["rows"]) == ("no more data", 6)
    (failed,) = lines_of(refused.err)
    assert (refused.status, failed["level"], failed["error"]) == (10, "error", "unknown-column")


def test_refusals_that_need_spark(processes: dict[str, Ran], folder: Path) -> None:
    """A job that does not match its source or finds no server leaves no checkpoint; check accepts a valid one.

    A query that Spark rejects ends the job after the current batch.
    """
    refused, fine, no_server = (processes[name] for name in ("misspelt", "check", "no server"))
    failed = processes["failing query"]
    assert (refused.status, refused.out) == (10, "")
    assert lines_after_note(refused.err)[0] == "error[unknown-column]: there is no column `usr`"
    assert (fine.status, fine.out, fine.err) == (0, "all: ready to run in append mode, files to kafka\n", "")
    assert no_server.status == 12
    assert "error[socket-unreachable]: nothing is listening at 127.0.0.1:1" in no_server.err
    assert failed.status == 10
    assert "there is no column `usr`" in failed.err
    for ran in (refused, no_server, failed):
        assert_no_stack_trace(ran.err)
    assert not [path for name in ("misspelt", "word-count") for path in folder.glob(f".headwater/checkpoints/{name}*")]
    assert (folder / "failing" / "commits" / "0").exists()
