"""The page on scheduled batches: six problems, solved by commands that work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/retail-sales.md").read_text()
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def steps() -> list[tuple[str, list[str]]]:
    """Return each command of the page with the output that the page shows for it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


class Background:
    """Run a job while others try to start; stop it with Ctrl-C, as a user would."""

    def __init__(self, command: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("batch 0 "):
                return
        raise AssertionError("".join(said))

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        out, said = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, said
        return out


@pytest.mark.slow
def test_every_command_does_what_the_page_shows(tmp_path: Path) -> None:
    """The commands of the page, run in order in an empty folder, succeed and print the totals of the files."""
    running: Background | None = None
    seen = ""
    expected_of_it: list[str] = []
    for command, shown in steps():
        if '--trigger "15 minutes"' in command:
            running, expected_of_it = Background(command, tmp_path), shown
            continue
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        told = plain(done.stdout + done.stderr)
        assert done.returncode == (14 if running else 0), f"{command}\n{told}"
        seen += told
        for line in shown:
            assert plain(line).strip() in told, command
        if running:
            told = plain(running.stop())
            assert all(plain(line).strip() in told for line in expected_of_it)
            seen += told
            running = None
    # Summed up from the generated files by plain Python, before and after the rewind.
    for total in (2940118070, 2940218070, 2961708020, 2903647820, 2749547720):
        assert str(total) in seen
