"""Promotions of forks, without Spark."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from broker_support import run_here
from headwater.checkpoint.file_logs import FileSinkLog, log_with
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_checkpoint
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.moved import POINTER, read_pointer, refuse_if_moved
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.core.errors import ChangeRefused
from headwater.spark.ownership import checkpoint_location
from headwater.timemachine import interrupted
from headwater.timemachine.catching_up import lag_of, shared_parts
from headwater.timemachine.cuts import relative_to_sink
from headwater.timemachine.fork import plan_query_fork
from headwater.timemachine.journal import read_entries, read_pending
from headwater.timemachine.promote import PromotePlan, PromoteUndoPlan, plan_promotion, plan_promotion_undo
from headwater.timemachine.takeover import Takeover, TakeoverUndo, is_taken_over
from headwater.views.promote_text import compared
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule, failing_after
from timemachine.test_cascade import Files
from timemachine.test_move import at_home, errors_in
from timemachine.test_rewind_and_undo import bytes_of
from timemachine.trees import checkpoint

AT, LAST = 1, 4


class Twins:
    """A stream from Kafka to files, and a fork of it that has run ``upto`` a batch, with files of its own."""

    def __init__(self, home: Path, upto: int = LAST, sink: str = "files") -> None:
        self.path = at_home("kafka-to-files", home / "original")
        self.original, self.fork = LocalTree(self.path), LocalTree(home / "fork")
        self.folders = self.path.parent / "sink", home / "fork sink"
        uris = [
            f"files:{folder}?format=json" if sink == "files" else f"kafka://h/{folder.name}" for folder in self.folders
        ]
        self.original.write(JOB_FILE, JobRecord("visits", sink=uris[0], mode="append").to_bytes())
        plan_query_fork(self.original, str(self.fork.root), at=str(AT), sink=f"files:{self.folders[1]}").apply()
        self.fork.write(JOB_FILE, JobRecord("visits", sink=uris[1], mode="append").to_bytes())
        for batch in range(AT + 1, upto + 1):
            self._run(batch)

    def _run(self, batch: int) -> None:
        """Do to the fork what a run of a batch does: the same offsets, and the same rows in files of its own."""
        for folder in ("offsets", "commits"):
            self.fork.write(f"{folder}/{batch}", self.original.read(f"{folder}/{batch}"))
            shutil.copystat(self.path / folder / str(batch), self.fork.root / folder / str(batch))
        theirs, own = (LocalTree(folder) for folder in self.folders)
        log = FileSinkLog(theirs)
        known = {entry.path for number in range(batch) for entry in log.read(number).entries}
        lines = []
        for number, entry in enumerate(one for one in log.read(batch).entries if one.path not in known):
            name = f"part-{batch}-{number}.json"
            data = theirs.read(relative_to_sink(theirs, entry.path))
            own.write(name, data)
            path = f"file://{own.root}/{name}".replace(" ", "%20")
            lines.append(json.dumps({"path": path, "size": len(data), "action": "add"}))
        own.write(f"_spark_metadata/{batch}", "\n".join(["v1", *lines]).encode())

    def plan(self, **options) -> PromotePlan:
        return plan_promotion(self.fork, **options)


def test_a_fork_that_lags_is_not_promoted(tmp_path: Path) -> None:
    """The lag is in records of the topic; a fork that is behind and does not run is refused with the numbers."""
    twins = Twins(tmp_path, upto=2)
    plan = twins.plan()
    assert [(one.kind, one.behind, one.unit) for one in plan.lag] == [("kafka", 18, "record")]
    assert not plan.caught_up and plan.runs == (False, False)
    refused = run_here("promote", twins.fork.location, "--yes")
    assert (refused.returncode, "error[fork-behind]" in refused.stderr) == (15, True)
    assert "18 records" in refused.stderr
    assert twins.plan(lag=18).caught_up
    shown = json.loads(run_here("promote", twins.fork.location, "--dry-run", "--json").stdout)
    assert (shown["caught_up"], shown["lag"][0]["behind"], shown["at"]) == (False, 18, AT)
    refuse_if_moved(twins.original)


def test_what_both_wrote_is_compared(tmp_path: Path) -> None:
    """Parts with the same input are compared row by row, and a row that differs is shown with both values."""
    twins = Twins(tmp_path)
    plan = twins.plan()
    assert [(one.part.original, one.part.fork) for one in plan.written] == [((n, n), (n, n)) for n in (2, 3, 4)]
    assert plan.not_compared is None and all(rows.same and one.original for one, rows in compared(plan))
    file = min(twins.folders[1].glob("part-3-*.json"))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    column = next(name for name, value in rows[0].items() if isinstance(value, int))
    file.write_text("\n".join(json.dumps({**row, column: -7} if row is rows[0] else row) for row in rows))
    shown = run_here("promote", twins.fork.location, "--dry-run")
    assert "different rows in 1 of 3 parts" in shown.stdout
    assert f'"{column}": -7' in shown.stdout
    found = json.loads(run_here("promote", twins.fork.location, "--dry-run", "--json").stdout)["compared"]
    assert [part["same"] for part in found] == [True, False, True]


def test_other_batches_of_the_same_input(tmp_path: Path) -> None:
    """A fork that has read the input of two batches in one is compared where both have read the same."""
    twins = Twins(tmp_path, upto=LAST)
    for folder in ("offsets", "commits"):
        twins.fork.write(f"{folder}/2", twins.original.read(f"{folder}/3"))
        twins.fork.write(f"{folder}/3", twins.original.read(f"{folder}/4"))
        twins.fork.remove(f"{folder}/4")
    parts = list(shared_parts(History(twins.original), History(twins.fork), AT))
    assert [(part.original, part.fork) for part in parts] == [((2, 3), (2, 2)), ((4, 4), (3, 3))]


def test_the_fork_gets_the_place_of_the_original(tmp_path: Path) -> None:
    """The path of the original refers to the fork; the original keeps its files, and undo lets it run again."""
    twins = Twins(tmp_path)
    before, fork_before = bytes_of(twins.path), bytes_of(twins.fork.root)
    done = run_here("promote", twins.fork.location, "--keep-sink", "--yes")
    assert done.returncode == 0, done.stderr
    assert "the same rows" in done.stdout
    assert f"the fork keeps writing to files:{twins.folders[1]}" in done.stdout
    with pytest.raises(ChangeRefused, match="promoted in place of this"):
        refuse_if_moved(twins.original)
    assert open_checkpoint(str(twins.path)).location == twins.fork.location
    assert "was promoted in its place" in run_here("log", twins.path).stderr
    assert checkpoint_location(str(twins.path), _job()) == twins.fork.location
    again = run_here("promote", twins.fork.location, "--yes")
    assert "error[nothing-to-do]" in again.stderr
    now = bytes_of(twins.path)
    left = {path for path in before if path != ".metadata.crc" and now[path] != before[path]}
    assert left == {"metadata"}
    undone = run_here("undo", twins.path, "--yes")
    assert undone.returncode == 0, undone.stderr
    now = bytes_of(twins.path)
    assert {path: now[path][0] for path in before} == {path: data for path, (data, _) in before.items()}
    assert bytes_of(twins.fork.root) == fork_before
    assert open_checkpoint(str(twins.path)).location == str(twins.path)


def test_run_knows_checkpoints_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name means the checkpoint of that name, as in other commands, unless there is a folder of that name."""
    monkeypatch.chdir(tmp_path)
    assert checkpoint_location("visits-v2", _job()) == str(tmp_path / "visits-v2")
    known = tmp_path / ".headwater/checkpoints/visits-v2"
    known.mkdir(parents=True)
    assert checkpoint_location("visits-v2", _job()) == str(known)
    assert checkpoint_location("./visits-v2", _job()) == str(tmp_path / "visits-v2")
    (tmp_path / "visits-v2").mkdir()
    assert checkpoint_location("visits-v2", _job()) == str(tmp_path / "visits-v2")


