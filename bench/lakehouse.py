"""Tables: a stateful job into Delta and Iceberg next to plain PySpark, and a rewind of table and checkpoint.

    python -m bench --workload lakehouse [--table-records 20000] [--delta-batches 500] [--rounds 3] [--only delta,iceberg,rewind]

Iceberg has no release for the PySpark of the other benchmarks, so it runs in an environment of its own. The rewind is a
cold process. It is compared with what people do without it: delete the checkpoint and the table, and process everything
again.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.broker import HEADWATER
from bench.environments import PeerUnavailable, spark_python
from bench.table_throughput import BATCHES, Target, bench_session, measure, put_files, totals_job
from bench.tables import describe_conditions, format_number, last_line, markdown_table, wrap
from headwater.jobs.job import Job
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.spark.session import stop_session

SMALL_RECORDS = 500
ROOT = Path(__file__).parents[1]
ICEBERG_SPARK = "4.1"
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def run(work: Path, *, records: int, batches: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Measure all parts, or with ``only`` some of delta, iceberg and rewind."""
    folder = work / "lakehouse"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found: dict[str, Any] = {"records": records, "batches": BATCHES, "rounds": rounds, "tables": {}}
    try:
        if not only or {"delta", "rewind"} & set(only):
            spark = bench_session(folder, "delta")
            try:
                if not only or "delta" in only:
                    speeds = measure(spark, folder / "delta", "delta", records=records, rounds=rounds)
                    found["tables"]["delta"] = {"pyspark": spark.version, "throughput": speeds}
                if not only or "rewind" in only:
                    found["rewind"] = _rewind(spark, folder / "rewind", batches)
            finally:
                stop_session(spark)
        if not only or "iceberg" in only:
            found["tables"]["iceberg"] = _in_iceberg_environment(folder / "iceberg", records, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _in_iceberg_environment(folder: Path, records: int, rounds: int) -> dict[str, Any]:
    """Measure Iceberg in its environment; return why not if that cannot be installed."""
    folder.mkdir(parents=True)
    result = folder / "result.json"
    try:
        python = spark_python(ICEBERG_SPARK)
    except PeerUnavailable as problem:
        return {"unavailable": last_line(str(problem))}
    program = [python, "-m", "bench.table_throughput"]
    command = [*program, "iceberg", str(records), str(rounds), str(folder / "run"), str(result)]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, "TZ": "UTC"})
    return dict(json.loads(result.read_text()))


def _rewind(spark: Any, folder: Path, batches: int) -> dict[str, float]:
    """Rewind the newer half of a stream's batches, undo it, rewind again and run them again."""
    from headwater.spark.internals.state_stores import unload_state_stores

    target = Target(folder, "delta", "append")
    inbox = put_files(folder / "inbox", 2 * batches, SMALL_RECORDS)
    # Spark would otherwise retain the state of the last hundred batches only.
    job = replace(totals_job(inbox, target), conf={RETAINED: str(2 * batches + 10)})
    checkpoint = folder / "checkpoint"
    found: dict[str, float] = {"batches": batches, "from_scratch": _run_all(spark, job, checkpoint)}
    before = _sorted_rows(spark, target)
    unload_state_stores(spark)  # their maintenance would change files while the rewind plans
    for name, arguments in (
        ("rewind", ("rewind", str(checkpoint), "--to", str(batches - 1), "--yes")),
        ("undo", ("undo", str(checkpoint), "--yes")),
        ("rewind_again", ("rewind", str(checkpoint), "--to", str(batches - 1), "--yes")),
    ):
        started = time.perf_counter()
        command = [HEADWATER, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC"})
        found[name] = time.perf_counter() - started
        rows = _sorted_rows(spark, target)
        assert (rows == before) == (name == "undo"), f"{name} left the table with {len(rows)} of {len(before)} rows"
    unload_state_stores(spark)
    found["run_again"] = _run_all(spark, job, checkpoint)
    assert _sorted_rows(spark, target) == before, "the table differs from that of the first run"
    return found


def _run_all(spark: Any, job: Job, checkpoint: Path) -> float:
    started = time.perf_counter()
    run_job(spark, Run(job, job.name, str(checkpoint)), stop=threading.Event())
    return time.perf_counter() - started


def _sorted_rows(spark: Any, target: Target) -> list[str]:
    return sorted(map(str, target.rows(spark)))


def format_table(result: dict[str, Any]) -> str:
    parts = []
    if result["tables"]:
        title = (
            f"Totals per store and window from files into a table, records a second in batches of "
            f"{result['records']:,}: plain PySpark with Headwater's settings, and Headwater. The ratio is the median of "
            f"the rounds; every table was compared with the totals of its input."
        )
        head = ("into the table", "PySpark", "Headwater", "ratio")
        parts += [wrap(title), markdown_table(head, [row for item in result["tables"].items() for row in _rows(*item)])]
    if "rewind" in result:
        times = result["rewind"]
        count = int(times["batches"])
        rows = [
            (f"rewind of {count:,} batches, table and checkpoint", f"{times['rewind']:.1f}"),
            ("undo of that rewind", f"{times['undo']:.1f}"),
            (f"rewind, and {count:,} batches again", f"{times['rewind_again'] + times['run_again']:.1f}"),
            (f"delete both, and {2 * count:,} batches again", f"{times['from_scratch']:.1f}"),
        ]
        parts.append(markdown_table(("after a bad deployment", "seconds"), rows))
    return "\n\n".join([*parts, describe_conditions(result)])


def _rows(name: str, found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the rows of a table format, one for each kind of write."""
    if "unavailable" in found:
        return [(f"{name.capitalize()}: {found['unavailable']}", "", "", "")]
    rows = []
    for kind, speeds in found["throughput"].items():
        plain, ours = (format_number(statistics.median(speeds[side])) for side in ("pyspark", "headwater"))
        title = f"{name.capitalize()}, {kind} (PySpark {found['pyspark']})"
        rows.append((title, plain, ours, f"{_ratio(speeds):.2f}"))
    return rows


def _ratio(speeds: dict[str, list[float]]) -> float:
    """Return the median of the rounds' ratios: both contenders of a round ran next to each other."""
    return statistics.median(ours / plain for plain, ours in zip(speeds["pyspark"], speeds["headwater"], strict=True))


def summarize(result: dict[str, Any]) -> str:
    said = []
    for name, found in result["tables"].items():
        for kind, speeds in found.get("throughput", {}).items():
            said.append(f"{name.capitalize()} {kind} {_ratio(speeds):.2f} of PySpark")
    if "rewind" in result:
        said.append(f"rewind over {int(result['rewind']['batches']):,} batches {result['rewind']['rewind']:.1f} s")
    return f"lakehouse: {', '.join(said)}"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  the interface of a workload
    return {}
