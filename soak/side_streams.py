"""Streams next to the main one: forks, which are run to the end of the input, and checkpoints seeded from history."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from headwater.timemachine.seed import UNFINISHED
from soak import checks
from soak.checks import require
from soak.environment import StoryEnvironment, Stream
from soak.meeting import Meeting
from soak.processes import CommandResult, wait_for
from soak.story import Seed


def run_to_end(env: StoryEnvironment, stream: Stream, limit: int, tally: Counter[str]) -> None:
    """Run a stream to the end of the input, and check it."""
    for _ in range(4):
        run = env.worker.run(*env.run_arguments(stream, limit))
        if run.spark_gave_up is None:
            break
        tally["batches"] += checks.record_run(env, stream)
        tally[run.spark_gave_up] += 1
    require(run.status == 0, f"{stream.name} failed to run:", run.err[-2000:])
    tally["batches"] += checks.record_run(env, stream)
    checks.check_after_action(env, stream)
    checks.check_drained(env, stream)


@dataclass
class Seeds:
    """Seeds checkpoints with records that the topics have, written to files.

    To the oracle, such a checkpoint is one whose first batch has read all of these records.
    """

    env: StoryEnvironment
    tally: Counter[str]
    meeting: Meeting

    def seed(self, seed: Seed) -> str:
        stream = self.env.create_stream(f"seed{self.tally['seeds']}")
        arguments = ["seed", *self.env.job_arguments(stream, seed.limit), "--output", "write", "--yes", "--json"]
        for source in self.env.job.sources:
            arguments += self._history(stream, source, seed.share)
        killed = False
        if seed.kill_after_ms is None:
            result = self.env.worker.run(*arguments)
        else:
            answer = self._run_until_killed(arguments, seed.kill_after_ms)
            killed = answer is None
            result = answer or self._repeat(stream, arguments, seed.limit)
        for _ in range(3):
            if result.spark_gave_up is None:
                break
            self.tally[result.spark_gave_up] += 1
            result = self.env.worker.run(*arguments)
        require(result.status == 0, "seed failed:", result.err[-2000:])
        self.tally["batches"] += checks.record_run(self.env, stream)
        checks.check_after_action(self.env, stream)
        seeded = stream.lineage.head
        run_to_end(self.env, stream, seed.limit, self.tally)
        self.tally["seeds"] += 1
        self.tally["kills of seeds"] += killed
        again = ", killed and repeated" if killed else ""
        return f"seeded{again}, and ran from batch {seeded} to {stream.lineage.head}"

    def _history(self, stream: Stream, source: str, share: float) -> list[str]:
        """Write the records before a position to a folder, and return the options for both."""
        topic, name = self.env.topics[source], f"{source}=" if source else ""
        of_topic = [place for place in self.env.records if place[0] == topic]
        sent = Counter(partition for _, partition, _ in of_topic)
        position = {str(partition): int(count * share) for partition, count in sent.items()}
        before = [place for place in sorted(of_topic) if place[2] < position[str(place[1])]]
        if not before:
            return ["--from", f"{name}none", "--at", f"{name}earliest"]
        folder = self.env.folder / f"{stream.name}-history" / (source or "only")
        _write_lines(folder / "records.json", [self.env.records[place].data for place in before])
        offsets = json.dumps({topic: {"0": 0, "1": 0, **position}})
        return ["--from", f"{name}files:{folder}?format=json", "--at", f"{name}{offsets}"]

    def _run_until_killed(self, arguments: list[str], kill_after_ms: float) -> CommandResult | None:
        with self.meeting.attended() as meeting:
            self.env.worker.start(*arguments)
            wait_for(lambda: False, unless=lambda: self.env.worker.has_answered, seconds=kill_after_ms / 1000)
            meeting.ready()
        return self.env.worker.finish_unless_killed()

    def _repeat(self, stream: Stream, arguments: list[str], limit: int) -> CommandResult:
        """Repeat a seed that was killed. If it had reserved its place, no job may start there before it is complete."""
        metadata = stream.checkpoint / "metadata"
        if metadata.exists() and metadata.read_bytes() == UNFINISHED:
            early = self.env.worker.run(*self.env.run_arguments(stream, limit))
            require(early.code == "incomplete-seed", "a job started on an incomplete seed:", early.err[-2000:])
        result = self.env.worker.run(*arguments)
        return CommandResult(0) if result.code == "checkpoint-exists" else result


def _write_lines(file: Path, lines: list[bytes | None]) -> None:
    """Write the records that have a value: a file cannot hold the others, and a job cannot decode them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(line + b"\n" for line in lines if line is not None))
