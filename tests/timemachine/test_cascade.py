"""Rewinds of streams that read each other's output, without Spark."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from broker_support import run_here
from corpus_support import load
from headwater.checkpoint.file_logs import FileSinkLog, FileSourceLog
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import CASCADE_FILE, JOB_FILE, PENDING_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused, CheckpointBusy
from headwater.lakehouse.delta_actions import commit_path
from headwater.timemachine import interrupted
from headwater.timemachine.cascade import CascadePlan, plan_cascade
from headwater.timemachine.executor import Executor, executor_for
from headwater.timemachine.joint_change import finish_cascade, plan_cascade_undo
from headwater.timemachine.journal import Pending, last_to_undo, read_cascade, refuse_if_pending
from headwater.timemachine.rewind import plan_query_rewind, plan_rewind
from headwater.timemachine.undo import plan_query_undo, plan_undo
from lakehouse.delta_support import Writer, rows_of
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule, Tree
from timemachine.test_move import at_home
from timemachine.test_moved_sources import offsets
from timemachine.test_rewind_and_undo import bytes_of
from timemachine.trees import Contents, as_spark_sees, checkpoint

CONF = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n'


def record(path: Path, job: str, source: str, sink: str) -> None:
    LocalTree(path).write(JOB_FILE, JobRecord(job, source, sink).to_bytes())


class Files:
    """B has read a file of each batch of A, and C one of every second batch of B. Every second batch reads nothing."""

    def __init__(self, home: Path) -> None:
        self.a, self.b, self.c = (home / "jobs" / name for name in "abc")
        home.joinpath("jobs").mkdir(parents=True)
        at_home("kafka-to-files", home / "x").rename(self.a)
        sink = home / "x/kafka-to-files/sink"
        record(self.a, "bronze", "kafka://127.0.0.1:1/visits", f"files:{sink}?format=json")
        self.sink = LocalTree(sink)
        self._reader(self.b, "silver", sink, home / "silver")
        self.middle = LocalTree(home / "silver")
        for batch in range(10):
            name = f"part-{batch:04d}.json"
            self.middle.write(name, b"{}")
            line = {"path": f"file://{self.middle.location}/{name}", "size": 2, "action": "add"}
            self.middle.write(f"_spark_metadata/{batch}", f"v1\n{json.dumps(line)}".encode())
        self._reader(self.c, "gold", home / "silver", home / "gold")

    def _reader(self, path: Path, job: str, folder: Path, sink: Path) -> None:
        """Make a checkpoint whose batches have read the files of a sink, in the order of its log."""
        load("aggregation-changelog", path.parent.parent / f"unpacked {job}").path.rename(path)
        log = FileSinkLog(LocalTree(folder))
        written = list(dict.fromkeys(entry.path for number in log.names.ids for entry in log.read(number).entries))
        own = LocalTree(path)
        source = FileSourceLog(own, "sources/0")
        for name in source.names.by_id.values():
            file = path / "sources/0" / name
            lines = file.read_text().split("\n")
            for at, line in enumerate(lines[1:], 1):
                entry = json.loads(line)
                lines[at] = json.dumps({**entry, "path": written[2 * entry["batchId"]]}, separators=(",", ":"))
            file.write_text("\n".join(lines))
            file.with_name(f".{name}.crc").unlink()
        record(path, job, f"files:{folder}?format=json", f"files:{sink}")

    def plan(self, to: int | None) -> CascadePlan:
        return plan_cascade(plan_query_rewind(LocalTree(self.a), to=to))

    def heads(self) -> list[int | None]:
        return [History(LocalTree(path)).last_committed for path in (self.a, self.b, self.c)]

    def contents(self) -> list[dict[str, bytes]]:
        trees = (self.a, self.b, self.c, Path(self.sink.location), Path(self.middle.location))
        return [
            {path: data for path, (data, _) in bytes_of(tree).items() if not path.startswith("_headwater")}
            for tree in trees
        ]


def test_readers_return_to_before_the_undone_output(tmp_path: Path) -> None:
    """Each reader is rewound to before its first batch with undone output, and one undo reverts all of it exactly."""
    lake = Files(tmp_path)
    before = lake.contents()
    plan = lake.plan(2)
    assert list(plan.names) == ["bronze", "silver", "gold"]
    assert [one.to for one in plan.plans] == [2, 5, 5]
    assert plan.plans[1].replan and plan.plans[1].rereads == () and plan.again == ()
    assert lake.contents() == before
    plan.apply(allow_missing_input=True)
    assert lake.heads() == [2, 5, 5]
    left = {entry.path for number in range(3) for entry in FileSinkLog(lake.sink).read(number).entries}
    source = FileSourceLog(LocalTree(lake.b), "sources/0")
    assert {entry.path for entry in source.everything_upto(source.names.latest or 0) or ()} < left
    assert not LocalTree(lake.a).exists(CASCADE_FILE)
    undo = plan_cascade_undo(LocalTree(lake.a), lambda files: plan_query_undo(files, in_cascade=True))
    assert undo is not None
    undo.apply()
    assert lake.contents() == before


def test_streams_that_read_nothing_of_it_stay(tmp_path: Path) -> None:
    """A reader that lags is not rewound, and a stream that reads something else is not mentioned."""
    lake = Files(tmp_path)
    plan_query_rewind(LocalTree(lake.b), to=5, replan=True).apply(allow_missing_input=True)
    other = lake.a.with_name("other")
    load("aggregation-changelog", tmp_path / "other").path.rename(other)
    record(other, "other", f"files:{tmp_path}/elsewhere", "console:")
    plan = lake.plan(2)
    assert (plan.names, plan.unaffected) == (("bronze",), ("silver",))


def test_command_line(tmp_path: Path) -> None:
    """The plan names each stream with its reason, undo of a reader alone is refused, and undo of the first reverts all."""
    lake = Files(tmp_path)
    before = lake.contents()
    shown = run_here("rewind", lake.a, "--to", 2, "--cascade", "--dry-run")
    assert "silver, because its batch 6 is the first with undone output of bronze" in shown.stdout
    plan = json.loads(run_here("rewind", lake.a, "--to", 2, "--cascade", "--dry-run", "--json").stdout)
    assert (plan["to"], [one["plan"]["to"] for one in plan["cascade"]]) == (2, [5, 5])
    done = run_here("rewind", lake.a, "--to", 2, "--cascade", "--yes", "--allow-missing-input")
    assert (done.returncode, "3 streams rewound" in done.stderr) == (0, True), done.stderr
    refused = run_here("undo", lake.b, "--yes")
    assert "error[part-of-a-cascade]" in refused.stderr
    assert f"headwater undo {lake.a}" in refused.stderr
    undone = run_here("undo", lake.a, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert lake.contents() == before
    assert "have no effect without --cascade" in run_here("rewind", lake.a, "--to", 2, "--allow-duplicates").stderr


def test_a_reader_elsewhere_is_named(tmp_path: Path) -> None:
    """A reader in another folder is found only if it is named."""
    lake = Files(tmp_path)
    lake.b.rename(tmp_path / "away")
    assert lake.plan(2).names == ("bronze",)
    first = plan_query_rewind(LocalTree(lake.a), to=2)
    assert plan_cascade(first, named=[LocalTree(tmp_path / "away")]).names == ("bronze", "silver", "gold")


def test_a_reader_that_runs_or_was_changed(tmp_path: Path) -> None:
    """A running reader keeps everything as it is; a reader that was changed since has to be undone first."""
    from headwater.checkpoint.lease import hold_lease

    lake = Files(tmp_path)
    before = lake.contents()
    plan = lake.plan(2)
    with hold_lease(LocalTree(lake.b), "silver", "cannot"), pytest.raises(CheckpointBusy):
        plan.apply(allow_missing_input=True)
    assert lake.contents() == before
    plan.apply(allow_missing_input=True)
    plan_query_rewind(LocalTree(lake.c), to=2).apply(allow_missing_input=True)
    with pytest.raises(ChangeRefused, match="a reader has been changed since"):
        plan_cascade_undo(LocalTree(lake.a), lambda files: plan_undo(files, in_cascade=True))


def test_a_sink_without_a_log(tmp_path: Path) -> None:
    """If the files of a batch are unknown, the cascade is refused with the name of the reader."""
    lake = Files(tmp_path)
    for name in lake.sink.entries("_spark_metadata"):
        lake.sink.remove(f"_spark_metadata/{name.name}")
    with pytest.raises(ChangeRefused, match="silver") as refused:
        lake.plan(2)
    assert refused.value.code == "cannot-cascade"


def test_readers_of_a_topic(tmp_path: Path) -> None:
    """A reader of a topic returns to before the first record of the undone batches, and what it reads again is named."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for name in ("a", "b"):
        load("kafka-changelog", tmp_path / f"unpacked {name}").path.rename(jobs / name)
    read = History(LocalTree(jobs / "b")).batch(6).sources[0]  # type: ignore[arg-type]
    (topic,) = read.start
    record(jobs / "a", "writer", "kafka://h:9092/other", f"kafka://h:9092/{topic}")
    record(jobs / "b", "reader", f"kafka://h:9092/{topic}", "console:")
    asked: list[Any] = []

    def offsets_at(uri: str, topics: list[str], at_ms: int) -> dict[str, dict[int, int]]:
        asked.append((topics, at_ms))
        return {topic: {int(partition): offset for partition, offset in read.start[topic].items()}}

    first = plan_query_rewind(LocalTree(jobs / "a"), to=3)
    plan = plan_cascade(first, offsets_at=offsets_at)
    assert [(one.location, one.to) for one in plan.plans[1:]] == [(str(jobs / "b"), 5)]
    assert asked == [([topic], History(LocalTree(jobs / "a")).batch(4).planned_at_ms)]  # type: ignore[arg-type]
    assert "records of" in plan.again[0]
    with pytest.raises(ChangeRefused) as refused:
        plan.refuse_again()
    assert refused.value.code == "read-twice"
    record(jobs / "b", "reader", f"kafka://elsewhere:9092/{topic}", "console:")
    assert len(plan_cascade(first, offsets_at=offsets_at).plans) == 1
    record(jobs / "b", "reader", f"kafka://h:9092/{topic}", "console:")
    with pytest.raises(ChangeRefused, match="reader"):
        plan_cascade(first)


