"""``python -m bench``: run the workloads side by side, and write what they gave.

python -m bench                         everything at full size: hours on two cores
python -m bench --workload A --records 500000 --rounds 1 --only headwater,tutorial
python -m bench --report                the tables and plots of the last runs, written anew
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine, results

WORK = Path(__file__).parent / ".work"
WORKLOADS = ("A", "B", "C", "D", "E", "settings")
WITHOUT_KAFKA = {"D"}


def options() -> argparse.Namespace:
    asked = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    asked.add_argument("--only", default="", help="contenders by slug, with commas; a slug also takes in slug-...")
    asked.add_argument("--rounds", type=int, default=3, help="how often each contender runs, in turns")
    asked.add_argument(
        "--records", type=int, default=5_000_000, help="A: visits in the topic (settings: two fifths of them)"
    )
    asked.add_argument("--rate", type=int, default=1000, help="B: visits a second")
    asked.add_argument("--seconds", type=float, default=60, help="B: length of the measured time")
    asked.add_argument("--purchases", type=int, default=1_000_000, help="C: purchases in the topic")
    asked.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000], help="D: sizes of the state")
    asked.add_argument("--first-records", type=int, default=250_000, help="E: the smallest input, then times 4 and 16")
    asked.add_argument("--first-keys", type=int, default=10_000, help="E: the smallest state, then times 10 and 100")
    asked.add_argument(
        "--publish", action="store_true", help="put a smaller run into latest.* and the documentation too"
    )
    asked.add_argument("--report", action="store_true", help="run nothing; write tables and plots of the last runs")
    chosen = asked.parse_args()
    sizes = ("only", "rounds", "records", "rate", "seconds", "purchases", "keys", "first_records", "first_keys")
    chosen.publish |= all(getattr(chosen, name) == asked.get_default(name) for name in sizes)
    return chosen


def main() -> int:
    asked = options()
    WORK.mkdir(exist_ok=True)
    lock = (WORK / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("bench: another one is running; two at once would measure each other")
    # Whoever stops the bench wants its broker and its contenders stopped too, which the blocks around them see to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))
    found = results.latest() if asked.report else run_workloads(asked)
    reports = _reports()
    if asked.publish or asked.report:
        results.publish(found)
        newest = results.latest()
        tables = {name: reports[name].table(newest[name]) for name in WORKLOADS if name in newest}
        results.save_report(tables, {name: reports[name].plots(newest[name]) for name in tables})
    if not asked.report:
        print("\n\n".join(reports[name].table(found[name]) for name in found))
    print("bench: " + "; ".join(reports[name].summary(found[name]) for name in found))
    return 0


def run_workloads(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Each workload is saved as it ends, so that a later one that is broken off costs nothing."""
    from bench import settings, workload_a, workload_b, workload_c, workload_d, workload_e
    from bench.broker import local_broker

    only = [name for name in asked.only.split(",") if name]
    often: dict[str, Any] = {"rounds": asked.rounds, "only": only}
    course = workload_b.Course(asked.rate, asked.seconds)
    growth = {"first_records": asked.first_records, "first_keys": asked.first_keys}
    with local_broker(WORK / "kafka") if set(asked.workload) - WITHOUT_KAFKA else nullcontext("") as bootstrap:
        workloads: dict[str, Callable[[], dict[str, Any]]] = {
            "A": lambda: workload_a.run(bootstrap, WORK, records=asked.records, **often),
            "B": lambda: workload_b.run(bootstrap, WORK, course=course, **often),
            "C": lambda: workload_c.run(bootstrap, WORK, purchases=asked.purchases, **often),
            "D": lambda: workload_d.run(WORK, keys=asked.keys, **often),
            "E": lambda: workload_e.run(bootstrap, WORK, **growth, **often),
            "settings": lambda: settings.run(bootstrap, WORK, records=asked.records * 2 // 5, **often),
        }
        found: dict[str, dict[str, Any]] = {}
        for name in asked.workload:
            found[name] = described(workloads[name])
            results.save({name: found[name]})
        return found


def described(workload: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A workload's result with its date, its machine and how busy that was."""
    date, before = datetime.now(UTC).isoformat(timespec="seconds"), machine.load()
    found = workload()
    return {"date": date, "machine": machine.facts(), "load_before": before, "load_after": machine.load(), **found}


def _reports() -> dict[str, Any]:
    from bench import report_a, report_b, report_c, report_d, report_e, settings

    return {"A": report_a, "B": report_b, "C": report_c, "D": report_d, "E": report_e, "settings": settings}


if __name__ == "__main__":
    sys.exit(main())
