"""Rebuild the corpus of one Spark: `.venv/bin/python -m tests.corpus_maker`, which takes about half an hour.

Runs every case of `catalogue.py` on the PySpark that this Python has, in one JVM, and writes
`tests/corpus/<name>.tar.xz`. Names, uuids and times of day differ from run to run; rows do not. `make corpus` does this
for all versions.

  --only NAME      one checkpoint (may be repeated; NAME may be a pattern such as 'kafka-*')
  --into FOLDER    where the archives go
  --answer         refresh Spark's answers in the existing archives without running a query

Other versions of Spark write a smaller set, with names that begin with their version. 3.4 and 3.5 have no state reader
and 4.0 none for checkpoint format 2: the current one answers for them, with `--answer`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .local_broker import local_broker
from .sources import KAFKA

TESTS = Path(__file__).resolve().parent.parent
CURRENT = (4, 2)
OTHERS = ((3, 4), (3, 5), (4, 0), (4, 1), (4, 3))


def main() -> int:
    asked = _arguments()
    chosen = [case for case in _known(asked.answer) if not asked.only or _matches(case.name, asked.only)]
    if not chosen:
        print("nothing to make")
        return 2
    with ExitStack() as held:
        with_kafka = not asked.answer and any(case.source == "kafka" for case in chosen)
        if with_kafka:
            os.environ[KAFKA] = held.enter_context(local_broker())
        # A real-time query runs the tasks of all its stages at the same time.
        cores = 8 if any(case.real_time for case in chosen) else 2
        spark = session(_kafka_connector() if with_kafka else {}, cores=cores)
        failed = [case.name for case in chosen if not _made(spark, case, asked)]
        spark.stop()
    print(f"{len(chosen) - len(failed)} made, {len(failed)} failed: {', '.join(failed)}")
    return 1 if failed else 0


def _known(answering: bool) -> list[Any]:
    import pyspark

    from .catalogue import cases, cases_of_other_versions

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if answering:
        return [*cases(), *(case for other in OTHERS for case in cases_of_other_versions(other))]
    return cases() if version == CURRENT else cases_of_other_versions(version)  # type: ignore[arg-type]


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _made(spark: Any, case: Any, asked: argparse.Namespace) -> bool:
    from .running import answer_again, make

    started, archive = time.monotonic(), asked.into / f"{case.name}.tar.xz"
    try:
        (answer_again if asked.answer else make)(spark, case, archive)
    except Exception as problem:
        print(f"{case.name}: {problem}", file=sys.stderr)
        return False
    print(f"{case.name}: {archive.stat().st_size:,} bytes, {time.monotonic() - started:.1f} s", flush=True)
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="corpus_maker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--into", type=Path, default=TESTS / "corpus", metavar="FOLDER")
    parser.add_argument("--answer", action="store_true")
    return parser.parse_args()


def session(settings: dict[str, str], cores: int = 2) -> Any:
    """Return a Spark session for many queries of a few rows each."""
    from pyspark.sql import SparkSession

    found_by_workers = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found_by_workers))
    os.environ["TZ"] = "UTC"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("corpus")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Thousands of jobs of a few rows each: compiling them costs more than running them.
        .config(
            "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        )
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", "/tmp/headwater-corpus/.warehouse")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _kafka_connector() -> dict[str, str]:
    from headwater.jars.resolve import jar_paths

    return {"spark.jars": ",".join(str(jar) for jar in jar_paths("spark"))}


if __name__ == "__main__":
    sys.exit(main())
