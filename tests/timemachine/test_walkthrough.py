"""The walk-through of the documentation on a real broker: run, inspect, rewind, run again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from broker_support import HEADWATER, Broker, run_here

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "visits_windows_counter.json").read_text())
JOB = "visits-windows-counter"
TABLE = re.compile(r"-{43}\nBatch: (\d+)\n-{43}\n(.*?)\n\n", re.DOTALL)


def run_until(batch_ids: list[int], feeds: list[list[str]], broker: Broker, folder: Path, source: str) -> str:
    """Run the job, feed it when it reaches each of the batches, stop it; return what it printed."""
    printed = folder / "printed"
    with (
        printed.open("w") as out,
        subprocess.Popen(
            [HEADWATER, "run", JOB, "--source", source, "--sink", "console:"],
            cwd=folder,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            assert process.stderr is not None
            for batch_id, lines in zip(batch_ids, [*feeds, []], strict=True):
                assert any(line.startswith(f"batch {batch_id} ") for line in process.stderr), f"batch {batch_id}"
                if lines:
                    broker.produce("walk", *lines, partition=0)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
            assert process.returncode == 0
        finally:
            process.kill()
    return printed.read_text()


def rows(table: str) -> list[str]:
    return sorted(line for line in table.splitlines() if line.startswith("|{"))


@pytest.mark.slow
def test_rewind_the_visits_counter(broker: Broker, tmp_path: Path) -> None:
    """After batches 0 to 6 and a rewind, batch 5 emits the same two rows again, and batch 6 is empty again."""
    assert run_here("topics", "create", "walk", "--partitions", 2, "--bootstrap", broker.bootstrap).returncode == 0
    source = f"kafka://{broker.bootstrap}/walk?startingOffsets=earliest"
    steps = [step["send"] for step in GOLDEN["steps"]]
    first = dict(TABLE.findall(run_until([0, 2, 4, 6], steps, broker, tmp_path, source)))
    assert len(rows(first["5"])) == 2
    assert rows(first["6"]) == []

    def run_command(*arguments: str) -> str:
        done = run_here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    log = [json.loads(line) for line in run_command("log", JOB, "--json").splitlines()]
    assert [(batch["batch_id"], batch["status"]) for batch in log] == [(number, "committed") for number in range(7)]
    fifth = json.loads(run_command("show", JOB, "5", "--json"))
    assert fifth["sources"][0]["rows"] == 2

    plan = json.loads(run_command("rewind", JOB, "--redo", "5", "--dry-run", "--json"))
    assert (plan["to"], plan["next_batch"]) == (4, 5)
    assert plan["rereads"][0]["still_there"] is True
    run_command("rewind", JOB, "--redo", "5", "--yes")

    second = dict(TABLE.findall(run_until([6], [], broker, tmp_path, source)))
    assert set(second) == {"5", "6"}
    assert rows(second["5"]) == rows(first["5"])
    assert rows(second["6"]) == []
    log = [json.loads(line) for line in run_command("log", JOB, "--json").splitlines()]
    assert [(batch["batch_id"], batch["status"]) for batch in log] == [(number, "committed") for number in range(7)]
