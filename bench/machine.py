"""What the measurements were made on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Cores, memory and versions; no names of the machine."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "pyspark": version("pyspark"),
        "headwater": _commit(),
    }


def load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.machine()


def _java() -> str:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', told)
    return found[1] if found else "unknown"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{version('headwater')} {done.stdout.strip()}".strip()
