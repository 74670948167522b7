"""Processes of the soak tests: workers that keep Spark running, and single commands. All of them can be killed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 900.0  # generous, for a busy machine
START_SECONDS = 180.0
CURRENT_WORKER = "worker"
"""The file with the address of the worker that takes commands."""


@dataclass(frozen=True)
class CommandResult:
    """Output and exit status of a command; the status is None if it was killed."""

    status: int | None
    out: str = ""
    err: str = ""

    @property
    def code(self) -> str | None:
        """The code of Headwater's error message, or None without one."""
        for line in self.err.splitlines():
            if line.startswith("error["):
                return line.removeprefix("error[").partition("]")[0]
            if line.startswith('{"error":'):
                return str(json.loads(line)["error"])
        return None

    @property
    def spark_gave_up(self) -> str | None:
        """Why Spark ended a run that only has to be started again, as the tally names it; None if it did not.

        Spark waits ten seconds for the start of a Python process, on however busy a machine. Spark 4.1 fails after
        the commit of a batch of Kafka records that was run again (SPARK-57438).
        """
        if self.code == "job-failed" and "Python worker failed to connect back" in self.err:
            return "slow starts"
        return "unreported progress" if self.code == "kafka-progress" else None


class Process:
    """A process in its own process group."""

    def __init__(self, command: Sequence[str], folder: Path, **settings: Any) -> None:
        self._process = subprocess.Popen(command, cwd=folder, start_new_session=True, **settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, leader_only: bool = False) -> None:
        """Kill with SIGKILL and return when no process of the group is left.

        ``leader_only`` kills the leader and gives the others a minute to end by themselves.
        """
        if leader_only:
            self._process.kill()
            self._process.wait()
            deadline = time.monotonic() + 60
            while _group_members(self.pid) and time.monotonic() < deadline:
                time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        while _group_members(self.pid):
            time.sleep(0.005)


class Command(Process):
    """A ``headwater`` command in a process of its own, as a user would start it."""

    def __init__(self, arguments: Sequence[str], folder: Path, python: str = sys.executable) -> None:
        self._out, self._err = folder / "command.out", folder / "command.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [python, "-m", "headwater", *arguments]
            super().__init__(command, folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def wait(self) -> CommandResult:
        status = self._process.wait(TIMEOUT_SECONDS)
        return CommandResult(status, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))


class Worker(Process):
    """A ``soak.worker`` process. The constructor returns at once; clients wait until its socket exists."""

    def __init__(self, folder: Path, number: int, python: str) -> None:
        self.address = folder / f"worker-{number}.socket"
        command = [python, "-m", "soak.worker", str(self.address), str(folder / f"spark-{number}.log")]
        with (folder / "worker.err").open("ab") as err:
            super().__init__(
                command, folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err
            )


class WorkerClient:
    """Runs the commands of one story on the current worker, one at a time."""

    def __init__(self, services: Path, story: Path) -> None:
        self._services, self._story = services, story
        self._connection: socket.socket | None = None

    def run(self, *arguments: object) -> CommandResult:
        self.start(*arguments)
        return self.finish()

    def start(self, *arguments: object) -> None:
        self._connection = self._connect()
        request = {"folder": str(self._story), "arguments": [str(argument) for argument in arguments]}
        self._connection.sendall(json.dumps(request).encode() + b"\n")

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect((self._services / CURRENT_WORKER).read_text())
            except OSError:
                connection.close()
                if time.monotonic() > deadline:
                    raise TimeoutError("no worker accepts commands; see worker.err") from None
                time.sleep(0.05)
            else:
                return connection

    @property
    def has_answered(self) -> bool:
        """Whether the command has ended, or its worker was killed."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def finish(self) -> CommandResult:
        result = self.finish_unless_killed()
        if result is None:
            raise RuntimeError("the worker exited; see worker.err")
        return result

    def finish_unless_killed(self) -> CommandResult | None:
        """Wait for the result of the command; None if the worker was killed."""
        assert self._connection is not None
        self._connection.settimeout(TIMEOUT_SECONDS)
        with self._connection, self._connection.makefile() as answers:
            try:
                line = answers.readline()
            except ConnectionResetError:
                return None
            return CommandResult(**json.loads(line)) if line else None


def _environment() -> dict[str, str]:
    """Return the variables with which an environment with another PySpark finds this code."""
    root = Path(__file__).parent.parent
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_in_process(*arguments: object) -> CommandResult:
    """Run a ``headwater`` command in this process, which saves the half second that a new process takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_main([str(argument) for argument in arguments])
    if status == 130:  # the command handled a Ctrl-C that was meant for the soak run
        raise KeyboardInterrupt
    return CommandResult(status, out.getvalue(), err.getvalue())


def run_main(arguments: Sequence[str]) -> int:
    """Run a ``headwater`` command and return its exit status."""
    from headwater.cli.main import main

    try:
        main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return 0


def wait_for(
    event: Callable[[], bool],
    unless: Callable[[], bool],
    seconds: float = TIMEOUT_SECONDS,
    interval: float = 0.01,
) -> bool:
    """Poll until ``event`` is true; return False if ``unless`` or the timeout came first.

    All stories of a group poll at once while their JVM needs the CPU, so the default interval is not shorter.
    """
    deadline = time.monotonic() + seconds
    while not event():
        if unless() or time.monotonic() > deadline:
            return event()
        time.sleep(interval)
    return True


def _group_members(group: int) -> list[int]:
    """Return the running processes of a group, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(pgrp) == group and state != "Z":
                    found.append(int(entry.name))
    return found
