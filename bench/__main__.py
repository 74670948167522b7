"""Run the benchmarks side by side and write their results.

python -m bench                          run every workload at full size: about three hours on two cores
python -m bench --workload throughput --records 500000 --rounds 1 --only headwater,tutorial
python -m bench --report                 rewrite the tables and plots from the published results
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench import results

WORK = Path(__file__).parent / ".work"
WORKLOADS = (
    "throughput",
    "latency",
    "custom_state",
    "time_machine",
    "growth",
    "settings",
    "lakehouse",
    "restore_points",
    "changes",
)
WITHOUT_KAFKA = {"time_machine", "lakehouse", "restore_points"}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="NAME",
        help=f"workloads to run: {', '.join(WORKLOADS)} (default: all)",
    )
    parser.add_argument(
        "--only", default="", help="contenders to run, separated by commas; a name also selects NAME-..."
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contender (default: %(default)s)")
    parser.add_argument(
        "--records",
        type=int,
        default=5_000_000,
        help="throughput: visits in the topic (default: %(default)s; settings uses two fifths of it)",
    )
    parser.add_argument("--rate", type=int, default=1000, help="latency: visits a second (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60, help="latency: measured time, after the warm-up (default: %(default)s)"
    )
    parser.add_argument(
        "--purchases", type=int, default=1_000_000, help="custom_state: purchases in the topic (default: %(default)s)"
    )
    parser.add_argument(
        "--keys",
        type=int,
        nargs="+",
        default=[10_000, 1_000_000],
        help="time_machine: keys in the state (default: 10000 1000000)",
    )
    parser.add_argument(
        "--large-keys",
        type=int,
        default=10_000_000,
        help="time_machine: keys in the large state of every store; 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--first-records",
        type=int,
        default=250_000,
        help="growth: smallest input; 4 and 16 times as much follow (default: %(default)s)",
    )
    parser.add_argument(
        "--first-keys",
        type=int,
        default=10_000,
        help="growth: smallest state; 10 and 100 times as much follow (default: %(default)s)",
    )
    parser.add_argument(
        "--delta-batches",
        type=int,
        default=500,
        help="lakehouse: batches that a rewind undoes, of twice as many (default: %(default)s)",
    )
    parser.add_argument(
        "--table-records", type=int, default=20_000, help="lakehouse: records of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--points", type=int, default=1_000, help="restore_points: points of one checkpoint (default: %(default)s)"
    )
    parser.add_argument(
        "--publish", action="store_true", help="publish a run that is not full size in latest.* and the documentation"
    )
    parser.add_argument("--report", action="store_true", help="run nothing; rewrite the tables and plots")
    options = parser.parse_args()
    sizes = ("only", "rounds", "records", "rate", "seconds", "purchases", "keys", "first_records", "first_keys")
    sizes += ("delta_batches", "table_records", "points")
    options.publish |= all(getattr(options, name) == parser.get_default(name) for name in sizes)
    return options


def main() -> int:
    options = parse_options()
    WORK.mkdir(exist_ok=True)
    lock = (WORK / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("bench: another benchmark is running; two at once would distort each other's results")
    # SystemExit unwinds the with blocks that stop the broker and the contenders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))
    found = results.load_latest() if options.report else run_workloads(options)
    modules = _load_workloads()
    if options.publish or options.report:
        results.publish(found)
        newest = results.load_latest()
        tables = {name: modules[name].format_table(newest[name]) for name in WORKLOADS if name in newest}
        results.publish_report(tables, {name: modules[name].draw_plots(newest[name]) for name in tables})
    if not options.report:
        print("\n\n".join(modules[name].format_table(found[name]) for name in found))
    print("bench: " + "; ".join(modules[name].summarize(found[name]) for name in WORKLOADS if name in found))
    return 0


def run_workloads(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run the chosen workloads; each result is saved when its workload ends, so that a later failure does not lose it."""
    from bench.broker import local_broker
    from bench.latency import Load

    run = {name: module.run for name, module in _load_workloads().items()}
    only = [name for name in options.only.split(",") if name]
    repeat: dict[str, Any] = {"rounds": options.rounds, "only": only}
    load = Load(options.rate, options.seconds)
    sizes = {"first_records": options.first_records, "first_keys": options.first_keys}
    with local_broker(WORK / "kafka") if set(options.workload) - WITHOUT_KAFKA else nullcontext("") as bootstrap:
        workloads: dict[str, Callable[[], dict[str, Any]]] = {
            "throughput": lambda: run["throughput"](bootstrap, WORK, records=options.records, **repeat),
            "latency": lambda: run["latency"](bootstrap, WORK, load=load, **repeat),
            "custom_state": lambda: run["custom_state"](bootstrap, WORK, purchases=options.purchases, **repeat),
            "time_machine": lambda: run["time_machine"](WORK, keys=options.keys, large=options.large_keys, **repeat),
            "growth": lambda: run["growth"](bootstrap, WORK, **sizes, **repeat),
            "settings": lambda: run["settings"](bootstrap, WORK, records=options.records * 2 // 5, **repeat),
            "lakehouse": lambda: run["lakehouse"](
                WORK, records=options.table_records, batches=options.delta_batches, **repeat
            ),
            "restore_points": lambda: run["restore_points"](
                WORK, keys=max(options.keys), points=options.points, **repeat
            ),
            "changes": lambda: run["changes"](bootstrap, WORK, keys=max(options.keys), **repeat),
        }
        found: dict[str, dict[str, Any]] = {}
        for name in options.workload:
            found[name] = results.run_with_conditions(workloads[name])
            results.save_run({name: found[name]})
        return found


def _load_workloads() -> dict[str, Any]:
    from bench import (
        changes,
        custom_state,
        growth,
        lakehouse,
        latency,
        restore_points,
        settings,
        throughput,
        time_machine,
    )

    return {
        "throughput": throughput,
        "latency": latency,
        "custom_state": custom_state,
        "time_machine": time_machine,
        "growth": growth,
        "settings": settings,
        "lakehouse": lakehouse,
        "restore_points": restore_points,
        "changes": changes,
    }


if __name__ == "__main__":
    sys.exit(main())