Tables = dict[str, Writer]


def tables_of_streams(home: Path, jobs: dict[str, tuple[dict[str, str], str]]) -> tuple[dict[str, LocalTree], Tables]:
    """Return streams of four batches through Delta tables: for each folder the tables that it reads, and the one it writes.

    Each batch of a stream has read one batch of each of its tables.
    """
    tables = {name: Writer(home / name) for _, name in jobs.values() if name}
    for folder, (_, written) in jobs.items():
        for batch in range(4 if written else 0):
            tables[written].batch(folder, batch)
    ids = {}
    for name, table in tables.items():
        lines = LocalTree(table.path).read(commit_path(0)).decode().splitlines()
        ids[name] = next(action["metaData"]["id"] for action in map(json.loads, lines) if "metaData" in action)
    streams = {}
    for folder, (reads, written) in jobs.items():
        files = streams[folder] = LocalTree(home / "jobs" / folder)
        uris = {source: f"delta:{tables[name].path}" for source, name in reads.items()}
        sink = f"delta:{tables[written].path}" if written else "console:"
        one = (
            {"sources": uris, "source_order": tuple(uris)}
            if len(uris) > 1
            else {"source": next(iter(uris.values()), "rate:")}
        )
        files.write(JOB_FILE, JobRecord(folder, sink=sink, **one).to_bytes())
        files.write("metadata", json.dumps({"id": folder}).encode())
        for batch in range(4):
            positions = [
                offsets(batch + 1).decode().split("\n")[2].replace('"t"', f'"{ids[name]}"') for name in reads.values()
            ] or [str(batch)]
            files.write(f"offsets/{batch}", (CONF % 1_700_000_000_000 + "\n".join(positions)).encode())
            files.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    return streams, tables


