"""Import state into a new checkpoint of a job: one that is seeded without history, and filled with exported state.

The job continues where the exported batch ended, unless another position is given, with its watermark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.jobs.job import Job
from headwater.spark.seed_plan import plan_seed
from headwater.spark.seed_request import NO_HISTORY, SeedRequest, request_of
from headwater.spark.seeding import Seeded, seed
from headwater.spark.session import temporary_settings
from headwater.timemachine.executor import executor_for
from headwater.timemachine.seed import SeedPlan, set_watermark
from headwater.timemachine.transfer import origin_of, plan_import

# With it off, a snapshot names the column families of custom state, which a changelog does not.
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class JobImport:
    """Exported tables for a new checkpoint of a job, by file name."""

    request: SeedRequest
    plan: SeedPlan
    tables: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def apply(self, spark: SparkSession, *, warn: Callable[[str], None] = lambda _: None) -> Seeded:
        """Create the checkpoint."""
        with temporary_settings(spark, {CHANGELOG: "false"}):
            return seed(spark, self.request, self.plan, warn=warn, complete=self._fill)

    def _fill(self, files: FileTree) -> None:
        try:
            batch = plan_import(files, self.tables).batch
            for path, data in batch.files.items():
                files.write(path, data)
            executor_for(files, None).apply(batch.change)
        except ChangeRefused as refused:
            if refused.code != "nothing-to-do":  # done before an interruption, or empty
                raise
        watermark = max((origin_of(table, name).watermark_ms or 0 for name, table in self.tables.items()), default=0)
        set_watermark(files, watermark)


def plan_job_import(
    job: Job,
    reference: str | None,
    checkpoint: str,
    tables: Mapping[str, pa.Table],
    at: Mapping[str, str],
    *,
    reason: str | None = None,
) -> JobImport:
    """Plan to import tables into a new checkpoint. ``at`` are the positions of the sources, by default the exported ones."""
    given = {**_exported_positions(job, tables), **at}
    missing = [name for name in job.sources if name not in given]
    if missing:
        raise UsageProblem(
            "seed-incomplete",
            f"the exported state does not say where {missing[0] or 'the source'} continues",
            remedy=f"--at {f'{missing[0]}=' if missing[0] else ''}POSITION",
        )
    history = dict.fromkeys(job.sources, NO_HISTORY)
    request = request_of(job, reference, checkpoint, history, given, output="drop", reason=reason)
    return JobImport(request, plan_seed(request), tables)


def _exported_positions(job: Job, tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Return where the exported batch ended, if the job has one source as the exported query had."""
    name, table = next(iter(tables.items()))
    offsets = origin_of(table, name).offsets
    if len(offsets) != 1 or len(job.sources) != 1 or offsets[0] is None:
        return {}
    (source,) = job.sources
    value = json.loads(offsets[0])
    if isinstance(value, dict) and "reservoirVersion" in value:
        whole = value.get("index", -1) < 0 and not value.get("isStartingVersion")
        return {source: str(value["reservoirVersion"])} if whole else {}
    topics = isinstance(value, dict) and all(isinstance(part, dict) for part in value.values())
    return {source: offsets[0]} if topics else {}