def _job():
    from headwater import Files, Job

    return Job("visits", lambda rows: rows, reads=Files("in", schema="a STRING", format="json"), writes=Files("out"))


def test_sinks_that_do_not_show_batches(tmp_path: Path) -> None:
    """Rows in a topic are not compared, with the reason; a checkpoint that is not a fork needs a name."""
    twins = Twins(tmp_path, sink="kafka")
    plan = twins.plan()
    assert plan.written == () and "kafka" in str(plan.not_compared)
    twins.fork.remove("_headwater/forked_from.json")
    with pytest.raises(ChangeRefused) as refused:
        twins.plan()
    assert refused.value.code == "not-a-fork"
    assert plan_promotion(twins.fork, twins.original).original.location == twins.original.location
    with pytest.raises(ChangeRefused):
        plan_promotion(twins.original, twins.original)


def test_a_source_that_the_original_has_not_read() -> None:
    """Before the first record of a source its offset is empty; a fork that has read it is not behind."""
    complete, partial = MemoryTree(checkpoint("join-hdfs")), MemoryTree(checkpoint("join-hdfs"))
    last = f"offsets/{History(complete).last_committed}"
    version, metadata, _, other = partial.read(last).decode().split("\n")
    partial.write(last, "\n".join([version, metadata, "-", other]).encode())
    assert [one.behind for one in lag_of(History(partial), History(complete))] == [0, 0]
    first, second = lag_of(History(complete), History(partial))
    assert (first.behind or 0) > 0
    assert second.behind == 0


