"""Carries out the actions of a story on its stage, and says after each whether all is as it should be."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from soak import checking
from soak.checking import demand
from soak.lineage import Lineage
from soak.processes import Command, Told, in_process, wait_for
from soak.services import PASSWORD
from soak.stage import Stage, Stream
from soak.story import (
    Action,
    Compact,
    Feed,
    Fork,
    KilledRun,
    Look,
    Outage,
    Repair,
    Repartition,
    Rewind,
    Run,
    Undo,
)

NOISE = ("Traceback", "at org.apache", "at java.", "SQLSTATE")


@dataclass
class ChangeMade:
    """A change that ``undo`` could take back, as far as we know."""

    verb: str
    before: Lineage
    committed_then: int
    emptied: bool = False


@dataclass
class Actor:
    """Tells the story. ``tally`` counts what happened; ``refused`` what the product would not do, by its code."""

    stage: Stage
    tally: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    changes: list[ChangeMade] = field(default_factory=list)

    @property
    def stream(self) -> Stream:
        return self.stage.main

    def act(self, action: Action) -> str:
        """Carry out one action, check, and say in a few words what came of it."""
        match action:
            case Feed():
                count = self.stage.feed(action)
                self.tally["records"] += count
                return f"{count} records"
            case Run():
                said = self._run(action)
            case KilledRun():
                said = self._killed_run(action)
            case Rewind():
                said = self._rewind(action)
            case Undo():
                said = self._undo(action)
            case Fork():
                said = self._fork(action)
            case Repartition():
                said = self._repartition(action)
            case Compact():
                said = self._compact()
            case Repair():
                said = self._repair()
            case Outage():
                said = self._outage(action)
            case Look():
                said = self._look(action)
        checking.check_after_action(self.stage, self.stream)
        return said

    # Runs

    def _run(self, run: Run) -> str:
        words = self.stage.run_words(self.stream, run.limit)

        def start() -> Told:
            return Command(words, self.stage.folder).wait() if run.command else self.stage.services.worker.ask(*words)

        told = start()
        if told.code == "batch-stuck":
            self._redo_planned()
            told = start()
        demand(told.status == 0, "run ended with", told.status, told.err[-2000:])
        demand(PASSWORD not in told.out + told.err, "a password was printed")
        self._note_run()
        checking.check_drained(self.stage, self.stream)
        self.tally["runs"] += 1
        return f"ran to batch {self.stream.lineage.head}" + (", a process of its own" if run.command else "")

    def _killed_run(self, run: KilledRun) -> str:
        worker, before = self.stage.services.worker, self._files_of(run.moment)
        worker.make_ready()
        worker.begin(*self.stage.run_words(self.stream, run.limit))
        wait_for(
            lambda: run.moment == "any" or len(self._files_of(run.moment) - before) >= run.nth,
            unless=lambda: worker.has_answered,
        )
        time.sleep(run.delay_ms / 1000)
        if worker.has_answered:
            told = worker.end()
            if told.code == "batch-stuck":
                self._redo_planned()
                return "refused: batch-stuck, and rewound as it was told to"
            demand(told.status == 0, "run ended with", told.status, told.err[-2000:])
            self._note_run()
            checking.check_drained(self.stage, self.stream)
            self.tally["runs"] += 1
            return f"ran to batch {self.stream.lineage.head} before it could be killed"
        worker.kill(leader_only=run.python_only)
        self.stage.services.replace_worker()
        self._note_run()
        self.tally["kills"] += 1
        self.tally[f"kills after {run.moment}"] += 1
        planned = self.stream.lineage.planned
        self.tally["kills in a batch"] += planned is not None
        return f"killed at batch {self.stream.lineage.head}" + (f", {planned.batch_id} planned" if planned else "")

    def _note_run(self, stream: Stream | None = None) -> None:
        """Take down which batches have run since the last look, and what they wrote."""
        stream = stream or self.stream
        before, now = stream.lineage, self.stage.read_lineage(stream)
        kept = [batch.identity for batch in before.committed]
        demand(
            [batch.identity for batch in now.batches][: len(kept)] == kept,
            "a run has changed batches that were committed",
        )
        planned = before.planned
        if planned is not None and len(now.batches) > planned.batch_id:
            demand(
                now.batches[planned.batch_id].identity == planned.identity,
                f"batch {planned.batch_id} was planned and ran with other offsets",
            )
        for result, batch in zip(self.stage.results(now), now.batches, strict=True):
            if batch.batch_id <= before.head:
                continue
            if batch.committed:
                stream.writes.ran(result)
                self.tally["batches"] += 1
            else:
                stream.writes.may_have_run(result)
        stream.lineage = now

    def _files_of(self, moment: str) -> set[str]:
        checkpoint = self.stream.checkpoint
        folders = {
            "offsets": [checkpoint / "offsets"],
            "commits": [checkpoint / "commits"],
            "sources": [checkpoint / "sources" / "0"],
            "sink": [
                self.stream.sink / "_spark_metadata" if self.stage.cell.sink == "files" else checkpoint / "commits"
            ],
            "state": [checkpoint / "state" / "0" / part for part in ("0", "1", "0/default", "1/default")],
        }.get(moment, [])
        return {f"{folder}/{name}" for folder in folders for name in _names(folder)}

    # Changes

    def _rewind(self, rewind: Rewind) -> str:
        before = self.stage.read_lineage(self.stream)
        target = -1 if rewind.back is None else max(-1, before.head - rewind.back)
        words = ["rewind", str(self.stream.checkpoint), "--yes", "--json", *(["--replan"] if rewind.replan else [])]
        words += ["--redo", "0"] if target < 0 else ["--to", str(target)]

        def is_after(now: Lineage) -> bool:
            kept = [batch.identity for batch in before.batches if batch.batch_id <= target]
            found = now.identities()
            next_one = before.identities()[len(kept) : len(kept) + 1]
            return found == kept or (not rewind.replan and found == kept + next_one)

        ended = self._change(words, "rewind", before, is_after, rewind.kill_after_ms, rewind.ending)
        return ended if ended else f"rewound from {before.head} to {target}"

    def _redo_planned(self) -> None:
        """What ``run`` says is to be done about a batch that Spark cannot finish."""
        before = self.stage.read_lineage(self.stream)
        demand(before.planned is not None, "a batch is stuck that is not planned")
        words = ["rewind", str(self.stream.checkpoint), "--yes", "--json", "--redo", str(before.head + 1)]
        ended = self._change(words, "rewind", before, lambda now: now == before, None, "")
        demand(ended == "", "the remedy for a stuck batch was", ended)
        self.refused["run: batch-stuck"] += 1

    def _undo(self, undo: Undo) -> str:
        before = self.stage.read_lineage(self.stream)
        last = self.changes[-1] if self.changes else None
        words = ["undo", str(self.stream.checkpoint), "--yes", "--json", *(["--drop-newer"] if undo.drop_newer else [])]

        def is_after(now: Lineage) -> bool:
            assert last is not None
            if last.verb == "repair":
                return now.identities() == before.identities()
            return now.identities() == last.before.identities() and now.head == last.before.head

        ended = self._change(words, "undo", before, is_after, undo.kill_after_ms, undo.ending)
        return ended if ended else f"undid a {last.verb if last else ''}"

    def _change(
        self,
        words: list[str],
        verb: str,
        before: Lineage,
        is_after: Callable[[Lineage], bool],
        kill_after_ms: float | None,
        ending: str,
    ) -> str:
        """Empty when the change was made, else what happened instead."""
        cut_short = ""
        if kill_after_ms is None:
            told = in_process(*words)
        else:
            told, cut_short = self._killed_change(words, kill_after_ms, ending, before)
        if told.status not in (0, None):
            demand(told.code is not None and not any(noise in told.err for noise in NOISE), told.err)
            self._demand_refusal(verb, str(told.code), before, drop_newer="--drop-newer" in words)
            now = self.stage.read_lineage(self.stream)
            demand(now == before, f"a refused {verb} changed the checkpoint")
            self.refused[f"{verb}: {told.code}"] += 1
            return f"refused: {told.code}{cut_short}"
        now = self.stage.read_lineage(self.stream)
        same = now.identities() == before.identities() and now.head == before.head
        if cut_short.endswith("taken back") or (told.status is None and same):
            demand(same, f"a {verb} that was taken back is not: {now.identities()}")
            return f"{verb} {cut_short or 'killed before it began'}"
        demand(is_after(now), f"after {verb} the batches are {now.identities()}, before {before.identities()}")
        self.stream.lineage = now
        if verb == "undo":
            self.changes.pop()
            self.tally["undos"] += 1
        else:
            self.changes.append(ChangeMade(verb, before, now.head))
            self.tally[f"{verb}s"] += 1
        return f"{verb} {cut_short}" if cut_short else ""

    def _killed_change(self, words: list[str], kill_after_ms: float, ending: str, before: Lineage) -> tuple[Told, str]:
        pending = self.stream.checkpoint / "_headwater" / "pending.json"
        command = Command(words, self.stage.folder)
        wait_for(pending.exists, unless=lambda: not command.is_running)
        time.sleep(kill_after_ms / 1000)
        if not command.is_running:
            return command.wait(), ""
        command.kill()
        self.tally["kills of changes"] += 1
        if not pending.exists():
            return Told(None), ""
        self.tally["changes cut short"] += 1
        fsck = in_process("fsck", self.stream.checkpoint, "--json")
        demand(fsck.status == 1 and "interrupted-operation" in fsck.out, "fsck is silent on a cut change:", fsck.out)
        refused = in_process(*self.stage.run_words(self.stream, 1))
        demand(refused.code == "interrupted-operation", "a job may run on half a change:", refused.status, refused.err)
        if ending == "repair":
            told = in_process("fsck", self.stream.checkpoint, "--repair", "--yes", "--json")
            demand(told.status == 0, "fsck --repair did not end the cut change:", told.out, told.err)
            now = self.stage.read_lineage(self.stream)
            back = now.identities() == before.identities() and now.head == before.head
            return Told(0), "cut short, then taken back" if back else "cut short, then repaired"
        told = in_process("rewind", self.stream.checkpoint, f"--{ending}")
        if told.code == "already-done":
            ending, told = "resume", in_process("rewind", self.stream.checkpoint, "--resume")
        demand(told.status == 0, f"--{ending} failed:", told.err)
        return Told(0), f"cut short, then {'finished' if ending == 'resume' else 'taken back'}"

    def _demand_refusal(self, verb: str, code: str, before: Lineage, *, drop_newer: bool) -> None:
        """Refusals have their reasons; any other is a mistake."""
        last = self.changes[-1] if self.changes else None
        small_retention = self.stage.story.retained_batches < 100
        reasons = {
            "rewind: nothing-to-undo": not before.batches or before.head < 0,
            "rewind: state-pruned": small_retention,
            "rewind: cannot-rewind": small_retention,
            "undo: nothing-to-undo": last is None,
            "undo: quarantine-emptied": last is not None and last.emptied,
            "undo: newer-batches": last is not None and before.head >= 0 and not drop_newer,
            "undo: cannot-restore": drop_newer and small_retention,
        }
        demand(reasons.get(f"{verb}: {code}", False), f"{verb} was refused without reason: {code}")

    def _fork(self, fork: Fork) -> str:
        origin = self.stage.read_lineage(self.stream)
        at = origin.head - fork.back
        if at < 0:
            return "too early to fork"
        stream = self.stage.stream(f"fork{self.tally['forks']}")
        sink = ["--sink", self.stage.sink_uri(stream)] if self.stage.cell.sink == "files" else []
        told = in_process("fork", self.stream.checkpoint, stream.checkpoint, "--at", at, *sink)
        if told.code == "cannot-fork":
            demand(self.stage.story.retained_batches < 100, "fork was refused:", told.err)
            self.refused["fork: cannot-fork"] += 1
            return "refused: cannot-fork"
        demand(told.status == 0, "fork:", told.err)
        stream.lineage = Lineage(tuple(batch for batch in origin.batches if batch.batch_id <= at))
        stream.starts_at = at + 1
        now = self.stage.read_lineage(stream)
        demand(now.identities() == stream.lineage.identities(), "the fork has other batches:", now.identities())
        ran = self.stage.services.worker.ask(*self.stage.run_words(stream, fork.limit))
        demand(ran.status == 0, "the fork does not run:", ran.err[-2000:])
        self._note_run(stream)
        checking.check_after_action(self.stage, stream)
        checking.check_drained(self.stage, stream)
        demand(self.stage.read_lineage(self.stream) == origin, "a fork's run has changed the original")
        self.tally["forks"] += 1
        return f"forked at {at} and ran the fork to {stream.lineage.head}"

    def _repartition(self, repartition: Repartition) -> str:
        before = self.stage.read_lineage(self.stream)
        worker = self.stage.services.worker
        worker.make_ready()
        worker.begin("repartition", self.stream.checkpoint, repartition.partitions, "--yes")
        if repartition.kill_after_ms is not None:
            wait_for(lambda: False, unless=lambda: worker.has_answered, seconds=repartition.kill_after_ms / 1000)
            if not worker.has_answered:
                worker.kill()
                self.stage.services.replace_worker()
                self.tally["kills of changes"] += 1
                return self._after_killed_repartition(before)
        told = worker.end()
        if told.status:
            expected = {
                "state-store": self.stage.cell.store == "hdfs",
                "uncommitted-batch": before.planned is not None,
                "nothing-to-do": True,
                "no-state": before.head < 0,
            }
            demand(expected.get(str(told.code), False), "repartition:", told.err)
            demand(self.stage.read_lineage(self.stream) == before, "a refused repartition changed the checkpoint")
            self.refused[f"repartition: {told.code}"] += 1
            return f"refused: {told.code}"
        return self._repartitioned(before)

    def _repartitioned(self, before: Lineage) -> str:
        now = self.stage.read_lineage(self.stream)
        demand(now.identities()[:-1] == before.identities(), "repartition changed older batches")
        demand(now.is_carried(now.head), "repartition added a batch that is not like the one before")
        checking.check_state(self.stage, self.stream, now.head, self.stage.results(now)[-1].state)
        self.stream.lineage = now
        self.changes.append(ChangeMade("repartition", before, now.head))
        self.tally["repartitions"] += 1
        return f"repartitioned in batch {now.head}"

    def _after_killed_repartition(self, before: Lineage) -> str:
        if (self.stream.checkpoint / "_headwater" / "pending.json").exists():
            self.tally["changes cut short"] += 1
            told = in_process("fsck", self.stream.checkpoint, "--repair", "--yes", "--json")
            demand(told.status == 0, "fsck --repair did not end the cut change:", told.out, told.err)
        now = self.stage.read_lineage(self.stream)
        if now == before:
            return "repartition killed, nothing changed"
        return self._repartitioned(before) + ", killed on the way"

    def _compact(self) -> str:
        told = in_process("compact", self.stream.checkpoint, "--yes")
        demand(told.status == 0, "compact:", told.err)
        set_aside = not told.out.startswith("0 files")
        for change in self.changes:
            change.emptied = change.emptied or set_aside
        self.tally["compactions"] += 1
        return told.out.strip()

    def _repair(self) -> str:
        before = self.stage.read_lineage(self.stream)
        told = in_process("fsck", self.stream.checkpoint, "--repair", "--yes", "--json")
        demand(told.status == 0, "fsck --repair:", told.out, told.err)
        demand(self.stage.read_lineage(self.stream) == before, "a repair changed the batches")
        repaired = '"repair":' in told.out
        if repaired:
            self.changes.append(ChangeMade("repair", before, before.head))
        self.tally["repairs"] += 1
        return "repaired" if repaired else "nothing to repair"

    # The world around

    def _outage(self, outage: Outage) -> str:
        self.tally[f"{outage.service} outages"] += 1
        if not outage.during:
            self._take_down(outage.service, orderly=True)
            self._bring_back(outage.service)
            return f"{outage.service} stopped and started"
        worker, before = self.stage.services.worker, self._files_of("offsets")
        worker.make_ready()
        worker.begin(*self.stage.run_words(self.stream, outage.limit))
        wait_for(lambda: len(self._files_of("offsets") - before) >= 1, unless=lambda: worker.has_answered)
        self._take_down(outage.service, orderly=False)
        time.sleep(0.5)
        self._bring_back(outage.service)
        told = worker.end()
        self._note_run()
        if told.status == 0:
            checking.check_drained(self.stage, self.stream)
            return f"{outage.service} died and came back, and the job went on to batch {self.stream.lineage.head}"
        demand(told.code is not None and not any(noise in told.err for noise in NOISE), told.err)
        return f"{outage.service} died and came back, and the job ended: {told.code}"

    def _take_down(self, service: str, *, orderly: bool) -> None:
        services = self.stage.services
        if service == "broker":
            services.kafka.stop() if orderly else services.kafka.kill()
        else:
            services.postgres.bring_down("fast" if orderly else "immediate")

    def _bring_back(self, service: str) -> None:
        services = self.stage.services
        services.kafka.start() if service == "broker" else services.postgres.bring_up()

    def _look(self, look: Look) -> str:
        lineage = self.stage.read_lineage(self.stream)
        if lineage.head < 0:
            return "nothing to see yet"
        self.tally["looks"] += 1
        match look.at:
            case "state":
                return f"state of {checking.check_states(self.stage, self.stream)} batches"
            case "spark-state":
                var = ["--var", self.stage.job.var] if self.stage.job.var else []
                words = ["state", self.stream.checkpoint, "--at", lineage.head, "--engine", "spark", "--json", *var]
                told = self.stage.services.worker.ask(*words)
                demand(told.status == 0, "state --engine spark:", told.err[-2000:])
                rows = [json.loads(line) for line in told.out.splitlines()]
                expected = self.stage.results(lineage)[lineage.head].state
                checking.compare_state(self.stage, rows, lineage.head, expected)
                return f"Spark's own reader sees the same {len(rows)} rows"
            case "late":
                told = self.stage.services.worker.ask("late", self.stream.checkpoint, "--json")
                demand(told.status == 0, "late:", told.err[-2000:])
                checking.check_late(self.stage, self.stream, told.out)
                return f"{len(told.out.splitlines())} late and malformed records, all of them"
            case "diff":
                first = min(int(name) for name in _names(self.stream.checkpoint / "commits") if name.isdigit())
                a = max(first, lineage.head - 3)
                checking.check_diff(self.stage, self.stream, a, lineage.head)
                return f"difference of {a} and {lineage.head}"


def _names(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir() if not file.name.startswith(".")]
    except OSError:
        return []
