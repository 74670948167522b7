"""Processes of the soak tests: a worker that keeps Spark running, and single commands. All of them can be killed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 900.0  # generous, for a busy machine


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

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._out, self._err = folder / "command.out", folder / "command.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "headwater", *arguments]
            super().__init__(command, folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def wait(self) -> CommandResult:
        status = self._process.wait(TIMEOUT_SECONDS)
        return CommandResult(status, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))


class Worker(Process):
    """A ``soak.worker`` process. The constructor returns at once; the first command waits until the worker is ready."""

    def __init__(self, folder: Path) -> None:
        reading_end, writing_end = os.pipe()
        command = [sys.executable, "-m", "soak.worker", str(writing_end), str(folder)]
        root = str(Path(__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        with (folder / "worker.err").open("ab") as err:
            super().__init__(
                command, folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err,
                pass_fds=[writing_end], text=True,
            )  # fmt: skip
        os.close(writing_end)
        self._answers = os.fdopen(reading_end)
        self._is_ready = False

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self._read_answer()
            self._is_ready = True

    def run(self, *arguments: object) -> CommandResult:
        self.start(*arguments)
        return self.finish()

    def start(self, *arguments: object) -> None:
        self.wait_until_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
        self._process.stdin.flush()

    def finish(self) -> CommandResult:
        return CommandResult(**self._read_answer())

    @property
    def has_answered(self) -> bool:
        return bool(select.select([self._answers], [], [], 0)[0])

    def close(self) -> None:
        self.kill()
        self._answers.close()

    def _read_answer(self) -> dict[str, Any]:
        if not select.select([self._answers], [], [], TIMEOUT_SECONDS)[0]:
            raise TimeoutError(f"the worker did not answer within {TIMEOUT_SECONDS:.0f} seconds")
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the worker exited with status {self._process.wait()}; see worker.err")
        found: dict[str, Any] = json.loads(line)
        return found


def run_in_process(*arguments: object) -> CommandResult:
    """Run a ``headwater`` command in this process, which saves the half second that a new process takes to start."""
    from headwater.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    status = 0
    before, sys.argv = sys.argv, ["headwater", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    finally:
        sys.argv = before
    if status == 130:  # the command handled a Ctrl-C that was meant for the soak run
        raise KeyboardInterrupt
    return CommandResult(status, out.getvalue(), err.getvalue())


def wait_for(event: Callable[[], bool], unless: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> bool:
    """Poll every two milliseconds until ``event`` is true; return False if ``unless`` or the timeout came first."""
    deadline = time.monotonic() + seconds
    while not event():
        if unless() or time.monotonic() > deadline:
            return event()
        time.sleep(0.002)
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
