"""``headwater demo``: everything at once on this machine, to look at and to rewind."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import LivingLine, note, say
from headwater.core.errors import JobFailed, SetupProblem

if TYPE_CHECKING:
    from headwater.cli.children import Child

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
        int | None, typer.Option(min=1, max=65535, help="The broker's port; by default 9092, or a free one.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Visits a second.")] = 20.0,
) -> None:
    """Run a broker, a generator with faulty records, the stateful browser statistics and their page, until Ctrl-C.

    Everything is under .headwater/demo, which each demo empties first.

    Example:
      headwater demo
    """
    stopping = _Stopping()
    with _only_one_demo():
        _clean_up_after_the_last()
        stage = _Stage(port or _free_port(9092), rate, stopping)
        try:
            stage.set_up()
            stage.watch()
        finally:
            stage.take_down()
    note("demo stopped: nothing is left running")


class _Stopping:
    """Whether somebody has pressed Ctrl-C or sent SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


class _Stage:
    """What runs, in the order in which it starts."""

    def __init__(self, port: int, rate: float, stopping: _Stopping) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.port = port
        self.rate = rate
        self.stopping = stopping
        self.line = LivingLine()
        self.generator: Child | None = None
        self.job: Child | None = None
        self.page: Child | None = None
        self.paused = False

    def set_up(self) -> None:
        for doing, words in (
            ("starting Kafka", ["broker", "start", "--port", str(self.port), "--data", str(HOME / "kafka")]),
            ("making topics", ["topics", "create", "visits", "--partitions", "2", "--bootstrap", self.bootstrap]),
            ("making topics", ["topics", "create", "browser-stats", "--bootstrap", self.bootstrap]),
        ):
            if self.stopping.asked:
                return
            self.line.show(f"demo: {doing} ...")
            self._call(words)
        if self.stopping.asked:
            return
        self.generator = _child("generator", self._generate_words())
        self._start_job()
        self.page = _child("page", ["ui", str(CHECKPOINT), "--allow-changes", "--wait"])
        self._wait_for_first_batch()

    def watch(self) -> None:
        """Until somebody stops the demo; a child that ends by itself is told of."""
        if self.stopping.asked:
            return
        self._say_what_runs()
        while not self.stopping.asked:
            self._wait_for_enter()
            self._look_after_children()

    def take_down(self) -> None:
        self.line.show("demo: stopping ...")
        children = [child for child in (self.job, self.generator, self.page) if child]
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.stop(patience_seconds=STOP_SECONDS)
        if (HOME / "kafka").is_dir():
            self._call(["broker", "stop", "--data", str(HOME / "kafka")])
        self.line.clear()

    def _generate_words(self) -> list[str]:
        faults = ["--late", "5%", "--duplicates", "1%", "--malformed", "2%"]
        return ["generate", "visits", "--to", f"kafka://{self.bootstrap}/visits", "--rate", f"{self.rate:g}", *faults]

    def _job_words(self) -> list[str]:
        source = f"kafka://{self.bootstrap}/visits?startingOffsets=earliest"
        places = ["--source", source, "--sink", f"kafka://{self.bootstrap}/browser-stats"]
        settings = ["--set", f"window={WINDOW}", "--set", f"watermark={WATERMARK}"]
        return ["run", JOB, *places, "--checkpoint", str(CHECKPOINT), "--trigger", TRIGGER, *settings]

    def _start_job(self) -> None:
        self.line.show(f"demo: starting {JOB} on Spark ...")
        self.job = _child("job", self._job_words())

    def _wait_for_first_batch(self) -> None:
        while not self.stopping.asked and not (any((CHECKPOINT / "commits").glob("[0-9]*")) and self._url()):
            self._look_after_children()
            time.sleep(POLL_SECONDS)

    def _url(self) -> str:
        assert self.page is not None
        return next((line for line in self.page.last_words().splitlines() if line.startswith("http")), "")

    def _call(self, words: list[str]) -> None:
        """Run one command to its end; what it says is shown only when it fails."""
        from headwater.cli.children import command_line

        done = subprocess.run(
            command_line(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode and not self.stopping.asked:
            raise JobFailed("demo-failed", f"`headwater {' '.join(words)}` failed", evidence={"it says": done.stderr})

    def _say_what_runs(self) -> None:
        self.line.clear()
        kafka = f"Kafka {self.bootstrap}, {self.rate:g} visits a second, some late or malformed"
        say(f"{JOB} is running ({kafka}; pid {self._pid_of_job()}).")
        say(f"Look:   {self._url()}")
        say(f"Try:    headwater state {CHECKPOINT}          headwater log {CHECKPOINT} --follow")
        how = "press Enter here to stop the job" if sys.stdin.isatty() else f"kill {self._pid_of_job()} to stop the job"
        say(f"Rewind: {how}, then: headwater rewind {CHECKPOINT} --to HEAD~5   (or on the page)")
        say("Ctrl-C ends it all.")

    def _pid_of_job(self) -> int:
        assert self.job is not None
        return self.job.pid

    def _wait_for_enter(self) -> None:
        if not sys.stdin.isatty():
            time.sleep(POLL_SECONDS)
            return
        ready, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if not ready:
            return
        if not sys.stdin.readline():
            self.stopping.asked = True
        elif self.paused:
            self._go_on()
        else:
            self._pause()

    def _pause(self) -> None:
        assert self.job is not None
        self.line.show("demo: ending the batch in hand ...")
        self.job.stop(patience_seconds=STOP_SECONDS)
        self._say_paused()

    def _say_paused(self) -> None:
        from shlex import join

        self.paused = True
        self.line.clear()
        say("The job is stopped; visits go on coming. Now:")
        say(f"  headwater rewind {CHECKPOINT} --to HEAD~5     (and headwater undo {CHECKPOINT})")
        go_on = "press Enter here" if sys.stdin.isatty() else f"headwater {join(self._job_words())}"
        say(f"  to go on: {go_on}")

    def _go_on(self) -> None:
        self._start_job()
        self.paused = False
        self.line.clear()
        say(f"The job goes on (pid {self._pid_of_job()}).")

    def _look_after_children(self) -> None:
        for child in (self.generator, self.page, self.job):
            if child is None or child.exit_status is None or (child is self.job and self.paused):
                continue
            if child is self.job and child.exit_status == 0:
                self._say_paused()
                return
            raise JobFailed(
                "demo-failed",
                f"the demo's {child.name} ended by itself, with exit status {child.exit_status}",
                evidence={"log": child.log, "it says": child.last_words()},
            )


def _child(name: str, words: list[str]) -> Child:
    from headwater.cli.children import Child

    return Child(name, words, record=RECORDS / f"{name}.json", log=HOME / "logs" / f"{name}.log")


@contextmanager
def _only_one_demo() -> Iterator[None]:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            pid = handle.read().strip()
            raise SetupProblem(
                "demo-running",
                "a demo already runs in this folder",
                evidence={"process": pid},
                remedy=f"kill {pid}   (or Ctrl-C where it runs)",
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _clean_up_after_the_last() -> None:
    """A demo that was killed may have left processes; its data goes in any case, so that each demo starts clean."""
    from headwater.cli.children import stop_leftovers
    from headwater.kafka import broker as local_broker

    left = stop_leftovers(RECORDS, patience_seconds=STOP_SECONDS)
    broker = local_broker.stop(HOME / "kafka")
    left += [broker] if broker else []
    if left:
        note(f"stopped what an earlier demo had left running: {', '.join(map(str, left))}")
    shutil.rmtree(HOME, ignore_errors=True)


def _free_port(wished: int) -> int:
    for port in (wished, 0):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise SetupProblem("no-port", "this machine has no free port")
