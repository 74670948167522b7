"""The commands and code of the README work as shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.one_process import run_all
from cli.running import Ran

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
# Not run here: covered by other tests, or left to the reader.
NOT_HERE = ("make demo", "make test")


def commands() -> list[str]:
    lines = [line for kind, text in BLOCK.findall(README) if kind == "console" for line in text.splitlines()]
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README shows."""
    folder = tmp_path_factory.mktemp("readme")
    for kind, text in BLOCK.findall(README):
        name = re.match(r"# (\w+\.py)\n", text)
        if kind == "python" and name:
            (folder / name[1]).write_text(text)
    return folder


def run(command: str, place: Path) -> Ran:
    """Run a command of the README: one of Headwater in the process that runs those of other tests."""
    program, *arguments = shlex.split(command)
    if program == "headwater":
        return run_all(place, arguments)[0]
    bins = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_every_command_works(place: Path) -> None:
    """The commands of the README, run in order in one folder, succeed and print what the README shows."""
    seen = []
    for command in commands():
        if command.startswith(NOT_HERE):
            continue
        done = run(command, place)
        assert done.status == 0, f"{command}\n{done.out}\n{done.err}"
        assert "Traceback" not in done.err, command
        seen.append(done.out + done.err)
    text = "\n".join(seen)
    for promised in (
        "next batch  4, with its recorded offsets",
        "3 in the sink's log, 3 of the sink's data",
        "2024-10-06T10:00:19.930Z",
        "done: the rewind was undone",
        "clicks: ready to run in append mode, kafka to files",
        "1880 visits after batch 3",
        "│ Chrome  ┆ 1183  │",
        "1 passed",
    ):
        assert promised in text
        assert promised in README or promised == "1 passed"


def test_links_lead_somewhere() -> None:
    """Every relative link and picture of the README exists."""
    for target in re.findall(r"""(?:\]\(|src=")([^)"#]+)[)"]""", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
