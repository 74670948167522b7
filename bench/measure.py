"""Run a program in its own process session and measure it: time, CPU and memory of the process tree.

CPU seconds are the kernel's. This process registers as a subreaper: a JVM that outlives its Python parent becomes a child
of this process, is waited for here, and its CPU time is counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import select
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
FIRST_SAMPLE_SECONDS = 0.02  # for programs that end within a fifth of a second
PAGE = os.sysconf("SC_PAGE_SIZE")
ERROR_LINE = re.compile(r"^(?!at )\S*(Error|Exception|error\[)\S*[: \[]")


@dataclass(frozen=True)
class Measurement:
    """One run. ``last_json`` is the last JSON object that the program printed; ``error`` is empty after a success."""

    status: int | str
    started_at: float
    wall_seconds: float
    cpu_seconds: float
    peak_megabytes: int
    last_json: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def failed(self) -> bool:
        return self.status != 0

    @property
    def outcome(self) -> str:
        return f"exited with status {self.status}" if isinstance(self.status, int) else "timed out"


class RunningProgram:
    """A program that is being measured; ``result`` is set when the ``with`` block of :func:`running` ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.started_at = time.time()
        self.peak_bytes = 0
        self.seen = {process.pid}
        self.result: Measurement | None = None
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def _sample(self) -> None:
        for _ in range(round(SAMPLE_SECONDS / FIRST_SAMPLE_SECONDS)):
            if self._ended.wait(FIRST_SAMPLE_SECONDS):
                return
            self.peak_bytes = max(self.peak_bytes, resident_bytes([self.process.pid]))
        while not self._ended.is_set():
            members = self.members()
            self.seen.update(members)
            self.peak_bytes = max(self.peak_bytes, resident_bytes(members))
            self._ended.wait(SAMPLE_SECONDS)

    def members(self) -> list[int]:
        """Return the current process tree, including adopted orphans."""
        return process_tree(self.process.pid, self.seen)

    def end_sampling(self) -> None:
        self._ended.set()
        self._sampler.join()


def run(
    command: Sequence[str], *, log: Path, seconds: float, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Measurement:
    """Run a program to its end, or stop it after ``seconds``, and return what it cost."""
    with running(command, log=log, env=env, cwd=cwd) as program:
        _wait(program.process, seconds)
    assert program.result is not None
    return program.result


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process, at most so long. ``Popen.wait`` polls, and notices it up to 50 ms late."""
    handle = os.pidfd_open(process.pid)
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    process.poll()


@contextlib.contextmanager
def running(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[RunningProgram]:
    """Run a program in its own session for the length of the block, then stop it if it still runs and measure it."""
    adopt_orphans()
    log.parent.mkdir(parents=True, exist_ok=True)
    before, began = _children_cpu_seconds(), time.perf_counter()
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
        program = RunningProgram(process)
        try:
            yield program
        finally:
            status: int | str = process.returncode if process.returncode is not None else "stopped"
            wall = time.perf_counter() - began
            _stop(program)
            with contextlib.suppress(ChildProcessError):
                process.wait()
            program.end_sampling()
            _reap(program)
            program.result = Measurement(
                status=status,
                started_at=program.started_at,
                wall_seconds=round(wall, 3),
                cpu_seconds=round(_children_cpu_seconds() - before, 2),
                peak_megabytes=program.peak_bytes >> 20,
                last_json=_last_json(output.read_text(errors="replace")),
                error="" if status == 0 else _find_error(log, output),
            )


def adopt_orphans() -> None:
    """Register this process as the subreaper of its descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def process_tree(root: int, seen: Collection[int] = ()) -> list[int]:
    """Return a process and its descendants, and those of ``seen`` that this process has adopted since."""
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
    """Return the fields of /proc/PID/stat from the state on; the process name before them can contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _stop(program: RunningProgram) -> None:
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        for pid in _alive(program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while _alive(program) and time.monotonic() < deadline:
            time.sleep(0.05)


def _alive(program: RunningProgram) -> list[int]:
    return [pid for pid in program.members() if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return _stat(pid)[0] == "Z"
    except (OSError, IndexError):
        return True


def _reap(program: RunningProgram) -> None:
    """Wait for adopted orphans, so that their CPU time is counted. The broker is not among them."""
    for pid in program.members():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0 if _is_zombie(pid) else os.WNOHANG)


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _last_json(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else {}
    return {}


def _find_error(*files: Path) -> str:
    """Return the last line that names an error, or else the last lines of output."""
    for file in files:
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if ERROR_LINE.search(line)]
        if errors:
            return errors[-1][:600]
        if lines:
            return "\n".join(lines[-6:])[-600:]
    return "no output"
