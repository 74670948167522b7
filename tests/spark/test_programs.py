"""Python programs that start jobs, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree

pytestmark = [pytest.mark.timeout(600), pytest.mark.services]

PROGRAMS = Path(__file__).with_name("programs_of_users.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(3):
        put(tmp_path, number)
    return tmp_path


def put(folder: Path, number: int) -> None:
    (folder / "in" / f"{number}.json").write_text(json.dumps({"number": number}) + "\n")


def committed(folder: Path, job: str) -> list[int]:
    commits = folder / ".headwater" / "checkpoints" / job / "commits"
    return sorted(int(file.name) for file in commits.glob("[0-9]*"))


def run(folder: Path, program: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, PROGRAMS, program], cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_a_session_of_the_program(folder: Path) -> None:
    """A job runs on a session without Headwater's jar and settings, which are named once; exiting finishes a batch."""
    parity, kafka = run(folder, "own")
    assert (parity["first_batch"], parity["batches"], parity["again"]) == (0, 3, 0)
    ((warning, place),) = parity["warned"]
    assert "spark.sql.session.timeZone=UTC" in warning
    assert "shuffle.partitions" not in warning, "the program has chosen them"
    assert Path(place) == PROGRAMS, "the line of the program that started the job"
    assert kafka["code"] == "no-kafka-connector"
    assert committed(folder, "slow") == [0], "the batch that was running when the program exited was committed"
    assert live_lease(LocalTree(folder / ".headwater/checkpoints/slow")) is None


@pytest.mark.slow
def test_killed_and_resumed_in_another_program(folder: Path) -> None:
    """Jobs of a killed program resume in another one, on another kind of session."""
    with subprocess.Popen(
        [sys.executable, PROGRAMS, "headwaters"], cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as killed:
        assert killed.stdout is not None
        shown = next(line for line in killed.stdout if line.startswith("{"))
        assert json.loads(shown) == {"same": True, "zone": "UTC"}
        killed.send_signal(signal.SIGKILL)
        try:
            before = len(committed(folder, "parity"))
            parity, _ = run(folder, "own")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(killed.pid, signal.SIGKILL)
    assert before <= parity["first_batch"] <= before + 1, "the JVM may have committed a batch after the kill"
    assert parity["batches"] == 3


@pytest.mark.slow
def test_a_session_that_is_stopped_below_a_job(folder: Path) -> None:
    """A job whose session is stopped ends; the next start creates a session with Headwater's settings."""
    ended, again = run(folder, "stopped")
    assert ended == {"ended": True, "code": "spark-stopped"}
    assert again["zone"] == "UTC"
    assert again["batches"] >= 1
    assert len(committed(folder, "slow")) == 3
