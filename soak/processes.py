"""The processes of a soak: one that keeps Spark warm, and commands that run by themselves. All of them can be killed."""

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

PATIENCE_SECONDS = 900.0  # on a machine that is busy with other things


@dataclass(frozen=True)
class Told:
    """What a command said and how it ended; ``status`` None: it was killed."""

    status: int | None
    out: str = ""
    err: str = ""

    @property
    def code(self) -> str | None:
        """The code of the product's error, if it ended with one."""
        for line in self.err.splitlines():
            if line.startswith("error["):
                return line.removeprefix("error[").partition("]")[0]
            if line.startswith('{"error":'):
                return str(json.loads(line)["error"])
        return None


class Process:
    """A process group of ours."""

    def __init__(self, command: Sequence[str], folder: Path, **settings: Any) -> None:
        self._process = subprocess.Popen(command, cwd=folder, start_new_session=True, **settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, leader_only: bool = False) -> None:
        """``kill -9``; returns when nothing of the group is left, however long its other members take to notice."""
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
    """``headwater …`` as a user would start it."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._out, self._err = folder / "command.out", folder / "command.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "headwater", *arguments]
            super().__init__(command, folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def wait(self) -> Told:
        status = self._process.wait(PATIENCE_SECONDS)
        return Told(status, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))


class Worker(Process):
    """See ``soak.worker``. Starting returns at once; the first command waits until it is ready."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = os.pipe()
        command = [sys.executable, "-m", "soak.worker", str(theirs), str(folder)]
        root = str(Path(__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        with (folder / "worker.err").open("ab") as err:
            super().__init__(
                command, folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err,
                pass_fds=[theirs], text=True,
            )  # fmt: skip
        os.close(theirs)
        self._answers = os.fdopen(ours)
        self._is_ready = False

    def make_ready(self) -> None:
        if not self._is_ready:
            self._answer(PATIENCE_SECONDS)
            self._is_ready = True

    def ask(self, *arguments: object) -> Told:
        self.begin(*arguments)
        return self.end()

    def begin(self, *arguments: object) -> None:
        self.make_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
        self._process.stdin.flush()

    def end(self, patience: float = PATIENCE_SECONDS) -> Told:
        return Told(**self._answer(patience))

    @property
    def has_answered(self) -> bool:
        return bool(select.select([self._answers], [], [], 0)[0])

    def close(self) -> None:
        self.kill()
        self._answers.close()

    def _answer(self, patience: float) -> dict[str, Any]:
        if not select.select([self._answers], [], [], patience)[0]:
            raise TimeoutError(f"the worker has not answered for {patience:.0f} seconds")
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the worker ended by itself with status {self._process.wait()}: see worker.err")
        found: dict[str, Any] = json.loads(line)
        return found


def in_process(*arguments: object) -> Told:
    """A command that needs no Spark, carried out here: a process for each would cost half a second."""
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
    if status == 130:  # Ctrl-C is meant for us
        raise KeyboardInterrupt
    return Told(status, out.getvalue(), err.getvalue())


def wait_for(event: Callable[[], bool], unless: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Look again and again, every other millisecond, until it has happened; False when ``unless`` came first."""
    deadline = time.monotonic() + seconds
    while not event():
        if unless() or time.monotonic() > deadline:
            return event()
        time.sleep(0.002)
    return True


def _group_members(group: int) -> list[int]:
    """Processes of a group that still run; a dead one that nobody has asked after does not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(pgrp) == group and state != "Z":
                    found.append(int(entry.name))
    return found