def test_file_sources_are_compared_by_their_files(tmp_path: Path) -> None:
    """The log offsets of two queries differ, so the files that were read count."""
    lake = Files(tmp_path)
    fork = tmp_path / "fork"
    plan_query_fork(LocalTree(lake.b), str(fork), at="3").apply()
    lag = lag_of(History(LocalTree(lake.b)), History(LocalTree(fork)))
    assert [(one.kind, one.behind, one.unit) for one in lag] == [("files", 3, "file")]


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
def test_a_promotion_can_be_interrupted(medium: type[CrashingDisk]) -> None:
    """Whenever it or its undo ends, the same command finishes it, and the files of the original are as they were."""
    start = checkpoint("aggregation-changelog")

    def promotion(tree: CrashingDisk) -> None:
        fork = CrashingDisk({"metadata": b"{}"}, CrashSchedule(), "/fork")
        PromotePlan(fork, tree, None, (), 0, (), None, (None, None), (False, False), ()).carry_out()

    def undo(tree: CrashingDisk) -> None:
        pointer = read_pointer(tree)
        if pointer is not None:
            PromoteUndoPlan(tree, pointer).carry_out()

    whole = medium(dict(start), CrashSchedule(), "/original")
    promotion(whole)
    points = 0
    for action, begin in ((promotion, start), (undo, dict(whole.contents))):
        counted = medium(dict(begin), CrashSchedule(), "/original")
        action(counted)
        points += counted.schedule.passed
        for crash_at in range(counted.schedule.passed):
            tree = medium(dict(begin), CrashSchedule(crash_at), "/original")
            with contextlib.suppress(Crashed):
                action(tree)
            again = medium(dict(tree.contents), CrashSchedule(), "/original")
            action(again)
            is_promoted = action is promotion
            assert (POINTER in again.contents) == is_promoted
            assert again.contents["metadata"].startswith(b"{") != is_promoted, crash_at
            rest = {path: data for path, data in again.contents.items() if path in start and "metadata" not in path}
            assert rest == {path: data for path, data in start.items() if path in rest}
            if not is_promoted:
                assert {path: again.contents[path] for path in start} == start, crash_at
    print(f"promote on {medium.__name__.lower()}: {points} points")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def listed(folder: Path) -> dict[str, bytes]:
    """Return what readers of a file sink see: the data files that its log lists."""
    sink = LocalTree(folder)
    log = FileSinkLog(sink)
    paths = [
        relative_to_sink(sink, one.path)
        for number in log.names.needed_for(log.names.latest)
        for one in log.read(number).entries
    ]
    assert len(paths) == len(set(paths))
    return {path: sink.read(path) for path in paths}


def without_own(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not path.startswith("_headwater/")}


def expected(twins: Twins) -> list[bytes]:
    """Return the files of the original up to the fork, and those of the fork."""
    log = FileSinkLog(LocalTree(twins.folders[0]))
    earlier = [one.path for number in range(AT + 1) for one in log.read(number).entries]
    sink = LocalTree(twins.folders[0])
    return sorted([*(sink.read(relative_to_sink(sink, path)) for path in earlier), *listed(twins.folders[1]).values()])


