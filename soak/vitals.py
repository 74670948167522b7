"""What a running job uses and leaves behind, looked at from outside, again and again."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measure import resident_bytes, tree

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Vitals:
    """One look."""

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
    """Of a process and all below it."""
    return resident_bytes(tree(root)) // MEGABYTE


def jvm_below(root: int) -> int | None:
    return next((pid for pid in tree(root) if _name(pid) == "java"), None)


def live_heap_megabytes(jvm: int) -> float | None:
    """What is left of the heap after a full collection; None without a JDK's jcmd."""
    try:
        told = subprocess.run(["jcmd", str(jvm), "GC.class_histogram"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    found = re.search(r"^Total\s+\d+\s+(\d+)", told.stdout, re.MULTILINE)
    return round(int(found[1]) / MEGABYTE, 1) if found else None


def size_of(folder: Path) -> tuple[int, float]:
    """Files, and megabytes in them. Files come and go meanwhile."""
    count, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
            count += 1
    return count, round(size / MEGABYTE, 1)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
