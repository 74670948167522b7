"""A virtual environment for each PySpark: its own PySpark, and all other packages of the environment that creates it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

READY = "ready"
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

    ``report`` receives a message before something that takes long. An interrupted creation leaves nothing behind.
    """
    home = folder / f"pyspark-{version}"
    python = home / "bin" / "python"
    if not (home / READY).exists():
        report(f"installing PySpark {version} into {home} (once, a few minutes)")
        try:
            _create(home, python, version)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    return python


def _create(home: Path, python: Path, version: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = [f"pyspark=={version}.*", *OF_THEIR_TIME.get(version, ())]
    done = subprocess.run([*install, *packages], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoEnvironment("\n".join((done.stderr or done.stdout).strip().splitlines()[-3:]))
    # Last on its path: what pip has just installed comes first.
    own = next(home.glob("lib/python3*/site-packages"))
    (own / "zz_other_packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    command = home / "bin" / "headwater"
    command.write_text(COMMAND.format(python=python))
    command.chmod(0o755)
    (home / READY).touch()


def pyspark_version(python: Path) -> str:
    """Return the complete version of an environment's PySpark."""
    command = [str(python), "-c", "import importlib.metadata as m; print(m.version('pyspark'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
