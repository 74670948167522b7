"""Rebuild the corpus with every version of Spark, each in an environment of its own: `make corpus`, an hour or two.

  make corpus                                    all versions
  make corpus VERSION=4.3                        one of them, or several: VERSION="3.5 4.3"
  make corpus VERSION=4.2 CORPUS_ARGS="--only 'kafka-*'"

The environments are those of `make matrix`, in the user's cache folder. 4.2 is that of the development environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from headwater.jars.resolve import cache_folder

from ..matrix.environments import NoEnvironment, environment
from .__main__ import CURRENT, OTHERS, TESTS

VERSIONS = tuple(".".join(map(str, version)) for version in sorted((*OTHERS, CURRENT)))
# What a version writes and cannot read by itself: the current one answers for it.
ANSWERED_BY_CURRENT = {"3.4": "spark3.4-*", "3.5": "spark3.5-*", "4.0": "spark4.0-aggregation-format2"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="*", metavar="VERSION", help="3.4, 3.5, …; all by default")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="one checkpoint, or a pattern")
    folder = os.environ.get("MATRIX_FOLDER") or cache_folder() / "matrix"
    parser.add_argument("--folder", type=Path, default=folder, help="where the environments are (%(default)s)")
    asked = parser.parse_args()
    unknown = set(asked.version) - set(VERSIONS)
    if unknown:
        parser.error(f"unknown version {', '.join(sorted(unknown))}: there are {', '.join(VERSIONS)}")
    chosen = [word for name in asked.only for word in ("--only", name)]
    return max(_make(version, asked.folder, chosen) for version in asked.version or VERSIONS)


def _make(version: str, folder: Path, chosen: list[str]) -> int:
    """Run the maker with a version of Spark; return its exit status."""
    current = Path(sys.executable)
    try:
        of_current = version == ".".join(map(str, CURRENT))
        python = current if of_current else environment(folder.absolute(), version, print)
    except NoEnvironment as problem:
        print(f"cannot install PySpark {version}\n{problem}")
        return 1
    print(f"Spark {version}", flush=True)
    status = _run(python, chosen)
    answered = ANSWERED_BY_CURRENT.get(version)
    return status or (_run(current, ["--answer", "--only", answered]) if answered else 0)


def _run(python: Path, arguments: list[str]) -> int:
    root = TESTS.parent
    paths = os.pathsep.join([str(root / "src"), str(TESTS)])
    command = [str(python), "-m", "tests.corpus_maker", *arguments]
    return subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
