"""What keeping dead letters costs a batch in which nothing is dropped: the same job with and without ``dead_letters=``.

The two take turns, a round of some batches each on a checkpoint of its own, so that whatever else the machine does meets
both. A round is timed from the end of its first batch to the end of its last, by the clock on the wall: all that runs beside
a batch is in it, starting the query is not.
Run it with ``python bench/dead_letters_speed.py``; it prints a line and writes ``bench/results/dead_letters_speed.json``.
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
from headwater.jobs.loading import load_job
from headwater.spark.ownership import Run
from headwater.spark.progress import BatchProgress
from headwater.spark.runner import run_job
from headwater.spark.session import start_session

JOB = "browser-stats-stateful"
ROUNDS, BATCHES, RECORDS = 16, 25, 2_000
WARM_UP = 3
AIM = 1.03
RESULTS = Path(__file__).parent / "results"
START = datetime(2026, 1, 1, tzinfo=UTC)


class Contender:
    """The job on a folder of its own; it goes on from round to round."""

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

    def take_turn(self, spark: Any) -> float:
        """Milliseconds a batch."""
        for _ in range(BATCHES):
            self._put_file()
        ends: list[float] = []

        def heard(batch: BatchProgress) -> None:
            assert not batch.dropped
            assert not batch.malformed
            if batch.input_rows:
                ends.append(time.perf_counter())

        run = Run(self._job, JOB, str(self._folder / "checkpoint"))
        run_job(spark, run, stop=threading.Event(), on_batch=heard)
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
        bare = Contender(folder / "bare", dead_letters=False)
        kept = Contender(folder / "kept", dead_letters=True)
        rounds: list[tuple[float, float]] = []
        for number in range(WARM_UP + ROUNDS):
            # Whoever goes second finds things warm: they change places.
            order = (bare, kept) if number % 2 else (kept, bare)
            took = {id(one): one.take_turn(spark) for one in order}
            if number >= WARM_UP:
                rounds.append((took[id(bare)], took[id(kept)]))
        spark.stop()
        assert not kept.letters.exists(), "a batch dropped something after all"
    _report(rounds)


def _report(rounds: list[tuple[float, float]]) -> None:
    ratios = sorted(kept / bare for bare, kept in rounds)
    ratio = statistics.median(ratios)
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    told = {
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
    (RESULTS / "dead_letters_speed.json").write_text(json.dumps(told, indent=1))
    verdict = "within" if ratio < AIM else "over"
    print(
        f"a batch without drops: {told['bare_ms']:.0f} ms bare, {told['kept_ms']:.0f} ms with dead letters, "
        f"ratio {ratio:.3f} (middle half of {len(rounds)} rounds {low:.3f} to {high:.3f}): {verdict} the aim of {AIM - 1:.0%}"
    )


if __name__ == "__main__":
    main()