@pytest.mark.parametrize("case", ["as it was", "original compacted", "fork compacted", "both compacted"])
def test_the_fork_continues_in_the_files_of_the_original(tmp_path: Path, case: str) -> None:
    """The folder lists the original's files up to the fork and then the fork's; undo restores every byte of it."""
    twins = Twins(tmp_path)
    rows = expected(twins)
    for folder, who in zip(twins.folders, ("original", "fork"), strict=True):
        if case.startswith((who, "both")):
            _compact(folder)
    out, new = twins.folders
    before, own_before, fork_before = contents(out), contents(new), contents(twins.fork.root)
    done = run_here("promote", twins.fork.location, "--yes")
    assert done.returncode == 0, done.stderr
    assert "set aside" in done.stdout and f"--sink 'files:{out}?format=json'" in done.stderr
    assert sorted(listed(out).values()) == rows
    assert without_own(contents(new)) == own_before
    assert read_job_record(twins.fork).sink == f"files:{out}?format=json"
    assert errors_in(twins.fork.root, out) == []
    assert "error[part-of-a-promotion]" in run_here("undo", twins.fork.location, "--yes").stderr
    undone = run_here("undo", twins.path, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert without_own(contents(out)) == before
    assert without_own(contents(new)) == own_before
    after = contents(twins.fork.root)
    assert {path: after[path] for path in fork_before if "lease" not in path} == fork_before


def _compact(folder: Path) -> None:
    """Do what Spark does after a while: the last log file lists everything, and the earlier ones are removed."""
    sink = LocalTree(folder)
    log = FileSinkLog(sink)
    latest = log.names.latest
    everything = [one for number in log.names.needed_for(latest) for one in log.read(number).entries]
    for name in [entry.name for entry in sink.entries("_spark_metadata")]:
        sink.remove(f"_spark_metadata/{name}")
    sink.write(f"_spark_metadata/{latest}.compact", log_with(everything))


def test_undo_after_the_fork_ran_on(tmp_path: Path) -> None:
    """Rows that the fork has written to the original's folder since are in its own folder after the undo."""
    twins = Twins(tmp_path, upto=LAST - 1)
    out, new = twins.folders
    before = contents(out)
    twins.plan(lag=100).apply()
    for folder in ("offsets", "commits"):
        twins.fork.write(f"{folder}/{LAST}", twins.original.read(f"{folder}/{LAST}"))
    LocalTree(out).write("part-since.json", b"{}")
    line = json.dumps({"path": f"file://{out}/part-since.json", "action": "add"})
    LocalTree(out).write(f"_spark_metadata/{LAST}", f"v1\n{line}".encode())
    seen = listed(new)
    shown = run_here("undo", twins.path, "--dry-run")
    assert "batch 4" in shown.stdout
    assert run_here("undo", twins.path, "--yes").returncode == 0
    assert without_own(contents(out)) == before
    assert listed(new) == {**seen, "part-since.json": b"{}"}


def test_sinks_that_cannot_be_taken_over(tmp_path: Path) -> None:
    """A reason that a user can remove is refused with --keep-sink as remedy; other kinds keep their sinks, with the reason."""
    twins = Twins(tmp_path / "a")
    out, new = twins.folders
    log = FileSinkLog(LocalTree(out))
    lost = next(one.path for number in range(AT + 1) for one in log.read(number).entries)
    (out / relative_to_sink(LocalTree(out), lost)).unlink()
    refused = run_here("promote", twins.fork.location, "--yes")
    assert refused.returncode == 15
    assert "error[sink-not-taken-over]" in refused.stderr and "--keep-sink" in refused.stderr
    refuse_if_moved(twins.original)
    twins.fork.write(JOB_FILE, JobRecord("visits", sink=f"files:{new}?format=parquet", mode="append").to_bytes())
    assert "different options" in run_here("promote", twins.fork.location, "--yes").stderr
    for kind, why in (
        ("kafka://h:1/b", "a topic cannot be renamed"),
        ("postgresql://u@h/d?table=t&key=a", "PostgreSQL"),
    ):
        for files in (twins.original, twins.fork):
            sink = kind.replace("b", "c").replace("=t", "=t2") if files is twins.original else kind
            files.write(JOB_FILE, JobRecord("visits", sink=sink, mode="append").to_bytes())
        plan = twins.plan()
        assert plan.takeover is None and why in plan.warnings[0]


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_takeover_can_be_interrupted(tmp_path: Path, medium: type[CrashingDisk], every: int) -> None:
    """Whenever it or its undo ends, the same command finishes it: the sink lists the old files or the new ones."""
    twins = Twins(tmp_path)
    out, new = twins.folders
    start, own = (contents(twins.fork.root), contents(out)), MemoryTree(contents(new))
    planned = twins.plan().takeover
    twins.plan().apply()
    back = plan_promotion_undo(twins.original, read_pointer(twins.original)).takeover
    changed = contents(twins.fork.root), contents(out)

    def promotion(fork: CrashingDisk, sink: CrashingDisk) -> None:
        if not is_taken_over(fork, planned.change.change_id):
            change = replace(planned.change, fingerprint="")
            Takeover(fork, change, own, planned.files, 0, sink=sink).carry_out()

    def undo(fork: CrashingDisk, sink: CrashingDisk) -> None:
        if not any(entry.change.undoes for entry in read_entries(fork)):
            TakeoverUndo(fork, replace(back.change, fingerprint=""), back.done, (), sink).carry_out()

    points = 0
    for action, begin, end in ((promotion, start, changed), (undo, changed, start)):
        schedule = CrashSchedule()
        action(*(medium(dict(one), schedule, str(two)) for one, two in zip(begin, (twins.fork.root, out), strict=True)))
        for crash_at in range(0, schedule.passed, every):
            points += 1
            failing = CrashSchedule(crash_at)
            trees = [
                medium(dict(one), failing, str(two)) for one, two in zip(begin, (twins.fork.root, out), strict=True)
            ]
            with contextlib.suppress(Crashed):
                action(*trees)
            again = [medium(dict(tree.contents), CrashSchedule(), tree.location) for tree in trees]
            metadata = again[0].contents["metadata"]
            as_before = without_own(again[1].contents) == without_own(begin[1])
            as_after = without_own(again[1].contents) == without_own(end[1])
            assert as_before or as_after or not metadata.startswith(b"{"), crash_at
            action(*again)
            assert [without_own(tree.contents) for tree in again] == [without_own(one) for one in end], crash_at
            assert read_job_record(again[0]).sink == f"files:{new if action is undo else out}?format=json"
            assert not [path for path in again[1].contents if "/scratch/" in path]
    print(f"promote with a sink on {medium.__name__.lower()}: {points} points")


def test_an_interrupted_takeover_is_not_undone_as_if_there_were_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original stays closed until the fork's change has ended; then the sink is as before."""
    twins = Twins(tmp_path)
    before = without_own(contents(twins.folders[0]))
    with monkeypatch.context() as killed:
        killed.setattr(LocalTree, "move", failing_after(15, LocalTree.move))
        with contextlib.suppress(Crashed):
            twins.plan().apply()
    assert read_pending(twins.fork) is not None
    pointer = read_pointer(twins.original)
    with pytest.raises(ChangeRefused, match="it was interrupted while the fork took over the sink"):
        plan_promotion_undo(twins.original, pointer)
    interrupted.abort(twins.fork)
    plan_promotion_undo(twins.original, pointer).apply()
    assert without_own(contents(twins.folders[0])) == before
    assert read_pointer(twins.original) is None


def test_copies_for_a_takeover_that_did_not_begin_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The undo leaves nothing of the fork in the sink of the original."""
    twins = Twins(tmp_path)
    before = without_own(contents(twins.folders[0]))
    with monkeypatch.context() as killed:
        killed.setattr(LocalTree, "share", failing_after(3, LocalTree.share))
        with contextlib.suppress(Crashed):
            twins.plan().apply()
    assert contents(twins.folders[0]).keys() - before.keys()
    pointer = read_pointer(twins.original)
    assert pointer is not None
    plan_promotion_undo(twins.original, pointer).apply()
    assert contents(twins.folders[0]) == before


def test_sources_at_other_places_are_compared_by_what_they_read() -> None:
    """The fork's code may have a new source in front, or its sources in another order."""

    def read(*batches: list[dict[str, object]]) -> History:
        tree = MemoryTree()
        for number, sources in enumerate(batches):
            lines = ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', *map(json.dumps, sources)]
            tree.write(f"offsets/{number}", "\n".join(lines).encode())
            tree.write(f"commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
        return History(tree)

    def version(table: str, number: int) -> dict[str, object]:
        place = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": number}
        return {**place, "index": -1, "isStartingVersion": False}

    clicks, views = {"clicks": {"0": 100}}, {"views": {"0": 9}}
    assert [one.behind for one in lag_of(read([clicks]), read([views, clicks]))] == [0]
    original = read([version("t1", 100), version("t2", 7)])
    assert [one.behind for one in lag_of(original, read([version("t2", 7), version("t1", 10)]))] == [90, 0]


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_checkpoint_has_one_place_however_it_is_spelled(tmp_path: Path, prefix: str) -> None:
    """As for all other commands, and as Spark writes a local folder."""
    assert checkpoint_location(f"{prefix}{tmp_path}/visits", _job()) == f"{tmp_path}/visits"
