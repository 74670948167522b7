"""Samples of a running job: memory, and the size of its state and checkpoint."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measure import process_tree, resident_bytes

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """One sample."""

    second: float
    batch: int
    state_rows: int
    driver_megabytes: int
    page_megabytes: int
    checkpoint_files: int
    checkpoint_megabytes: float
    batch_on_page: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def resident_megabytes(root: int) -> int:
    """Return the resident size of a process and its descendants."""
    return resident_bytes(process_tree(root)) // MEGABYTE


def find_jvm(root: int) -> int | None:
    return next((pid for pid in process_tree(root) if _process_name(pid) == "java"), None)


def live_heap_megabytes(jvm: int) -> float | None:
    """Return the live heap after a full collection, or None if there is no jcmd, which is part of a JDK."""
    try:
        result = subprocess.run(["jcmd", str(jvm), "GC.class_histogram"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    found = re.search(r"^Total\s+\d+\s+(\d+)", result.stdout, re.MULTILINE)
    return round(int(found[1]) / MEGABYTE, 1) if found else None


def measure_folder(folder: Path) -> tuple[int, float]:
    """Return the number of files in a folder and their megabytes; files that vanish in the meantime are skipped."""
    count, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
            count += 1
    return count, round(size / MEGABYTE, 1)


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
