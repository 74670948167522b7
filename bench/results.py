"""Results with the machine that they were measured on: one JSON file per run, and ``latest`` for the documentation."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "results"
LATEST = FOLDER / "latest.json"
PAGE = HERE.parent / "docs" / "performance.md"
IMAGES = PAGE.parent / "images"


def run_with_conditions(workload: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a workload and return its result with the date, the machine, and the machine's load before and after."""
    date, before = datetime.now(UTC).isoformat(timespec="seconds"), _load_averages()
    found = workload()
    return {"date": date, "machine": describe_machine(), "load_before": before, "load_after": _load_averages(), **found}


def save_run(found: dict[str, dict[str, Any]]) -> Path:
    """Write the results of some workloads to a file of their own."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}-{'-'.join(found)}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    return file


def publish(found: dict[str, dict[str, Any]]) -> None:
    """Replace these workloads in ``latest.json``, which the documentation shows; keep the others."""
    LATEST.write_text(json.dumps({**load_latest(), **found}, indent=1, sort_keys=True) + "\n")


def load_latest() -> dict[str, dict[str, Any]]:
    return json.loads(LATEST.read_text()) if LATEST.exists() else {}


def publish_report(tables: dict[str, str], plots: dict[str, dict[str, str]]) -> None:
    """Write the tables to ``latest.md``, and the tables and plots between the markers of the documentation page."""
    sections = [f"## {name.replace('_', ' ').capitalize()}\n\n{table}" for name, table in tables.items()]
    (FOLDER / "latest.md").write_text("\n\n".join(sections) + "\n")
    page = PAGE.read_text()
    for name, table in tables.items():
        links = []
        for plot, svg in plots[name].items():
            (IMAGES / f"{plot}.svg").write_text(svg)
            links.append(f"![{_title(svg)}](images/{plot}.svg)")
        block = "\n\n".join([table, *links])
        page = _with_block(page, name, block)
    PAGE.write_text(page)


def _with_block(page: str, name: str, block: str) -> str:
    """Return the page with a block between the markers of a workload; refuse a page without them."""
    pattern = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    page, count = pattern.subn(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", page)
    if count != 1:
        raise SystemExit(
            f"bench: {PAGE.name} must have one section from <!-- bench {name} --> to <!-- end {name} -->, "
            f"and has {count}: the results are in {LATEST.name}; add the markers, then python -m bench --report"
        )
    return page


def _title(svg: str) -> str:
    found = re.search(r"<title>(.*?)</title>", svg)
    return found[1] if found else "plot"


def describe_machine() -> dict[str, Any]:
    """Return cores, memory and versions, without the name of the machine."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java_version(),
        "pyspark": version("pyspark"),
        "headwater": _headwater_version(),
    }


def _load_averages() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.machine()


def _java_version() -> str:
    printed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', printed)
    return found[1] if found else "unknown"


def _headwater_version() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{version('headwater')} {done.stdout.strip()}".strip()