def test_readers_of_a_delta_table(tmp_path: Path) -> None:
    """A reader of a Delta table returns to before the undone versions, and continues after the commit that removes them."""
    streams, tables = tables_of_streams(tmp_path, {"bronze": ({}, "table"), "silver": ({"x": "table"}, "")})
    writer, reader, table = streams["bronze"], streams["silver"], tables["table"]
    plan = plan_cascade(plan_query_rewind(writer, to=1))
    assert [(name, one.to) for name, one in zip(plan.names, plan.plans, strict=True)] == [("bronze", 1), ("silver", 1)]
    (moved,) = plan.plans[1].moved_sources
    assert (str(moved.before), str(moved.after), moved.returned_at) == ("2", "5", 4)
    plan.apply(allow_missing_input=True)
    assert rows_of(table.path) == [("bronze", 0), ("bronze", 1)]
    assert b'"reservoirVersion":5' in reader.read("offsets/1")
    undo = plan_cascade_undo(writer, lambda files: plan_query_undo(files, in_cascade=True))
    assert undo is not None
    undo.apply()
    assert rows_of(table.path) == [("bronze", batch) for batch in range(4)]
    # Version 4 removed the rows, and version 5 brought them back: the reader has read them, and continues after both.
    assert b'"reservoirVersion":6' in reader.read("offsets/3")
    assert [one.sentence for one in undo.plans[1].moved_sources] == [
        f"source 0 at version 6 of delta:{table.path}, 0 rows: version 5 returned the table to what the query has read"
    ]


