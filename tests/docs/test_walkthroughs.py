"""The pages with a walkthrough: their records are the golden ones, and their commands do what the pages show."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker_support import free_port

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "jobs"))

from golden import golden  # noqa: E402

BLOCK = re.compile(r"```(sh|console|text)\n(.*?)```", re.DOTALL)
HEREDOC = re.compile(r"cat > (\S+) <<'LINES'\n(.*?)\nLINES\n", re.DOTALL)
TABLE = re.compile(r"Batch: (\d+)\n(.*?)(?=\nBatch: |\Z)", re.DOTALL)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Command(NamedTuple):
    """A command of a page, and the output that the page shows for it."""

    text: str
    shown: str


def section(page: str, title: str | None = None) -> str:
    """Return a page, or one section of it."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return text if title is None else text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a text in order: a block of ``sh`` is one command, a block of ``console`` has several."""
    blocks = BLOCK.findall(text)
    for (kind, block), (next_kind, next_block) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            yield Command(block, next_block if next_kind == "text" else "")
        elif kind == "console":
            for part in block.split("$ ")[1:] if block.startswith("$ ") else []:
                command, _, shown = part.partition("\n")
                yield Command(command, shown)


def plain(line: str) -> str:
    """Return a line without what differs between runs: spaces, process ids, ports, folders, times and durations."""
    line = re.sub(r"committed +\S+ \S+ +[\d.]+ m?s", "committed", line)
    line = re.sub(r"\d+ d( \d+ h)?\b|pid \d+|127\.0\.0\.1:\d+|file:\S+(?=/data/)", "", line)
    return re.sub(r"[\s─]+", " ", line).strip()


def lines(text: str) -> set[str]:
    return {plain(line) for line in text.splitlines()} - {""}


def tables(text: str) -> dict[str, set[str]]:
    """Return the rows that each batch printed to the console."""
    return {
        number: {plain(line) for line in table.splitlines() if line.startswith("|") and not re.match(r"\|[a-z]", line)}
        for number, table in TABLE.findall(re.sub(r"(?m)^[-+]+\n?", "", text))
    }


def with_rows(printed: dict[str, set[str]]) -> dict[str, set[str]]:
    return {number: rows for number, rows in printed.items() if rows}


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class RunningJob:
    """A job in the first terminal, stopped with Ctrl-C."""

    def __init__(self, command: str, folder: Path) -> None:
        self.printed, self.progress = folder / "printed", folder / "progress"
        with self.printed.open("w") as out, self.progress.open("w") as err:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=folder, env=ENVIRONMENT, stdout=out, stderr=err
            )

    def wait_for(self, batch: int) -> None:
        deadline = time.monotonic() + 120
        while not re.search(rf"(?m)^batch {batch} .*\n", self.progress.read_text()):
            assert self.process.poll() is None, self.progress.read_text()
            assert time.monotonic() < deadline, f"batch {batch} did not run\n{self.progress.read_text()}"
            time.sleep(0.1)

    def stop(self) -> dict[str, set[str]]:
        """Stop the job and return what it printed."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=120) == 0, self.progress.read_text()
        return tables(self.printed.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize(
    ("page", "name"),
    [("how-to/rewind.md", "visits_windows_counter"), ("gallery/browser-stats-stateful.md", "browser_stats_stateful")],
)
def test_the_records_are_the_golden_ones(page: str, name: str) -> None:
    """A reader who follows the page sends exactly the records of the golden file, in the same groups."""
    groups = [records.splitlines() for _, records in HEREDOC.findall(section(page))]
    assert groups == [step["send"] for step in golden(name)["steps"]]


@pytest.mark.slow
def test_rewind(tmp_path: Path) -> None:
    """The commands of the how-to guide run the job, rewind it, and emit the same rows again."""
    page = section("how-to/rewind.md").partition("## Rewind in production")[0]
    address = f"127.0.0.1:{free_port()}"
    # The guide uses the default port, on which another broker may be running.
    options = {
        "headwater broker start": f"--port {address.partition(':')[2]}",
        "headwater topics": f"--bootstrap {address}",
        "headwater produce": f"--bootstrap {address}",
        "headwater run": f"--source kafka://{address}/visits",
    }
    first_output = next(block for kind, block in BLOCK.findall(page) if kind == "text")
    job: RunningJob | None = None
    broker_runs = False
    expected: dict[str, set[str]] = {}
    try:
        for command, shown in commands(page):
            added = next((option for name, option in options.items() if command.startswith(name)), "")
            arguments, redirect, file = command.partition(" < ")
            adapted = f"{arguments} {added}{redirect}{file}" if added else command
            if command.startswith("headwater run"):
                job, expected = RunningJob(adapted, tmp_path), tables(shown or first_output)
                continue
            group = re.search(r"< group-(\d)\.json", command)
            if group:
                assert job is not None
                job.wait_for(2 * int(group[1]) - 2)
            elif job is not None:
                job.wait_for(6)
                printed, job = job.stop(), None
                assert with_rows(printed) == with_rows(expected)
            broker_runs = command == "headwater broker start" or (broker_runs and command != "headwater broker stop")
            assert lines(shown) <= lines(run(adapted, tmp_path)), command
    finally:
        if job is not None:
            job.kill()
        if broker_runs:
            run("headwater broker stop", tmp_path)


@pytest.mark.slow
def test_browser_statistics(tmp_path: Path) -> None:
    """The six steps of the gallery page print what the page shows, and the two late visits are reported."""
    job: RunningJob | None = None
    expected: dict[str, set[str]] = {}
    try:
        page = section("gallery/browser-stats-stateful.md").partition("## Run it on Kafka")[0]
        for command, shown in commands(page):
            if command.startswith("headwater run"):
                job = RunningJob(command, tmp_path)
            elif command.startswith("mv "):
                assert job is not None
                run(command, tmp_path)
                expected |= tables(shown)
                job.wait_for(max(map(int, tables(shown))))
            else:
                if job is not None:
                    assert job.stop() == expected
                    job = None
                assert lines(shown) <= lines(run(command, tmp_path)), command
        assert sorted(map(int, expected)) == list(range(9))
    finally:
        if job is not None:
            job.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("concepts/event-time.md", "Triggers and event time"),
        ("concepts/sources-and-sinks.md", "Chain jobs through a table"),
        ("gallery/enriched-sales.md", "Run the job"),
    ],
)
def test_examples(page: str, title: str, tmp_path: Path) -> None:
    """Each command of the section prints the lines that the page shows."""
    for command, shown in commands(section(page, title)):
        output = run(command, tmp_path)
        for line in lines(shown):
            assert any(printed.startswith(line) for printed in lines(output)), f"{command}\n{line}\n{output}"
