"""Measure what ``dead_letters=`` costs a batch in which nothing is dropped, by running a job with and without it.

The two variants alternate, each with its own checkpoint, so that other load on the machine affects both. A round is timed
by wall clock from the end of its first batch to the end of its last. That includes work next to the batches and excludes
the start of the query.
Run it with ``python bench/dead_letter_overhead.py``. It prints a line and writes
``bench/results/dead_letter_overhead.json``.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headwater import Files
from headwater.checkpoint.record import ProgressRecord
from headwater.jobs.loading import load_job
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.spark.session import start_session

JOB = "browser-stats-stateful"
ROUNDS, BATCHES, RECORDS = 16, 25, 2_000
WARM_UP = 3
TARGET = 1.03
RESULTS = Path(__file__).parent / "results"
START = datetime(2026, 1, 1, tzinfo=UTC)


class Variant:
    """The job in its own folder; it resumes from round to round."""

    def __init__(self, folder: Path, *, dead_letters: bool) -> None:
        self._folder = folder
        self._inbox = folder / "inbox"
        self._inbox.mkdir(parents=True)
        self._files = 0
        source = Files(
            str(self._inbox), schema=load_job(JOB).reads.decoding.schema, options={"maxFilesPerTrigger": "1"}
        )
        sink = Files(str(folder / "out"), format="json")
        self._job = replace(load_job(JOB), reads=source, writes=sink, mode="append", trigger="available-now")
        self.letters = folder / "letters"
        if dead_letters:
            self._job = replace(self._job, dead_letters=f"files:{self.letters}")

    def run_round(self, spark: Any) -> float:
        """Run one round and return the milliseconds per batch."""
        for _ in range(BATCHES):
            self._put_file()
        ends: list[float] = []

        def on_batch(batch: ProgressRecord) -> None:
            assert not batch.dropped
            assert not batch.malformed
            if batch.input_rows:
                ends.append(time.perf_counter())

        run = Run(self._job, JOB, str(self._folder / "checkpoint"))
        run_job(spark, run, stop=threading.Event(), on_batch=on_batch)
        assert len(ends) == BATCHES
        return 1000 * (ends[-1] - ends[0]) / (BATCHES - 1)

    def _put_file(self) -> None:
        at = START + timedelta(seconds=self._files)
        visit = {"userId": 1, "page": "x", "eventTime": at.isoformat()}
        lines = [json.dumps({**visit, "browser": f"b{number % 7}"}) for number in range(RECORDS)]
        file = self._inbox / f"{self._files:06d}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_000_000_000 + self._files,) * 2)
        self._files += 1


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder / "warehouse")}
        spark = start_session("bench", master="local[2]", conf=conf, jars=(), log=folder / "spark.log")
        without = Variant(folder / "without", dead_letters=False)
        with_letters = Variant(folder / "with", dead_letters=True)
        rounds: list[tuple[float, float]] = []
        for number in range(WARM_UP + ROUNDS):
            # The second to run finds warm caches, so the order alternates.
            order = (without, with_letters) if number % 2 else (with_letters, without)
            took = {id(one): one.run_round(spark) for one in order}
            if number >= WARM_UP:
                rounds.append((took[id(without)], took[id(with_letters)]))
        spark.stop()
        assert not with_letters.letters.exists(), "a batch dropped records"
    _write_report(rounds)


def _write_report(rounds: list[tuple[float, float]]) -> None:
    ratios = sorted(kept / bare for bare, kept in rounds)
    ratio = statistics.median(ratios)
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    report = {
        "bare_ms": statistics.median(bare for bare, _ in rounds),
        "kept_ms": statistics.median(kept for _, kept in rounds),
        "ratio": round(ratio, 4),
        "quartiles": [round(low, 4), round(high, 4)],
        "rounds": len(rounds),
        "batches": BATCHES,
        "records": RECORDS,
        "load": os.getloadavg()[0],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dead_letter_overhead.json").write_text(json.dumps(report, indent=1))
    verdict = "within" if ratio < TARGET else "over"
    print(
        f"a batch of {RECORDS:,} records without drops: {report['bare_ms']:.0f} ms without dead letters, "
        f"{report['kept_ms']:.0f} ms with them, ratio {ratio:.3f} (quartiles of {len(rounds)} rounds {low:.3f} and "
        f"{high:.3f}): {verdict} the target of {TARGET - 1:.0%}"
    )


if __name__ == "__main__":
    main()
