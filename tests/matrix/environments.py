"""A virtual environment for each PySpark: its own PySpark, and all other packages of the environment that creates it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

READY = "ready"


def environment(folder: Path, version: str) -> Path:
    """Return the Python of the environment with the newest patch of a PySpark version; create it on first use."""
    home = folder / f"pyspark-{version}"
    python = home / "bin" / "python"
    if not (home / READY).exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}.*"],
            check=True,
        )
        # Last on its path: what pip has just installed comes first.
        own = next(home.glob("lib/python3*/site-packages"))
        (own / "zz_other_packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        (home / READY).touch()
    return python


def pyspark_version(python: Path) -> str:
    """Return the complete version of an environment's PySpark."""
    command = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
