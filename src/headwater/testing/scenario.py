"""A job's life as a test tells it: feed, look, crash, restart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.checkpoint.local_tree import LocalTree
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.jobs.job import Job
from headwater.spark.decoding import decode_lines
from headwater.spark.dropped import TAG, find_rule, late_records
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.statefiles.reader import state_rows
from headwater.testing.driver import Driver, UnexpectedEnd
from headwater.testing.records import Crash, Fed, as_lines
from headwater.testing.transcript import Row, StepRecord, as_text, difference, story
from headwater.timemachine.rewind import plan_rewind

TIME_OF_DAY = re.compile(r"\d{2}:\d{2}(:\d{2})?")


class Step:
    """What came of one ``feed`` or ``restart``. Every assertion gives the step back, so that they can be chained."""

    __tracebackhide__ = True

    def __init__(self, scenario: Scenario, record: StepRecord) -> None:
        self._scenario = scenario
        self._record = record

    @property
    def batch(self) -> int | None:
        """The last batch that ran in this step; None if none did."""
        return self._record.runs[-1].batch_id if self._record.runs else None

    @property
    def emitted(self) -> list[dict[str, Any]]:
        """The rows of all batches of this step."""
        self._record.looked_at = True
        return self._record.emitted

    def emits(self, *rows: Row) -> Step:
        """Exactly these rows came out, in any order."""
        __tracebackhide__ = True
        self._record.looked_at = True
        lines = difference(rows, self._record.emitted)
        if lines:
            self._scenario.fail(["emitted rows differ (- expected, + found):", *lines])
        return self

    def emits_nothing(self) -> Step:
        __tracebackhide__ = True
        return self.emits()

    def moves_watermark_to(self, moment: str) -> Step:
        """The watermark that the next batch works with: an ISO time, or just a time of day."""
        __tracebackhide__ = True
        found_ms = self._record.watermark_ms
        found = iso_from_ms(found_ms) if found_ms else "no watermark"
        same = (
            found[11 : 11 + len(moment)] == moment if TIME_OF_DAY.fullmatch(moment) else found_ms == ms_from_iso(moment)
        )
        if not same:
            self._scenario.fail([f"watermark: expected {moment}, found {found}"])
        return self

    def drops(self, count: int) -> Step:
        """So many input records of this step came too late."""
        __tracebackhide__ = True
        dropped = self._scenario.dropped_lines(self._record)
        if len(dropped) != count:
            self._scenario.fail(
                [f"late records: expected {count}, found {len(dropped)}", *(f"  + {x}" for x in dropped)]
            )
        return self

    def fails_to_decode(self, count: int) -> Step:
        """So many input records of this step were malformed."""
        __tracebackhide__ = True
        found = self._scenario.malformed_count(self._record)
        if found != count:
            self._scenario.fail([f"malformed records: expected {count}, found {found}"])
        return self

    @property
    def state(self) -> list[dict[str, Any]]:
        """Everything that is stored after this step."""
        return self._scenario.state

    def holds(self, *rows: Row) -> Step:
        """Exactly these rows are in the state now, in any order."""
        __tracebackhide__ = True
        lines = difference(rows, self.state)
        if lines:
            self._scenario.fail(["state differs (- expected, + found):", *lines])
        return self


class Scenario:
    """One job on one checkpoint of its own, driven one micro-batch at a time."""

    def __init__(
        self, spark: SparkSession, job: Job, folder: Path, *, start_empty: bool = False, schema: str | None = None
    ) -> None:
        self.job = job
        self._spark = spark
        self._driver = Driver(spark, job, folder, schema)
        self._steps: list[StepRecord] = []
        self._failed = False
        if start_empty:
            self.feed().emits_nothing()

    @property
    def checkpoint(self) -> Path:
        """The job's checkpoint, for those who want to look inside."""
        return self._driver.checkpoint

    def feed(self, *items: Fed | Crash) -> Step:
        """Give the job records, as one micro-batch: rows, raw lines, or files of lines. A ``Crash`` among them happens."""
        __tracebackhide__ = True
        crashes = [item for item in items if isinstance(item, Crash)]
        lines = as_lines(
            [item for item in items if not isinstance(item, Crash)], self._driver.decoding, self._driver.columns
        )
        self._driver.inbox.put(lines)
        record = StepRecord(f"feed {len(lines)} record{'' if len(lines) == 1 else 's'}", lines)
        return self._run(record, crashes[0] if crashes else None)

    def restart(self) -> Step:
        """Stop the job if it runs, and start it again on its checkpoint. Gives what it does on its own account."""
        __tracebackhide__ = True
        self._driver.stop()
        return self._run(StepRecord("restart"), None)

    def rewind(self, *, to: int | None, replan: bool = False) -> Step:
        """Stop the job, make ``to`` the last batch kept (None: start over), and start it again.

        Gives what ran again: the feeds that came after, one batch for each.
        """
        __tracebackhide__ = True
        self._driver.stop()
        unload_state_stores(self._spark)
        plan_rewind(LocalTree(self._driver.checkpoint), to=to, replan=replan).apply()
        kept = "the start" if to is None else f"batch {to}"
        return self._run(StepRecord(f"rewind to {kept}"), None)

    @property
    def batch(self) -> int | None:
        """The last batch that ran."""
        return next((step.runs[-1].batch_id for step in reversed(self._steps) if step.runs), None)

    @property
    def state(self) -> list[dict[str, Any]]:
        """What is stored now: through the job's ``state_view`` if it has one, else the raw rows."""
        rows = state_rows(LocalTree(self._driver.checkpoint))
        return rows if self.job.state_view is None else self.job.state_view(rows)

    def close(self) -> None:
        """Stop the job. An emission that no assertion looked at is a failure, unless the test has failed already."""
        self._driver.stop()
        unseen = [step for step in self._steps if step.emitted and not step.looked_at]
        if unseen and not self._failed:
            rows = [f"  + {as_text(row)}" for row in unseen[0].emitted]
            number = self._steps.index(unseen[0]) + 1
            self.fail([f"step {number} emitted rows that no assertion looked at:", *rows])

    def fail(self, complaint: Sequence[str]) -> None:
        __tracebackhide__ = True
        self._failed = True
        raise AssertionError(story(self.job.name, self._steps, complaint))

    def dropped_lines(self, step: StepRecord) -> list[str]:
        """The records of a step that its data batch dropped as late."""
        rule = find_rule(self.job, self._driver.stream())
        if rule is None or not step.runs:
            return []
        watermark_ms = self._driver.late_watermark_ms(step.runs[0].batch_id)
        tagged = self._tagged(step)
        found = late_records(self._spark, self.job, tagged, rule, watermark_ms).select(TAG).collect()
        return [step.lines[row[0]] for row in sorted(found)]

    def malformed_count(self, step: StepRecord) -> int:
        return len(step.lines) - self._tagged(step).count()

    def _tagged(self, step: StepRecord) -> Any:
        lines: list[Mapping[str, Any]] = [{"value": line, TAG: place} for place, line in enumerate(step.lines)]
        raw = self._spark.createDataFrame(lines, f"value STRING, {TAG} INT")
        return decode_lines(self._spark, raw, self._driver.decoding, keep=(TAG,))

    def _run(self, record: StepRecord, crash: Crash | None) -> Step:
        __tracebackhide__ = True
        self._steps.append(record)
        try:
            record.runs, record.ended = self._driver.drain(crash)
        except UnexpectedEnd as error:
            self.fail([f"the job broke: {error}"])
        record.watermark_ms = self._driver.next_watermark_ms
        return Step(self, record)
