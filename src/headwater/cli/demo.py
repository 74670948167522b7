"""``headwater demo``: Kafka, a generator, a stateful job and its page on this machine."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.child_processes import BackgroundCommand, run_command, stop_orphans
from headwater.cli.lakehouse_demo import LakehouseDemo
from headwater.cli.output import StatusLine, note, say
from headwater.core.errors import JobFailed, SetupProblem
from headwater.core.extras import require_packages

HOME = Path(".headwater/demo")
LOCK = Path(".headwater/demo.lock")
CHECKPOINT = HOME / "browser-stats"
RECORDS = HOME / "processes"
JOB = "browser-stats-stateful"
WINDOW, WATERMARK, TRIGGER = "30 seconds", "1 minute", "2 seconds"
STOP_SECONDS = 45.0
POLL_SECONDS = 0.2


@app.command(rich_help_panel=RUN)
def demo(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the broker; default: 9092, or a free port.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Visits per second.")] = 20.0,
    lakehouse: Annotated[
        bool,
        typer.Option(
            "--lakehouse",
            help="Instead: two jobs on Delta tables, a bad deployment, and the rewind of both. Takes about a minute.",
        ),
    ] = False,
) -> None:
    """Run Kafka, a data generator, a stateful job and its live page, until Ctrl-C.

    Everything is stored under .headwater/demo, which is emptied at each start.

    Examples:
      headwater demo
      headwater demo --lakehouse
    """
    _require_installation("pyspark", *(() if lakehouse else ("confluent_kafka", "nicegui")))
    stop = _StopRequest()
    with _single_demo():
        _clean_up_previous()
        if lakehouse:
            LakehouseDemo(HOME, lambda: stop.received).run()
            return
        running = _Demo(port or _free_port(9092), rate, stop)
        try:
            running.start()
            running.supervise()
        finally:
            running.stop()
    note("demo stopped: nothing is left running")


def _require_installation(*packages: str) -> None:
    """Raise what is missing on this machine before any process of the demo does."""
    from headwater.jars.java import require_java

    require_packages(*packages)
    require_java()


class _StopRequest:
    """Whether Ctrl-C was pressed, or a signal to stop was received."""

    def __init__(self) -> None:
        self.received = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._receive)

    def _receive(self, *_: object) -> None:
        self.received = True


class _Demo:
    """The processes of the demo. Enter on the terminal stops the job and starts it again."""

    def __init__(self, port: int, rate: float, stop: _StopRequest) -> None:
        self._bootstrap = f"127.0.0.1:{port}"
        self._port = port
        self._rate = rate
        self._stop = stop
        self._line = StatusLine()
        self._generator: BackgroundCommand | None = None
        self._job: BackgroundCommand | None = None
        self._page: BackgroundCommand | None = None
        self._is_paused = False

    def start(self) -> None:
        for status, arguments in (
            ("starting Kafka", ["broker", "start", "--port", str(self._port), "--data", str(HOME / "kafka")]),
            ("creating topics", ["topics", "create", "visits", "--partitions", "2", "--bootstrap", self._bootstrap]),
            ("creating topics", ["topics", "create", "browser-stats", "--bootstrap", self._bootstrap]),
        ):
            if self._stop.received:
                return
            self._line.show(f"demo: {status} ...")
            self._call(arguments)
        if self._stop.received:
            return
        self._generator = _start_in_background("generator", self._generator_arguments())
        self._start_job()
        self._page = _start_in_background("page", ["ui", str(CHECKPOINT), "--allow-changes", "--wait"])
        self._wait_for_first_batch()

    def supervise(self) -> None:
        """Wait for Ctrl-C. Raise if a process ends unexpectedly."""
        if self._stop.received:
            return
        self._say_what_runs()
        while not self._stop.received:
            self._wait_for_enter()
            self._check_processes()

    def stop(self) -> None:
        self._line.show("demo: stopping ...")
        processes = [process for process in (self._job, self._generator, self._page) if process]
        for process in processes:
            process.terminate()
        for process in processes:
            process.stop(timeout_seconds=STOP_SECONDS)
        if (HOME / "kafka").is_dir():
            self._call(["broker", "stop", "--data", str(HOME / "kafka")])
        self._line.clear()

    def _generator_arguments(self) -> list[str]:
        faults = ["--late", "5%", "--duplicates", "1%", "--malformed", "2%"]
        target = f"kafka://{self._bootstrap}/visits"
        return ["generate", "visits", "--to", target, "--rate", f"{self._rate:g}", *faults]

    def _job_arguments(self) -> list[str]:
        source = f"kafka://{self._bootstrap}/visits?startingOffsets=earliest"
        endpoints = ["--source", source, "--sink", f"kafka://{self._bootstrap}/browser-stats"]
        settings = ["--set", f"window={WINDOW}", "--set", f"watermark={WATERMARK}"]
        return ["run", JOB, *endpoints, "--checkpoint", str(CHECKPOINT), "--trigger", TRIGGER, *settings]

    def _start_job(self) -> None:
        self._line.show(f"demo: starting {JOB} on Spark ...")
        self._job = _start_in_background("job", self._job_arguments())

    def _wait_for_first_batch(self) -> None:
        while not self._stop.received and not (any((CHECKPOINT / "commits").glob("[0-9]*")) and self._url()):
            self._check_processes()
            time.sleep(POLL_SECONDS)

    def _url(self) -> str:
        assert self._page is not None
        return next((line for line in self._page.log_tail().splitlines() if line.startswith("http")), "")

    def _call(self, arguments: list[str]) -> None:
        """Run a command to its end. Show its output only if it fails."""
        done = run_command(arguments, ignore_interrupts=True)
        if done.returncode and not self._stop.received:
            problem = f"`headwater {' '.join(arguments)}` failed"
            raise JobFailed("demo-failed", problem, evidence={"output": done.stderr})

    def _say_what_runs(self) -> None:
        self._line.clear()
        details = f"Kafka {self._bootstrap}, {self._rate:g} visits/s, some late or malformed; pid {self._job_pid()}"
        say(f"{JOB} is running ({details}).")
        say(f"Page:   {self._url()}")
        say(f"Try:    headwater state {CHECKPOINT}          headwater log {CHECKPOINT} --follow")
        how = "press Enter here" if sys.stdin.isatty() else f"run kill {self._job_pid()}"
        say(f"Rewind: {how} to stop the job, then: headwater rewind {CHECKPOINT} --to HEAD~5   (or use the page)")
        say("Press Ctrl-C to stop everything.")

    def _job_pid(self) -> int:
        assert self._job is not None
        return self._job.pid

    def _wait_for_enter(self) -> None:
        if not sys.stdin.isatty():
            time.sleep(POLL_SECONDS)
            return
        ready, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if not ready:
            return
        if not sys.stdin.readline():
            self._stop.received = True
        elif self._is_paused:
            self._resume_job()
        else:
            self._pause_job()

    def _pause_job(self) -> None:
        assert self._job is not None
        self._line.show("demo: finishing the current batch ...")
        self._job.stop(timeout_seconds=STOP_SECONDS)
        self._job_paused()

    def _job_paused(self) -> None:
        self._is_paused = True
        self._line.clear()
        say("The job is stopped; the generator is still running. Now you can:")
        say(f"  rewind: headwater rewind {CHECKPOINT} --to HEAD~5     (and headwater undo {CHECKPOINT})")
        how = "press Enter here" if sys.stdin.isatty() else f"headwater {join(self._job_arguments())}"
        say(f"  resume: {how}")

    def _resume_job(self) -> None:
        self._start_job()
        self._is_paused = False
        self._line.clear()
        say(f"The job is running again (pid {self._job_pid()}).")

    def _check_processes(self) -> None:
        for process in (self._generator, self._page, self._job):
            if process is None or process.exit_status is None or (process is self._job and self._is_paused):
                continue
            if process is self._job and process.exit_status == 0:
                self._job_paused()
                return
            raise JobFailed(
                "demo-failed",
                f"the {process.name} of the demo ended unexpectedly with exit status {process.exit_status}",
                evidence={"log": process.log, "output": process.log_tail()},
            )


def _start_in_background(name: str, arguments: list[str]) -> BackgroundCommand:
    return BackgroundCommand(name, arguments, record=RECORDS / f"{name}.json", log=HOME / "logs" / f"{name}.log")


@contextmanager
def _single_demo() -> Iterator[None]:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            pid = handle.read().strip()
            raise SetupProblem(
                "demo-running",
                "a demo is already running in this folder",
                evidence={"process": pid},
                remedy=f"kill {pid}   (or press Ctrl-C where it runs)",
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _clean_up_previous() -> None:
    """Stop the processes that a killed demo left behind, and delete its data."""
    from headwater.kafka import broker as local_broker

    stopped = stop_orphans(RECORDS, timeout_seconds=STOP_SECONDS)
    broker = local_broker.stop(HOME / "kafka")
    stopped += [broker] if broker else []
    if stopped:
        note(f"stopped processes of an earlier demo: {', '.join(map(str, stopped))}")
    shutil.rmtree(HOME, ignore_errors=True)


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise SetupProblem("no-port", "this machine has no free port")
