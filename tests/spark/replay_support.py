"""Small jobs on folders of golden records, run to the end, for tests that inspect their batches."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from headwater import Console, Files, Job
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.jobs.loading import load_job
from headwater.spark.internals.state_stores import unload_state_stores
from jobs.golden import by_source
from spark.draining import drain_source

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass
class Recorded:
    """The checkpoint of a real run, and the progress of each batch."""

    job: Job
    inbox: Path
    checkpoint: Path
    progress: list[ProgressRecord] = field(default_factory=list)

    @property
    def files(self) -> LocalTree:
        return LocalTree(self.checkpoint)


def golden_steps(name: str) -> list[list[str]]:
    return [step["send"] for step in json.loads((GOLDEN / f"{name}.json").read_text())["steps"]]


def put(inbox: Path, number: int, lines: Sequence[str | bytes]) -> None:
    file = inbox / f"{number:03d}.json"
    encoded = (line if isinstance(line, bytes) else line.encode() for line in lines)
    file.write_bytes(b"".join(line + b"\n" for line in encoded))
    os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def in_folder(job: Job, folder: Path, steps: Sequence[Sequence[Any]]) -> tuple[Job, Path]:
    """Return the job on a folder of records per source: one file per step, one batch per file.

    A source without records in a step gets an empty file. With a single source, the folder is its own.
    """
    inboxes = {name: folder / f"inbox-{name}" if name else folder / "inbox" for name in job.sources}
    for inbox in inboxes.values():
        inbox.mkdir(parents=True)
    for number, lines in enumerate(steps):
        put_step(inboxes, number, lines)
    sources = {
        name: Files(
            str(inboxes[name]),
            schema=source.decoding.schema,
            format=source.decoding.format or "json",
            decode=source.decoding.options,
            options={"maxFilesPerTrigger": "1"},
        )
        for name, source in job.sources.items()
    }
    chosen = replace(job.with_inputs(sources), writes=Console(), trigger="available-now")
    return chosen, next(iter(inboxes.values())) if len(inboxes) == 1 else folder


def put_step(inboxes: Mapping[str, Path], number: int, lines: Sequence[Any]) -> None:
    """Write the lines of a golden step, each to the folder of its source."""
    fed = {"": lines} if "" in inboxes else by_source(lines)
    for name, inbox in inboxes.items():
        put(inbox, number, fed.get(name, ()))


def run_recorded(
    spark: Any, job: Job, folder: Path, steps: Sequence[Sequence[str | bytes]], **changes: Any
) -> Recorded:
    """Run a job on a folder to its end: every batch but the last has records."""
    chosen, inbox = in_folder(job, folder, steps)
    recorded = Recorded(replace(chosen, **changes), inbox, folder / "checkpoint")
    recorded.progress += drain_source(spark, recorded.job, recorded.checkpoint)
    unload_state_stores(spark)  # otherwise they may upload a snapshot at any later time
    return recorded


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def by_user(visits: Any) -> Any:
    """Count by another key, and so with another state schema."""
    visits = visits.withWatermark("eventTime", "20 minutes")
    return visits.groupBy("userId", F.window("eventTime", "5 minutes")).agg(F.count("*").alias("count"))


def doubled(visits: Any) -> Any:
    """Keep the same state and emit other rows."""
    return load_job("browser-stats-stateful").transform(visits).withColumn("count", F.col("count") * 2)
