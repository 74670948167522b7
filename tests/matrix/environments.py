"""A virtual environment for each PySpark: its own PySpark, and all other packages of the environment that creates it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

READY = "ready.json"
# PySpark 3 is older than the current pandas and NumPy: with them, applyInPandasWithState fails in its workers.
OF_THEIR_TIME = dict.fromkeys(("3.4", "3.5"), ("numpy<2", "pandas<2.3", "pyarrow<20"))
COMMAND = """#!{python}
import sys
from headwater.cli.main import main
sys.exit(main())
"""


class NoEnvironment(Exception):
    """pip could not install a PySpark; the message has its last lines."""


def environment(folder: Path, version: str, report: Callable[[str], None]) -> Path:
    """Return the Python of the environment with the newest patch of a PySpark version; create it on first use.

    It is created again if it was made with other requirements, or for another Python or environment than this one.
    ``report`` receives a message before something that takes long. An interrupted creation leaves nothing behind.
    """
    home = folder / f"pyspark-{version}"
    python = home / "bin" / "python"
    recipe = {
        "packages": [f"pyspark=={version}.*", *OF_THEIR_TIME.get(version, ())],
        "python": sys.version,
        "others": str(Path(sysconfig.get_path("purelib")).resolve()),
    }
    if not _made_by(home, recipe):
        report(f"installing PySpark {version} into {home} (once, a few minutes)")
        try:
            _create(home, python, recipe)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    return python


def _made_by(home: Path, recipe: dict[str, Any]) -> bool:
    try:
        return bool(json.loads((home / READY).read_text("utf-8")) == recipe)
    except (FileNotFoundError, ValueError):
        return False


def _create(home: Path, python: Path, recipe: dict[str, Any]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, *recipe["packages"]], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoEnvironment("\n".join((done.stderr or done.stdout).strip().splitlines()[-3:]))
    # Last on its path: what pip has just installed comes first.
    own = next(home.glob("lib/python3*/site-packages"))
    (own / "zz_other_packages.pth").write_text(f"{recipe['others']}\n")
    command = home / "bin" / "headwater"
    command.write_text(COMMAND.format(python=python))
    command.chmod(0o755)
    (home / READY).write_text(json.dumps(recipe), "utf-8")


def pyspark_version(python: Path) -> str:
    """Return the complete version of an environment's PySpark."""
    command = [str(python), "-c", "import importlib.metadata as m; print(m.version('pyspark'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