@pytest.mark.parametrize("killed_at", ["guard", "record"])
def test_readers_of_a_delta_table_after_an_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """The table has a commit that removes rows and one that brings them back, and the reader continues after both."""
    streams, tables = tables_of_streams(tmp_path, {"bronze": ({}, "table"), "silver": ({"x": "table"}, "")})
    writer, reader, table = streams["bronze"], streams["silver"], tables["table"]
    plan = plan_cascade(plan_query_rewind(writer, to=1))
    remove, lower_guard = LocalTree.remove, Executor._lower_guard

    def die_at_record(tree: LocalTree, path: str) -> None:
        if path == CASCADE_FILE:
            raise Crashed
        remove(tree, path)

    def die_at_guard(executor: Executor, pending: Pending) -> None:
        if executor.checkpoint.location == writer.location:
            raise Crashed
        lower_guard(executor, pending)

    with monkeypatch.context() as killed:
        if killed_at == "record":
            killed.setattr(LocalTree, "remove", die_at_record)
        else:
            killed.setattr(Executor, "_lower_guard", die_at_guard)
        with contextlib.suppress(Crashed):
            plan.apply(allow_missing_input=True)
    assert rows_of(table.path) == [("bronze", 0), ("bronze", 1)]
    abort(writer)
    assert rows_of(table.path) == [("bronze", batch) for batch in range(4)]
    assert b'"reservoirVersion":6' in reader.read("offsets/3")


