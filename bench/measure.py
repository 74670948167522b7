"""Run a contender in processes of its own and say what it cost: time, CPU of the whole tree, memory.

The CPU seconds are the kernel's. This process makes itself the one to which orphans fall, so that a JVM outlives its
Python parent only to be waited for here, and whatever the tree used is counted once it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")
COMPLAINT = re.compile(r"^(?!at )\S*(Error|Exception|error\[)\S*[: \[]")


@dataclass(frozen=True)
class Measured:
    """One run. ``said`` is the JSON object that the program printed last, if it printed one."""

    status: int | str
    started_at: float
    wall_seconds: float
    cpu_seconds: float
    peak_megabytes: int
    said: dict[str, Any] = field(default_factory=dict)
    complaint: str = ""

    @property
    def failed(self) -> bool:
        return self.status != 0


class Running:
    """A contender under way; leave the ``with`` block of :func:`running` to have it ended and measured."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.started_at = time.time()
        self.peak_bytes = 0
        self.seen = {process.pid}
        self.result: Measured | None = None
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            members = self.members()
            self.seen.update(members)
            self.peak_bytes = max(self.peak_bytes, resident_bytes(members))

    def members(self) -> list[int]:
        """The tree now, with what has lost its parent and fallen to us."""
        return tree(self.process.pid, self.seen)

    def end_sampling(self) -> None:
        self._ended.set()
        self._sampler.join()


def run(
    command: Sequence[str], *, log: Path, seconds: float, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Measured:
    """Run to the end, or stop it after so many seconds."""
    with running(command, log=log, env=env, cwd=cwd) as contender, contextlib.suppress(subprocess.TimeoutExpired):
        contender.process.wait(seconds)
    assert contender.result is not None
    return contender.result


@contextlib.contextmanager
def running(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Running]:
    """A program in a session of its own; at the end of the block it is stopped if need be, and measured."""
    adopt_orphans()
    log.parent.mkdir(parents=True, exist_ok=True)
    before, began = _children(), time.perf_counter()
    output = log.with_suffix(".out")
    with output.open("wb") as out, log.open("wb") as errors:
        process = subprocess.Popen(
            list(command),
            stdout=out,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
        contender = Running(process)
        try:
            yield contender
        finally:
            status: int | str = process.returncode if process.returncode is not None else "stopped"
            wall = time.perf_counter() - began
            _end(contender)
            with contextlib.suppress(ChildProcessError):
                process.wait()
            contender.end_sampling()
            _reap(contender)
            contender.result = Measured(
                status=status,
                started_at=contender.started_at,
                wall_seconds=round(wall, 3),
                cpu_seconds=round(_children() - before, 2),
                peak_megabytes=contender.peak_bytes >> 20,
                said=_last_object(output.read_text(errors="replace")),
                complaint="" if status == 0 else _last_words(log, output),
            )


def adopt_orphans() -> None:
    """Become the parent of what our children leave behind, as init would otherwise."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree(root: int, seen: Collection[int] = ()) -> list[int]:
    """The process, all below it, and those of ``seen`` that have become our own children: a JVM outlives its parent."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    members = {root} | {pid for pid in seen if parents.get(pid) == os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return [pid for pid in members if pid in parents]


def resident_bytes(pids: Collection[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _end(contender: Running) -> None:
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        for pid in _alive(contender):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while _alive(contender) and time.monotonic() < deadline:
            time.sleep(0.05)


def _alive(contender: Running) -> list[int]:
    return [pid for pid in contender.members() if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return _stat(pid)[0] == "Z"
    except (OSError, IndexError):
        return True


def _reap(contender: Running) -> None:
    """Wait for the orphans, so that their CPU time is counted; the broker is none of them."""
    for pid in contender.members():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0 if _is_zombie(pid) else os.WNOHANG)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _last_object(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else {}
    return {}


def _last_words(*files: Path) -> str:
    """What a program complained of: its last line that names an error, or else its last lines."""
    for file in files:
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
        complaints = [line for line in lines if COMPLAINT.search(line)]
        if complaints:
            return complaints[-1][:600]
        if lines:
            return "\n".join(lines[-6:])[-600:]
    return "it said nothing"
