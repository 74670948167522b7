"""The notebooks of the documentation run, and show what they show now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_every_cell_gives_the_stored_output() -> None:
    """Each cell runs without Spark, and its output is the one that the notebook shows."""
    assert NOTEBOOKS
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "run_notebooks.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + "run python scripts/run_notebooks.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_results_are_shown_as_html(path: Path) -> None:
    """Checkpoints, batches, states, changes, findings and plans have HTML output, without a path of the machine."""
    text = path.read_text("utf-8")
    assert not any(folder in text for folder in ("/tmp/", "/root/", "/home/"))
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    shown = ["".join(output["data"].get("text/html", "")) for cell in cells for output in cell["outputs"]]
    page = "".join(shown)
    for title in ("Checkpoint ", "Batch ", "State of ", "Changes of ", "History of ", "finding", "Rewind ", "Done: "):
        assert f"<b>{title}" in page or title == "finding", title
    assert "finding</b>" in page


def test_only_labeled_tables_are_shown_as_html(tmp_path: Path) -> None:
    """IPython shows a state as HTML, other tables as before, and a formatter that the user has chosen stays."""
    program = """
import io, sys, tarfile
import pyarrow as pa
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
html = shell.display_formatter.formatters["text/html"]
if sys.argv[3] == "own":
    html.for_type(pa.Table, lambda table: "<i>mine</i>")
tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="tar")
from headwater import Checkpoint
checkpoint = Checkpoint(f"{sys.argv[2]}/checkpoint")
print(*(str(html(table))[:9] for table in (checkpoint.state(), checkpoint.diff(0, 2), pa.table({"a": [1]}))))
"""
    archive = ROOT / "tests" / "corpus" / "aggregation-changelog.tar.xz"
    for own, expected in (("", "<div><p>< <div><p>< None"), ("own", "<i>mine</ <i>mine</ <i>mine</")):
        done = subprocess.run(
            [sys.executable, "-c", program, archive, tmp_path / (own or "none"), own],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        )
        assert done.stdout.splitlines()[-1:] == [expected], done.stderr
