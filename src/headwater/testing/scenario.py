"""Scenarios: a test feeds a job, checks what it emits and stores, crashes it, restarts it and rewinds it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from headwater.checkpoint.local_tree import LocalTree
from headwater.core.text import count
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.jobs.job import UNNAMED, Job
from headwater.spark.dropped import TAG, find_rules, late_records
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.statefiles.reader import state_rows
from headwater.testing.driver import Driver, UnexpectedFailure
from headwater.testing.initial_state import GivenState, start_with_state
from headwater.testing.kafka_feed import decode_fed
from headwater.testing.migrated_state import start_from_older_code
from headwater.testing.records import Crash, Fed, as_lines
from headwater.testing.transcript import Row, StepRecord, as_text, difference, transcript
from headwater.timemachine.rewind import plan_rewind

TIME_OF_DAY = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{3})?)?")
DAY_MS = 86_400_000


class Step:
    """The result of one ``feed``, ``restart`` or ``rewind``. Each assertion returns the step, so they can be chained."""

    __tracebackhide__ = True

    def __init__(self, scenario: Scenario, record: StepRecord) -> None:
        self._scenario = scenario
        self._record = record

    @property
    def batch(self) -> int | None:
        """The last batch that ran in this step; None if none ran."""
        return self._record.runs[-1].batch_id if self._record.runs else None

    @property
    def emitted(self) -> list[dict[str, Any]]:
        """The rows that all batches of this step emitted."""
        self._record.checked = True
        return self._record.emitted

    def emits(self, *rows: Row) -> Step:
        """Assert that exactly these rows were emitted, in any order."""
        __tracebackhide__ = True
        self._record.checked = True
        lines = difference(rows, self._record.emitted, in_ms=True)
        if lines:
            self._scenario.fail(["emitted rows differ (- expected, + actual):", *lines])
        return self

    def emits_nothing(self) -> Step:
        """Assert that no row was emitted."""
        __tracebackhide__ = True
        return self.emits()

    def moves_watermark_to(self, moment: str) -> Step:
        """Assert the watermark of the next batch, given as an ISO time or just a time of day."""
        __tracebackhide__ = True
        actual_ms = self._record.watermark_ms
        actual = iso_from_ms(actual_ms) if actual_ms else "no watermark"
        if not _is_at(actual_ms, moment):
            self._scenario.fail([f"watermark: expected {moment}, got {actual}"])
        return self

    def drops(self, count: int) -> Step:
        """Assert how many input records of this step were dropped as late."""
        __tracebackhide__ = True
        dropped = self._scenario.dropped_lines(self._record)
        if len(dropped) != count:
            self._scenario.fail(
                [f"late records: expected {count}, got {len(dropped)}", *(f"  + {line}" for line in dropped)]
            )
        return self

    def fails_to_decode(self, count: int) -> Step:
        """Assert how many input records of this step were malformed."""
        __tracebackhide__ = True
        actual = self._scenario.malformed_count(self._record)
        if actual != count:
            self._scenario.fail([f"malformed records: expected {count}, got {actual}"])
        return self

    @property
    def state(self) -> list[dict[str, Any]]:
        """The job's state after this step."""
        return self._scenario.state

    def holds(self, *rows: Row) -> Step:
        """Assert that the state has exactly these rows, in any order."""
        __tracebackhide__ = True
        lines = difference(rows, self.state)
        if lines:
            self._scenario.fail(["state differs (- expected, + actual):", *lines])
        return self

    def has_table(self, *rows: Row) -> Step:
        """Assert that the Delta table that the job writes to has exactly these rows, in any order."""
        __tracebackhide__ = True
        lines = difference(rows, self._scenario.table, in_ms=True)
        if lines:
            self._scenario.fail(["table differs (- expected, + actual):", *lines])
        return self


def _is_at(epoch_ms: int | None, moment: str) -> bool:
    """Return whether a watermark is exactly at a time or, on any day, at a time of day."""
    if TIME_OF_DAY.fullmatch(moment):
        return bool(epoch_ms) and (epoch_ms or 0) % DAY_MS == ms_from_iso(f"1970-01-01T{moment}")
    return epoch_ms == ms_from_iso(moment)