@pytest.mark.parametrize("is_aborted", [False, True])
def test_an_undo_that_was_killed_at_the_end_of_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_aborted: bool
) -> None:
    """It ends for both streams at once. What a restored file has replaced is not lost if that file is replaced as well."""
    streams, tables = tables_of_streams(tmp_path, {"bronze": ({}, "table"), "silver": ({"x": "table"}, "")})
    writer, reader, table = streams["bronze"], streams["silver"], tables["table"]
    plan_cascade(plan_query_rewind(writer, to=2)).apply(allow_missing_input=True)
    rewound = bytes_of(reader.root)
    undo = plan_cascade_undo(writer, lambda files: plan_query_undo(files, in_cascade=True))
    assert undo is not None
    lower_guard = Executor._lower_guard

    def die(executor: Executor, pending: Pending) -> None:
        if executor.checkpoint.location == reader.location:
            raise Crashed
        lower_guard(executor, pending)

    with monkeypatch.context() as killed:
        killed.setattr(Executor, "_lower_guard", die)
        with contextlib.suppress(Crashed):
            undo.apply()
    for end in (interrupted.resume, interrupted.abort):
        with pytest.raises(ChangeRefused, match="is a part of a change of several streams") as refused:
            end(reader)
        assert refused.value.remedy.startswith(f"headwater rewind {writer.location} --resume")
    with pytest.raises(ChangeRefused) as pending:
        refuse_if_pending(reader)
    assert pending.value.remedy == refused.value.remedy
    cascade = read_cascade(writer)
    assert cascade is not None
    if is_aborted:  # the writer's part is complete, so only the reader's can be rolled back
        with pytest.raises(ChangeRefused, match="a part of the interrupted undo is complete"):
            finish_cascade(writer, cascade, abort=True)
        executor_for(reader, None, None).abort()
        assert bytes_of(reader.root) == rewound
    finish_cascade(writer, cascade)
    assert rows_of(table.path) == [("bronze", batch) for batch in range(4)]
    assert History(reader).last_committed == 3 and b'"reservoirVersion":6' in reader.read("offsets/3")


