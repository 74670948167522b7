"""Runs the actions of a story and checks the checkpoint and the sink after each."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from soak import attached, checks
from soak.changes import CheckpointChanges
from soak.checks import require
from soak.environment import StoryEnvironment, Stream
from soak.meeting import Meeting
from soak.processes import Command, CommandResult, run_in_process, wait_for
from soak.services import PASSWORD
from soak.side_streams import Seeds
from soak.sinks import iceberg_metadata
from soak.story import (
    Action,
    Compact,
    Edit,
    Feed,
    Fork,
    Inspect,
    Keep,
    KilledRun,
    Migrate,
    Move,
    Outage,
    Promote,
    Repair,
    Repartition,
    ReplaceTable,
    Rewind,
    RewindToPoint,
    Run,
    Seed,
    StoppedRun,
    Undo,
)


class StoryRunner:
    """Runs one story. ``tally`` counts what happened; ``refused`` counts the refusals of Headwater by error code."""

    def __init__(self, env: StoryEnvironment, meeting: Meeting) -> None:
        self.env, self._meeting = env, meeting
        self.tally: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._changes = CheckpointChanges(env, self.tally, self.refused, meeting)
        self._seeds = Seeds(env, self.tally, meeting)

    @property
    def stream(self) -> Stream:
        return self.env.main

    def perform(self, action: Action) -> str:
        """Perform one action, check the result, and return a short description of the outcome."""
        match action:
            case Feed():
                count = self.env.feed(action)
                self.tally["records"] += count
                return f"{count} records"
            case ReplaceTable():
                return self._replace_table(action)
            case Run():
                outcome = self._run(action)
            case KilledRun():
                outcome = self._kill_run(action)
            case StoppedRun():
                outcome = self._stop_run(action)
            case Keep():
                outcome = self._changes.keep(action)
            case RewindToPoint():
                outcome = self._changes.rewind_to_point(action) + self._restore_table()
            case Move():
                outcome = self._changes.move()
            case Rewind():
                outcome = self._changes.rewind(action)
            case Undo():
                outcome = self._changes.undo(action) + self._restore_table()
            case Fork():
                outcome = self._changes.fork(action)
            case Seed():
                outcome = self._seeds.seed(action)
            case Promote():
                outcome = self._changes.promote(action)
            case Repartition():
                outcome = self._changes.repartition(action)
            case Edit():
                outcome = self._changes.edit(action)
            case Migrate():
                outcome = self._changes.migrate(action)
            case Compact():
                outcome = self._changes.compact()
            case Repair():
                outcome = self._changes.repair()
            case Outage():
                outcome = self._run_through_outage(action)
            case Inspect():
                outcome = self._inspect(action)
        checks.check_after_action(self.env, self.stream)
        return outcome

    def inspect_all(self) -> str:
        """Check the state of every batch that can be rewound to, and the late and malformed records of all batches."""
        return "; ".join(self._inspect(Inspect(what)) for what in ("state", "late"))

    def _replace_table(self, replace: ReplaceTable) -> str:
        """Replace the static table, unless a killed job left a batch that may have been written with this one."""
        planned = self.env.read_lineage(self.stream).planned
        if planned is not None and planned.identity in self.env.unfinished:
            return "not replaced: a batch is unfinished"
        self.tally["tables"] += 1
        return f"version {self.env.table.version + 1}: {self.env.table.replace(replace.seed)} products"

    def _restore_table(self) -> str:
        """Go back to the table of an unfinished batch that an undo brought back, because its rows may be written."""
        planned, table = self.stream.lineage.planned, self.env.table
        version = self.env.unfinished.get(planned.identity, table.version) if planned else table.version
        if version == table.version:
            return ""
        table.restore(version)
        return f", and the table of version {version} is back"

    def _run(self, run: Run) -> str:
        arguments, before = self.env.run_arguments(self.stream, run.limit), self.env.read_lineage(self.stream)
        # Without Headwater, nothing recognizes a batch that Spark cannot finish; and a first run records the sink.
        is_attached = run.attached and before.planned is None and before.head >= 0

        def start() -> CommandResult:
            if run.command:
                return Command(arguments, self.env.folder, self.env.services.python).wait()
            if is_attached:
                return self.env.worker.run(attached.VERB, *arguments[1:])
            return self.env.worker.run(*arguments)

        result = start()
        if result.code == "batch-stuck":
            self._changes.redo_stuck_batch()
            result = start()
        for _ in range(3):
            if result.spark_gave_up is None:
                break
            self._record_ended_run(result.spark_gave_up)
            result = start()
        self._check_finished_run(result)
        require(PASSWORD not in result.out + result.err, "the password was printed")
        self.tally["attached runs"] += is_attached
        how = ", in a process of its own" if run.command else ", attached" if is_attached else ""
        return f"ran to batch {self.stream.lineage.head}{how}"

    def _kill_run(self, run: KilledRun) -> str:
        worker, before = self.env.worker, self._checkpoint_files(run.moment)
        with self._meeting.attended() as meeting:
            worker.start(*self.env.run_arguments(self.stream, run.limit))
            wait_for(
                lambda: run.moment == "any" or len(self._checkpoint_files(run.moment) - before) >= run.nth,
                unless=lambda: worker.has_answered,
            )
            wait_for(lambda: False, unless=lambda: worker.has_answered, seconds=run.delay_ms / 1000)
            meeting.ready()
        result = worker.finish_unless_killed()
        if result is not None:
            if result.code == "batch-stuck":
                self._changes.redo_stuck_batch()
                return "refused: batch-stuck, then rewound as the message says"
            if result.spark_gave_up:
                return self._record_ended_run(result.spark_gave_up)
            self._check_finished_run(result)
            return f"ran to batch {self.stream.lineage.head} before it could be killed"
        self._record_run()
        self.tally["kills"] += 1
        self.tally[f"kills after {run.moment}"] += 1
        planned = self.stream.lineage.planned
        self.tally["kills in a batch"] += planned is not None
        return f"killed at batch {self.stream.lineage.head}" + (f", {planned.batch_id} planned" if planned else "")

    def _stop_run(self, run: StoppedRun) -> str:
        """Ask a running job to stop, from this process, as from any machine that reaches the checkpoint."""
        worker, before = self.env.worker, self._checkpoint_files("offsets")
        worker.start(*self.env.run_arguments(self.stream, run.limit))
        wait_for(lambda: len(self._checkpoint_files("offsets") - before) >= 1, unless=lambda: worker.has_answered)
        time.sleep(run.delay_ms / 1000)
        stopped = run_in_process("stop", self.stream.checkpoint, *(["--now"] if run.now else []))
        result = worker.finish()
        if result.code == "batch-stuck":
            self._changes.redo_stuck_batch()
            return "refused: batch-stuck, then rewound as the message says"
        if result.spark_gave_up:
            return self._record_ended_run(result.spark_gave_up)
        require(stopped.status == 0, "stop failed:", stopped.err)
        require(
            result.status == 0, "a job that was asked to stop exited with status", result.status, result.err[-2000:]
        )
        self._record_run()
        self.tally["stops"] += 1
        planned = self.stream.lineage.planned
        return f"stopped at batch {self.stream.lineage.head}" + (f", {planned.batch_id} planned" if planned else "")

    def _record_ended_run(self, reason: str) -> str:
        """Record a run that Spark gave up, which the next run must recover from."""
        self._record_run()
        self.tally[reason] += 1
        return f"ended at batch {self.stream.lineage.head}: {reason}"

    def _check_finished_run(self, result: CommandResult) -> None:
        require(result.status == 0, "run exited with status", result.status, result.err[-2000:])
        self._record_run()
        checks.check_drained(self.env, self.stream)
        self.tally["runs"] += 1

    def _record_run(self) -> None:
        self.tally["batches"] += checks.record_run(self.env, self.stream)
        planned = self.stream.lineage.planned
        if planned is not None:
            self.env.unfinished[planned.identity] = self.env.table.version

    def _checkpoint_files(self, moment: str) -> set[str]:
        """Return the files whose appearance marks a moment of a batch."""
        checkpoint = self.stream.checkpoint
        sink = self.stream.sink
        logs = {
            "files": sink / "_spark_metadata",
            "delta": sink / "_delta_log",
            "iceberg": iceberg_metadata(sink),
        }
        folders = {
            "offsets": [checkpoint / "offsets"],
            "commits": [checkpoint / "commits"],
            "sources": [checkpoint / "sources" / str(number) for number, _ in enumerate(self.env.job.sources)],
            "sink": [logs.get(self.env.cell.sink, checkpoint / "commits")],
            "state": [place for part in ("0", "1") for place in _with_folders(checkpoint / "state" / "0" / part)],
        }.get(moment, [])
        return {f"{folder}/{name}" for folder in folders for name in _file_names(folder)}

    def _run_through_outage(self, outage: Outage) -> str:
        worker, before = self.env.worker, self._checkpoint_files("offsets")
        with self._meeting.attended() as meeting:
            worker.start(*self.env.run_arguments(self.stream, outage.limit))
            wait_for(lambda: len(self._checkpoint_files("offsets") - before) >= 1, unless=lambda: worker.has_answered)
            meeting.ready()
        result = worker.finish()
        services = [name for name, used in self._services().items() if used]
        for name in services:
            self.tally[f"{name} outages"] += 1
        if result.code == "batch-stuck":
            self._changes.redo_stuck_batch()
            return "refused: batch-stuck, then rewound as the message says"
        if result.spark_gave_up:
            return self._record_ended_run(result.spark_gave_up)
        if result.status == 0 or not services:
            self._check_finished_run(result)
            return f"the job continued to batch {self.stream.lineage.head}"
        self._record_run()
        checks.require_clear_error(result)
        return f"the job ended: {result.code}"

    def _services(self) -> dict[str, bool]:
        return {"broker": self.env.cell.uses_kafka, "postgresql": self.env.cell.sink == "postgresql"}

    def _inspect(self, inspect: Inspect) -> str:
        lineage = self.env.read_lineage(self.stream)
        if lineage.head < 0:
            return "no committed batch yet"
        self.tally["looks"] += 1
        match inspect.what:
            case "state":
                return f"state of {checks.check_states(self.env, self.stream)} batches"
            case "spark-state":
                var = ["--var", self.env.job.var] if self.env.job.var else []
                arguments = ["state", self.stream.checkpoint, "--at", lineage.head, "--engine", "spark", "--json", *var]
                result = self.env.worker.run(*arguments)
                require(result.status == 0, "state --engine spark failed:", result.err[-2000:])
                rows = [checks.parse_row(line) for line in result.out.splitlines()]
                expected = self.env.expected_batches(lineage)[lineage.head].state
                checks.compare_state(self.env, rows, lineage.head, expected)
                return f"Spark's reader returns the same {len(rows)} rows"
            case "late":
                result = self.env.worker.run("late", self.stream.checkpoint, "--json")
                require(result.status == 0, "late failed:", result.err[-2000:])
                checks.check_late(self.env, self.stream, result.out)
                return f"all {len(result.out.splitlines())} late and malformed records"
            case "diff":
                first = min(int(name) for name in _file_names(self.stream.checkpoint / "commits") if name.isdigit())
                a = max(first, lineage.head - 3)
                checks.check_diff(self.env, self.stream, a, lineage.head)
                return f"diff of {a} and {lineage.head}"


def _with_folders(folder: Path) -> list[Path]:
    """Return a folder and those in it: a join has one for each of its four stores."""
    return [folder, *(folder / name for name in _file_names(folder) if "." not in name)]


def _file_names(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir() if not file.name.startswith(".")]
    except OSError:
        return []
