"""Measure how many micro-batches a second the scenario harness drives through the windowed jobs of the gallery.

Each feed is one batch with data, and a feed that moves the watermark is followed by a batch without data. Both count.
The jobs run in turn, and the rates are those of the last turn: the earlier ones warm Spark up, as the first tests of a
suite do. Run it with ``python -m bench.scenario_speed``. It prints a table and then one JSON line.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.jobs.loading import load_job
from headwater.testing.scenario import Scenario
from headwater.testing.session import start_scenario_session

JOBS = ("browser-stats-stateful", "visits-windows-counter", "sliding-counts")
FEEDS, TURNS = 40, 4
START = datetime(2026, 1, 1, tzinfo=UTC)


def make_row(job: str, number: int) -> dict[str, object]:
    at = (START + timedelta(seconds=20 * number)).isoformat()
    match job:
        case "browser-stats-stateful":
            return {"userId": number, "page": "x", "eventTime": at, "browser": f"b{number % 5}"}
        case "visits-windows-counter":
            return {"event_id": str(number), "visit_id": number, "event_time": at}
        case _:
            return {"User": str(number), "event_time": at}


def measure_rate(spark: object, name: str) -> float:
    """Return batches a second, not counting the first feed, which starts the query."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(spark, load_job(name), Path(folder))
        first = scenario.feed(make_row(name, 0))
        assert first.emitted
        before, started = scenario.batch or 0, time.perf_counter()
        for number in range(1, FEEDS + 1):
            assert scenario.feed(make_row(name, number)).emitted
        batches = (scenario.batch or 0) - before
        seconds = time.perf_counter() - started
        scenario.close()
    return batches / seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = start_scenario_session(Path(folder), jars=())
        turns = [{name: round(measure_rate(spark, name), 1) for name in JOBS} for _ in range(TURNS)]
        spark.stop()
    for name in JOBS:
        print(f"{name:<28} {', '.join(f'{rates[name]:.1f}' for rates in turns)} batches/s")
    print(json.dumps({"batches_per_second": turns[-1]}))


if __name__ == "__main__":
    main()
