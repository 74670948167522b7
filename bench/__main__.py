"""``python -m bench``: run the workloads, side by side, and write what they gave.

python -m bench                                                    everything, at full size (hours on two cores)
python -m bench --workload A --records 500000 --rounds 1 --only headwater,tutorial
python -m bench --report                                           write the tables and plots of the last runs anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine, report_a, report_b, results, workload_a, workload_b
from bench.broker import local_broker

WORK = Path(__file__).parent / ".work"
REPORTS: dict[str, Any] = {"A": report_a, "B": report_b}


def options() -> argparse.Namespace:
    asked = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--workload", nargs="+", choices=list(REPORTS), default=list(REPORTS))
    asked.add_argument("--only", default="", help="contenders by slug, with commas; a slug also takes in slug-...")
    asked.add_argument("--rounds", type=int, default=3, help="how often each contender runs, in turns")
    asked.add_argument("--records", type=int, default=5_000_000, help="A: visits in the topic")
    asked.add_argument("--rate", type=int, default=1000, help="B: visits a second")
    asked.add_argument("--seconds", type=float, default=60, help="B: length of the measured time")
    asked.add_argument("--report", action="store_true", help="run nothing; write tables and plots of the last runs")
    return asked.parse_args()


def main() -> int:
    asked = options()
    if not asked.report:
        only = [name for name in asked.only.split(",") if name]
        with local_broker(WORK / "kafka") as bootstrap:
            workloads: dict[str, Callable[[], dict[str, Any]]] = {
                "A": lambda: workload_a.run(bootstrap, WORK, records=asked.records, rounds=asked.rounds, only=only),
                "B": lambda: workload_b.run(
                    bootstrap, WORK, course=workload_b.Course(asked.rate, asked.seconds), rounds=asked.rounds, only=only
                ),
            }
            for name in asked.workload:
                results.save({name: _described(workloads[name])})
    found = results.latest()
    tables = {name: REPORTS[name].table(found[name]) for name in REPORTS if name in found}
    plots = {file: picture for name in tables for file, picture in REPORTS[name].plots(found[name]).items()}
    results.save_report(tables, plots)
    if not asked.report:
        print("\n\n".join(tables[name] for name in asked.workload))
    print("bench: " + "; ".join(REPORTS[name].summary(found[name]) for name in tables))
    return 0


def _described(workload: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    date, before = datetime.now(UTC).isoformat(timespec="seconds"), machine.load()
    found = workload()
    return {"date": date, "machine": machine.facts(), "load_before": before, "load_after": machine.load(), **found}


if __name__ == "__main__":
    sys.exit(main())
