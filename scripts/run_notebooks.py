"""Run the notebooks of the documentation and store their output: ``python scripts/run_notebooks.py``.

With ``--check``, store nothing, and fail if a cell fails or its output is not the stored one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
TIMEOUT_SECONDS = 120
# The id of a change, the time at which it was made, and the address of an object.
VARIES = re.compile(r"\d{8}T\d{6}-\w+-[0-9a-f]{6}|(?<=\">)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|0x[0-9a-f]{6,}")


def run(path: Path) -> Any:
    """Return a notebook with the output of its cells. Raise ``CellExecutionError`` if one of them fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def outputs(notebook: Any) -> list[str]:
    """Return the output of each cell without what differs between runs."""
    return [
        VARIES.sub("...", "\n".join(str(sorted(output.get("data", output).items())) for output in cell.outputs))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main() -> int:
    status = 0
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        done = run(path)
        if "--check" not in sys.argv:
            nbformat.write(done, path)
            continue
        stored = nbformat.read(path, as_version=4)
        for number, (now, before) in enumerate(zip(outputs(done), outputs(stored), strict=True), 1):
            if now != before:
                sys.stderr.write(f"{path.name}, code cell {number}: stored\n{before}\nnow\n{now}\n")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