class Scenario:
    """A job on a checkpoint of its own, run one micro-batch at a time."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        folder: Path,
        *,
        start_empty: bool = False,
        schema: str | Mapping[str, str] | None = None,
        tables: Mapping[str, Sequence[Fed]] | None = None,
        state: GivenState | None = None,
        migrated_from: str | Path | None = None,
        migration: Mapping[str, Any] | None = None,
    ) -> None:
        self._spark = spark
        schemas = dict.fromkeys(job.sources, schema) if isinstance(schema, str) else dict(schema or {})
        self._driver = Driver(spark, job, folder, schemas, tables)
        self.job = self._driver.job
        self._steps: list[StepRecord] = []
        self._failed = False
        if state is not None:
            rows = start_with_state(spark, self._driver, state)
            self._steps.append(StepRecord(f"start with {count(rows, 'row', grouped=False)} of state"))
        if migrated_from is not None:
            rows = start_from_older_code(self._driver, migrated_from, **(migration or {}))
            self._steps.append(StepRecord(f"migrate {count(rows, 'row', grouped=False)} of state"))
        if start_empty:
            self.feed().emits_nothing()

    @property
    def checkpoint(self) -> Path:
        """The folder of the job's checkpoint."""
        return self._driver.checkpoint

    def feed(self, *items: Fed | Crash, **named: Sequence[Fed]) -> Step:
        """Feed one micro-batch of rows, raw lines or files of lines. A ``Crash`` among them is injected.

        A job that names its sources takes the records of each by name: ``s.feed(clicks=[...], impressions=[...])``.
        """
        __tracebackhide__ = True
        crashes = [item for item in items if isinstance(item, Crash)]
        given: dict[str, Sequence[Fed]] = {**named}
        unnamed = [item for item in items if not isinstance(item, Crash)]
        if UNNAMED in self.job.sources:
            given[UNNAMED] = unnamed
        unknown = [name for name in given if name not in self.job.sources]
        if unknown or (unnamed and UNNAMED not in self.job.sources):
            names = ", ".join(f"{name}=[...]" for name in self.job.sources if name) or "..."
            raise ValueError(f"{self.job.name} is fed with s.feed({names})")
        fed = {
            name: as_lines(given.get(name, ()), self._driver.decodings[name], self._driver.columns(name))
            for name in self.job.sources
        }
        self._driver.put(fed)
        total = sum(map(len, fed.values()))
        return self._run(
            StepRecord(f"feed {count(total, 'record', grouped=False)}", fed), crashes[0] if crashes else None
        )

    def replace_table(self, **tables: Sequence[Fed]) -> None:
        """Replace all rows of static tables, by name.

        The job sees the new rows when it starts again, or in its next batch if it reads the table in every batch.
        """
        given = ", ".join(f"{name}=[...]" for name in self._driver.tables) or "no tables"
        for name, rows in tables.items():
            if name not in self._driver.tables:
                raise ValueError(f"the scenario of {self.job.name} was given {given}, and not {name!r}")
            lines = self._driver.tables[name].replace(rows)
            self._steps.append(StepRecord(f"replace table {name}", {"": lines}))

    def restart(self) -> Step:
        """Stop the job if it is running, and start it again on its checkpoint. Return what it then does without new input."""
        __tracebackhide__ = True
        self._driver.stop()
        return self._run(StepRecord("restart"), None)

    def rewind(self, *, to: int | None, replan: bool = False) -> Step:
        """Stop the job, rewind it to batch ``to`` (None: to the start), and start it again.

        Return what ran again: the later feeds, one batch for each.
        """
        __tracebackhide__ = True
        self._driver.stop()
        unload_state_stores(self._spark)
        table = self._driver.sink.rewindable if self._driver.sink else None
        plan_rewind(LocalTree(self._driver.checkpoint), to=to, replan=replan, table=table).apply()
        target = "the start" if to is None else f"batch {to}"
        return self._run(StepRecord(f"rewind to {target}"), None)

    @property
    def batch(self) -> int | None:
        """The last batch that ran."""
        return next((step.runs[-1].batch_id for step in reversed(self._steps) if step.runs), None)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows of the Delta or Iceberg table that the job writes to."""
        if self._driver.sink is None:
            kind = self._driver.sink_kind
            reason = "Iceberg has no release for this PySpark" if kind == "iceberg" else "only tables can be read"
            raise ValueError(f"{self.job.name} writes to {kind}: {reason}")
        return self._driver.sink.rows(self._spark)

    @property
    def state(self) -> list[dict[str, Any]]:
        """The current state: the rows of the job's ``state_view`` if it has one, otherwise the raw rows."""
        rows = state_rows(LocalTree(self._driver.checkpoint))
        return rows if self.job.state_view is None else self.job.state_view(rows)

    def close(self) -> None:
        """Stop the job. Fail if a step emitted rows that no assertion checked, unless the test has already failed."""
        self._driver.stop()
        unchecked = [step for step in self._steps if step.emitted and not step.checked]
        if unchecked and not self._failed:
            rows = [f"  + {as_text(row)}" for row in unchecked[0].emitted]
            number = self._steps.index(unchecked[0]) + 1
            self.fail([f"step {number} emitted rows that no assertion checked:", *rows])

    def fail(self, message: Sequence[str]) -> NoReturn:
        """Raise an ``AssertionError`` with the transcript and a message."""
        __tracebackhide__ = True
        self._failed = True
        raise AssertionError(transcript(self.job.name, self._steps, message))

    def dropped_lines(self, step: StepRecord) -> list[str]:
        """Return the records of a step that were dropped as late, by any operator that they reached."""
        __tracebackhide__ = True
        if not any(step.fed.values()):
            return []
        batch = self._driver.reading_batch(step.runs)
        if batch is None:
            self.fail(
                ["no batch has read the records of this step: the job crashed before, and reads them in the next step"]
            )
        frames = self._driver.frames()
        watermark_ms = self._driver.late_watermark_ms(batch)
        dropped: dict[tuple[str, int], str] = {}
        for rule in find_rules(self.job, frames):
            tagged = self._tagged(step, rule.source)
            late = late_records(self._spark, self.job, frames, tagged, rule, watermark_ms).select(TAG).collect()
            dropped |= {(rule.source, row[0]): step.fed[rule.source][row[0]] for row in late}
        return [dropped[key] for key in sorted(dropped)]

    def malformed_count(self, step: StepRecord) -> int:
        """Return how many records of a step could not be decoded."""
        return sum(len(lines) - self._tagged(step, source).count() for source, lines in step.fed.items())

    def _tagged(self, step: StepRecord, source: str) -> Any:
        lines: list[Mapping[str, Any]] = [{"value": line, TAG: place} for place, line in enumerate(step.fed[source])]
        raw = self._spark.createDataFrame(lines, f"value STRING, {TAG} INT")
        return decode_fed(self._spark, raw, self._driver.decodings[source], keep=(TAG,), source=source)

    def _run(self, record: StepRecord, crash: Crash | None) -> Step:
        __tracebackhide__ = True
        self._steps.append(record)
        try:
            record.runs, record.crash = self._driver.drain(crash)
        except UnexpectedFailure as error:
            self.fail([f"the job failed: {error}"])
        record.watermark_ms = self._driver.next_watermark_ms
        return Step(self, record)
