"""Run the gallery jobs behind the pictures of docs/concepts and record every batch: ``python scripts/concept_batches.py``.

The jobs run on Spark with the inputs of tests/golden. The result, docs/images/concepts.json, holds what each batch read,
dropped and emitted, its watermark and its state. scripts/draw_concepts.py draws it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater import Checkpoint
from headwater.core.times import iso_from_ms
from headwater.jobs.loading import load_job
from headwater.testing.transcript import canonical

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
RECORDED = ROOT / "docs" / "images" / "concepts.json"


@dataclass(frozen=True)
class Run:
    """A gallery job on the steps of a golden file."""

    job: str
    golden: str
    steps: str = "steps"
    mode: Literal["append", "complete", "update"] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    shows_state: bool = False


RUNS = {
    # The same trades in both kinds of window.
    "tumbling": Run("profit-per-window", "profit_sliding"),
    "sliding": Run("profit-sliding", "profit_sliding"),
    "sessions": Run("user-sessions", "user_sessions", shows_state=True),
    "visits": Run("browser-stats-stateful", "browser_stats_stateful", shows_state=True),
    "visits_append": Run("browser-stats-stateful", "browser_stats_stateful", mode="append"),
    # The same orders in all three modes.
    "orders_complete": Run("order-status", "order_status", "complete", mode="complete"),
    "orders_update": Run("order-status", "order_status", "complete", mode="update"),
    "orders_append": Run("order-status", "order_status", "complete", mode="append", settings={"aggregate": False}),
}


def collect(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Run all jobs in a Spark session and return the batches of each run."""
    return {name: _batches(spark, run, folder / name) for name, run in RUNS.items()}


def as_json(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the batches as the text of the recorded file: one line for each batch."""
    parts = []
    for name, batches in runs.items():
        lines = ",\n".join(f"  {json.dumps(batch)}" for batch in batches)
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _batches(spark: SparkSession, run: Run, folder: Path) -> list[dict[str, Any]]:
    from headwater.testing.scenario import Scenario  # noqa: PLC0415  the drawing needs no Spark

    job = load_job(run.job)
    job = replace(job, mode=run.mode or job.mode, settings={**job.settings, **run.settings})
    scenario = Scenario(spark, job, folder)
    batches: list[dict[str, Any]] = []
    for step in json.loads((GOLDEN / f"{run.golden}.json").read_text(encoding="utf-8"))[run.steps]:
        record = scenario.feed(*step["send"])._record
        record.checked = True
        late = scenario.dropped_lines(record)
        for number, ran in enumerate(record.runs):
            # The first batch of a step reads its records. A second one has no data and only evicts state.
            batches.append(
                {
                    "batch": ran.batch_id,
                    "records": record.lines if number == 0 else [],
                    "late": late if number == 0 else [],
                    "emitted": _sorted(ran.emitted),
                }
            )
    scenario.close()
    checkpoint = Checkpoint(str(scenario.checkpoint))
    for batch in batches:
        watermark_ms = checkpoint.batch(batch["batch"]).watermark_ms
        batch["watermark"] = iso_from_ms(watermark_ms) if watermark_ms else None
        if run.shows_state:
            state = checkpoint.state(at=batch["batch"]).select(["key", "value"])
            batch["state"] = _sorted(state.to_pylist())
    return batches


def _sorted(rows: Sequence[Any]) -> list[Any]:
    return sorted((canonical(row) for row in rows), key=lambda row: json.dumps(row, sort_keys=True))


def main() -> None:
    from headwater.spark.session import start_session  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("concepts", master="local[2]", log=Path(folder) / "spark.log")
        try:
            RECORDED.write_text(as_json(collect(spark, Path(folder))), encoding="utf-8")
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
