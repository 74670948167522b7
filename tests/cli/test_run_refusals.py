"""Runs that are refused before Spark starts: with a short message, a remedy, and nothing left on the disk."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_support import Broker, free_port
from cli.commands import assert_no_stack_trace
from cli.running import Command, Ran
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.jars import java

JOB = "browser-stats-stateful"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def refused(command: Command, *arguments: str) -> Ran:
    ran = command("run", *arguments)
    assert_no_stack_trace(ran.err)
    assert ran.out == ""
    assert ran.err.startswith("error[")
    assert "\nhelp: " in ran.err
    assert len(ran.err.splitlines()) <= 5, ran.err
    assert not Path(".headwater").exists()
    return ran


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["browser-stat"], "unknown-job", 2),
        (["missing.py:JOB"], "unknown-job", 2),
        ([JOB, "--source", "in"], "bad-uri", 2),
        ([JOB, "--sink", "socket://127.0.0.1:1"], "bad-uri", 2),
        ([JOB, "--trigger", "soon"], "bad-trigger", 2),
        ([JOB, "--set", "windw=1"], "unknown-setting", 2),
        ([JOB, "--conf", "spark.x"], "bad-option", 2),
        ([JOB, "--profile", "speed"], "bad-option", 2),
        ([JOB, "--source", "files:nowhere"], "no-folder", 10),
        ([JOB, "--source", "files:in", "--sink", "files:out"], "mode", 10),
        (["browser-stats-stateless", "--mode", "complete"], "mode", 10),
        (["word-count", "--trigger", "available-now"], "trigger", 10),
        ([JOB, "--source", "files:in", "--sink", "console:", "--master", "spark://127.0.0.1:1"], "no-master", 12),
        (
            [JOB, "--source", "files:in", "--sink", "postgresql://u@127.0.0.1:1/d?table=t&key=browser"],
            "postgres-unreachable",
            12,
        ),
    ],
)
def test_options_and_services(command: Command, arguments: list[str], code: str, status: int) -> None:
    """Invalid options, contradictory options and unreachable services are refused."""
    ran = refused(command, *arguments)
    assert (ran.err.partition("]")[0], ran.status) == (f"error[{code}", status)


def test_kafka_that_is_down(command: Command) -> None:
    """An unreachable broker is reported within seconds."""
    began = time.monotonic()
    ran = refused(command, JOB, "--source", f"kafka://127.0.0.1:{free_port()}/visits")
    assert (ran.status, ran.err[:24]) == (12, "error[kafka-unreachable]")
    assert "headwater broker start" in ran.err
    assert time.monotonic() - began < 30, "Kafka's own timeout is a minute"


def test_missing_topic(command: Command, broker: Broker) -> None:
    """The error for a missing topic names the command that creates it."""
    ran = refused(command, JOB, "--source", f"kafka://{broker.bootstrap}/no-such-visits")
    assert (ran.status, ran.err[:15]) == (12, "error[no-topic]")
    assert f"headwater topics create no-such-visits --bootstrap {broker.bootstrap}" in ran.err


def test_a_checkpoint_of_another_job(command: Command, folder: Path) -> None:
    """A job cannot run on the checkpoint of another one."""
    LocalTree(folder / "ck").write(JOB_FILE, JobRecord(job="another").to_bytes())
    ran = refused(command, JOB, "--source", "files:in", "--sink", "console:", "--checkpoint", "ck")
    assert (ran.status, ran.err.splitlines()[0]) == (
        10,
        f"error[other-job]: this checkpoint belongs to another, not to {JOB}",
    )


HOLDER = """
import sys
from pathlib import Path
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.lease import hold_lease
with hold_lease(LocalTree(Path("ck")), "headwater rewind", "cannot begin"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_checkpoint_that_is_being_changed(command: Command) -> None:
    """A checkpoint that another process is changing is refused."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        ran = refused(command, JOB, "--source", "files:in", "--sink", "console:", "--checkpoint", "ck")
        assert (ran.status, ran.err[:22]) == (14, "error[checkpoint-busy]")
        assert str(holder.pid) in ran.err
        assert "wait until it has finished" in ran.err
        holder.communicate("")


@pytest.mark.parametrize("arguments", [["run", JOB, "--source", "files:in", "--sink", "console:"], ["demo"]])
def test_no_java(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Without Java, `run` and `demo` show where to get one, and start nothing."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(java, "PLACES", ())
    ran = command(*arguments)
    assert ran.status == 11
    assert ran.err.startswith("error[java-missing]: java is not on PATH\nhelp: install Java 17 or newer")
    assert not Path(".headwater").exists()