def test_an_abort_that_was_killed_is_not_taken_for_a_complete_cascade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All changes were made, but the undo of one of them has begun."""
    streams, tables = tables_of_streams(tmp_path, {"bronze": ({}, "table"), "silver": ({"x": "table"}, "")})
    writer, reader, table = streams["bronze"], streams["silver"], tables["table"]

    def die(tree: LocalTree, path: str, *_: str) -> None:
        if path == CASCADE_FILE or tree.location == writer.location:
            raise Crashed

    remove = LocalTree.remove
    with monkeypatch.context() as killed:
        killed.setattr(
            LocalTree, "remove", lambda tree, path: die(tree, path) if path == CASCADE_FILE else remove(tree, path)
        )
        with contextlib.suppress(Crashed):
            plan_cascade(plan_query_rewind(writer, to=1)).apply(allow_missing_input=True)
    with monkeypatch.context() as killed:
        killed.setattr(LocalTree, "move", die)
        with contextlib.suppress(Crashed):
            abort(writer)
    cascade = read_cascade(writer)
    assert cascade is not None
    with pytest.raises(ChangeRefused, match="it has been rolled back in part"):
        finish_cascade(writer, cascade)
    abort(writer)
    assert rows_of(table.path) == [("bronze", batch) for batch in range(4)]
    assert [History(one).last_committed for one in (writer, reader)] == [3, 3]


@pytest.mark.parametrize("folders", [("1", "2", "3"), ("1", "3", "2")])
def test_a_reader_of_two_tables_of_a_cascade(tmp_path: Path, folders: tuple[str, str, str]) -> None:
    """Whichever is planned first, it continues in both tables after the commits that take rows back."""
    root, middle, last = folders
    jobs = {root: ({}, "t0"), middle: ({"x": "t0"}, "t1"), last: ({"x": "t0", "y": "t1"}, "")}
    streams, _ = tables_of_streams(tmp_path, jobs)
    plan = plan_cascade(plan_query_rewind(streams[root], to=1))
    assert plan.names == (root, middle, last)
    plan.apply(allow_missing_input=True)
    assert streams[last].read("offsets/1").count(b'"reservoirVersion":5') == 2


class Pair:
    """Two checkpoints on crashing media with one schedule; the first has the reader in its journal."""

    def __init__(
        self, medium: type[CrashingDisk], first: Contents, reader: Contents, crash_at: int | None = None
    ) -> None:
        self.schedule = CrashSchedule(crash_at)
        self.first = medium(dict(first), self.schedule, "/first")
        self.reader = medium(dict(reader), self.schedule, "/reader")

    def opened(self, location: str) -> CrashingDisk:
        return {"/first": self.first, "/reader": self.reader}[location]

    @property
    def seen(self) -> tuple[Contents, Contents]:
        return as_spark_sees(self.first.contents), as_spark_sees(self.reader.contents)


def _plan_pair(pair: Pair) -> CascadePlan:
    from headwater.timemachine.cascade import joined_plans

    plans = [plan_query_rewind(pair.first, to=4), plan_query_rewind(pair.reader, to=6, replan=True)]
    return CascadePlan(tuple(joined_plans(plans)), ("first", "reader"), (), ())


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("verb", ["rewind", "undo"])
def test_a_cascade_can_be_interrupted_at_any_moment(
    medium: type[CrashingDisk], verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it ends, --resume leads to the result of an undisturbed one and --abort to what was there before."""
    monkeypatch.setattr("headwater.timemachine.joint_change.hold_leases", lambda _: contextlib.nullcontext())
    start = Pair(medium, checkpoint("aggregation-changelog"), checkpoint("dedup-changelog"))
    rewound = Pair(medium, *(dict(tree.contents) for tree in (start.first, start.reader)))
    _plan_pair(rewound).carry_out()

    def carry_out(pair: Pair) -> None:
        for module in ("joint_change", "undo"):
            monkeypatch.setattr(f"headwater.timemachine.{module}.open_files", pair.opened)
        if verb == "rewind":
            _plan_pair(pair).carry_out()
        else:
            undo = plan_cascade_undo(pair.first, lambda files: plan_undo(files, in_cascade=True))
            assert undo is not None
            undo.carry_out()

    before, after = (start, rewound) if verb == "rewind" else (rewound, start)
    counted = Pair(medium, before.first.contents, before.reader.contents)
    carry_out(counted)
    assert counted.seen == after.seen
    points = counted.schedule.passed
    chosen = range(0, points, max(1, points // 40))
    print(f"cascade on {medium.__name__.lower()}: {len(chosen)} points")
    for crash_at in chosen:
        for abort in (False, True):
            pair = Pair(medium, before.first.contents, before.reader.contents, crash_at)
            with contextlib.suppress(Crashed):
                carry_out(pair)
            again = Pair(medium, pair.first.contents, pair.reader.contents)
            monkeypatch.setattr("headwater.timemachine.joint_change.open_files", again.opened)
            pending = read_cascade(again.first)
            if pending is None:
                assert again.seen in (before.seen, after.seen), crash_at
                continue
            try:
                finish_cascade(again.first, pending, abort=abort)
            except ChangeRefused as refusal:
                assert (refusal.code, abort) == ("already-done", True), (crash_at, refusal)
                finish_cascade(again.first, pending)
                assert again.seen == after.seen, crash_at
                continue
            assert again.seen == (before if abort else after).seen, (crash_at, abort)
            assert not again.first.exists(CASCADE_FILE) and not again.reader.exists(PENDING_FILE)
            if not abort and verb == "rewind":
                last = last_to_undo(again.first)
                assert last is not None and last.change.details["readers"][0]["location"] == "/reader"


class Undeletable(Tree):
    """A tree on which nothing can be done to one file: a process that is killed there."""

    protected: str | None = None

    def write(self, path: str, data: bytes) -> None:
        if path == self.protected:
            raise Crashed
        super().write(path, data)

    def remove(self, path: str) -> None:
        if path == self.protected:
            raise Crashed
        super().remove(path)


def interrupted_pair(monkeypatch: pytest.MonkeyPatch) -> tuple[Undeletable, Undeletable]:
    """Return two streams: the reader was rewound to 7 before, and a cascade was killed after it had rewound the reader."""
    from headwater.timemachine.cascade import joined_plans

    monkeypatch.setattr("headwater.timemachine.joint_change.hold_leases", lambda _: contextlib.nullcontext())
    first, reader = (
        Undeletable(checkpoint(name), f"/{place}")
        for name, place in (("aggregation-changelog", "first"), ("dedup-changelog", "reader"))
    )
    for module in ("joint_change", "undo"):
        monkeypatch.setattr(
            f"headwater.timemachine.{module}.open_files", {"/first": first, "/reader": reader}.__getitem__
        )
    plan_rewind(reader, to=7).apply(allow_missing_input=True)
    plans = [plan_query_rewind(first, to=4), plan_query_rewind(reader, to=5, replan=True)]
    first.protected = PENDING_FILE
    with contextlib.suppress(Crashed):
        CascadePlan(tuple(joined_plans(plans)), ("first", "reader"), (), ()).carry_out()
    first.protected = None
    assert (History(first).last_committed, History(reader).last_committed) == (9, 5)
    return first, reader


def abort(first: Tree) -> None:
    cascade = read_cascade(first)
    assert cascade is not None
    finish_cascade(first, cascade, abort=True)


def test_abort_of_a_cascade_that_was_interrupted_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second --abort does not undo what was done before the cascade."""
    first, reader = interrupted_pair(monkeypatch)
    first.protected = CASCADE_FILE
    with contextlib.suppress(Crashed):
        abort(first)
    assert read_cascade(first)
    first.protected = None
    abort(first)
    assert (History(first).last_committed, History(reader).last_committed) == (9, 7)


def test_abort_of_a_cascade_after_another_change_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, and possible once that change is undone."""
    first, reader = interrupted_pair(monkeypatch)
    plan_rewind(reader, to=3).apply(allow_missing_input=True)
    with pytest.raises(ChangeRefused, match="one of its streams has been changed since") as refused:
        abort(first)
    assert refused.value.evidence == {"checkpoint": "/reader", "last change": "rewind to batch 3"}
    assert refused.value.remedy == "headwater undo /reader, then headwater rewind /first --abort"
    assert History(reader).last_committed == 3
    plan_undo(reader).apply()
    abort(first)
    assert (History(first).last_committed, History(reader).last_committed) == (9, 7)


def test_abort_after_another_process_has_finished_the_cascade(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it read before it held the leases is outdated, so it changes nothing."""
    first, reader = interrupted_pair(monkeypatch)
    cascade = read_cascade(first)
    assert cascade is not None
    finish_cascade(first, cascade)
    heads = (History(first).last_committed, History(reader).last_committed)
    with pytest.raises(ChangeRefused, match="another process has finished the interrupted cascade"):
        finish_cascade(first, cascade, abort=True)
    assert (History(first).last_committed, History(reader).last_committed) == heads == (4, 5)


@pytest.mark.parametrize("protected", [PENDING_FILE, CASCADE_FILE])
def test_an_interrupted_abort_is_not_resumed_as_the_cascade(monkeypatch: pytest.MonkeyPatch, protected: str) -> None:
    """The reader is rolled back, or about to be, so only another --abort can end it."""
    first, reader = interrupted_pair(monkeypatch)
    (reader if protected == PENDING_FILE else first).protected = protected
    with contextlib.suppress(Crashed):
        abort(first)
    first.protected = reader.protected = None
    if protected == PENDING_FILE:  # the reader's own undo has not begun
        assert History(reader).last_committed == 5
    else:
        cascade = read_cascade(first)
        assert cascade is not None
        with pytest.raises(ChangeRefused, match="it has been rolled back in part"):
            finish_cascade(first, cascade)
    abort(first)
    assert (History(first).last_committed, History(reader).last_committed) == (9, 7)


def test_abort_that_was_killed_while_it_undid_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another --abort finishes the undo of the reader first."""
    first, reader = interrupted_pair(monkeypatch)

    def die(source: str, target: str) -> None:
        raise Crashed

    with monkeypatch.context() as killed:
        killed.setattr(reader, "move", die)
        with contextlib.suppress(Crashed):
            abort(first)
    assert reader.exists(PENDING_FILE)
    cascade = read_cascade(first)
    assert cascade is not None
    with pytest.raises(ChangeRefused, match="it has been rolled back in part"):
        finish_cascade(first, cascade)
    abort(first)
    assert (History(first).last_committed, History(reader).last_committed) == (9, 7)
