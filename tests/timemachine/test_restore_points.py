"""Restore points: what they contain, what they survive, and what a rewind to them leaves."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_support import as_memory_files, corpus_names, sampled
from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.checkpoint.restore_points import (
    FOLDER,
    RestorePoint,
    find_point,
    locate_batch,
    point_files,
    restore_points,
)
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.statefiles.reader import StateReader, state_rows
from headwater.timemachine import keep
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.journal import added_batches, read_entries
from headwater.timemachine.keep import drop_expired, drop_point, make_point
from headwater.timemachine.repair import plan_repair
from headwater.timemachine.restore import is_in_checkpoint, plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.rewind_target import plan_rewind_to
from headwater.timemachine.tables import fsck
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Tree
from timemachine.test_crash_safety import new_layout
from timemachine.trees import SINK, checkpoint, rerun, sink, spark_files

CASE = "aggregation-changelog"


def rows(files: FileTree, batch: int) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in state_rows(files, batch))


def without_batches_before(files: MemoryTree, first: int) -> MemoryTree:
    """Return a checkpoint from which Spark has removed older batches: their logs, and all state that is not needed."""
    history = History(files)
    needed = set(keep.needed_files(history, history.batch(history.last_committed)).linked)
    gone = [
        path
        for path in files.contents
        if (path.startswith(("offsets/", "commits/")) and int("".join(filter(str.isdigit, path))) < first)
        or (path.startswith("state/") and path not in needed)
    ]
    return MemoryTree({path: data for path, data in files.contents.items() if path not in gone})


@pytest.mark.parametrize("name", sampled(corpus_names(), every=3))
def test_every_batch_that_can_be_rewound_to_can_be_kept(name: str) -> None:
    """The files of a point are a checkpoint whose last batch is the kept one, with the same state."""
    files = as_memory_files(name)
    history = History(files)
    batches = [number for number in history.batch_ids if history.batch(number).can_rewind_to]
    for number in batches[:: max(1, len(batches) // 3)]:
        point = make_point(files, at=str(number))
        kept = point_files(files, point)
        assert History(kept).last_committed == number
        assert History(kept).batch(number).can_rewind_to
        if history.batch(number).stores:
            assert rows(kept, number) == rows(files, number)


@pytest.mark.parametrize("name", ["aggregation-hdfs", "aggregation-rocksdb", CASE, "custom-format2", "join-changelog"])
def test_rewind_after_spark_removed_the_batch(name: str) -> None:
    """The checkpoint is then the one of the point: same state, no complaint of fsck; undo brings everything back."""
    files = as_memory_files(name)
    expected = rows(files, 4)
    codes = {finding.code for finding in fsck(files)}
    make_point(files, "early", at="4")
    files = without_batches_before(files, 8)
    assert 4 not in History(files).batch_ids
    before = spark_files(files.contents)
    plan = plan_rewind_to(files, find_point(files, "early"))
    assert (plan.to, plan.next_batch, plan.undone) == (4, 5, (5, 6, 7, 8, 9))
    plan.apply(allow_missing_input=True)
    history = History(files)
    assert history.last_committed == 4
    assert history.batch(4).can_rewind_to
    assert rows(files, 4) == expected
    assert {finding.code for finding in fsck(files)} <= {*codes, "uncommitted"}
    plan_undo(files).apply()
    assert spark_files(files.contents) == before


def test_a_batch_that_is_still_there_is_rewound_to_as_ever() -> None:
    """If the checkpoint still has the batch, the rewind sets aside only what is newer."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    plan = plan_rewind_to(files, point)
    assert plan.change.steps
    assert not plan.restored
    assert plan.set_aside == plan_rewind(files, to=4).set_aside


def test_a_batch_that_ran_again_is_not_the_kept_one() -> None:
    """A point made before a rewind brings back the results of the first run, with none of the second one's files."""
    start = checkpoint(CASE)
    files = Tree(dict(start))
    expected = rows(files, 7)
    point = make_point(files, "first", at="7")
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    files.contents = rerun(files.contents, start, 5, 8)
    assert not is_in_checkpoint(files, point)
    plan = plan_rewind_to(files, point)
    assert plan.undone == (5, 6, 7, 8, 9)
    assert any("run again since" in warning for warning in plan.warnings)
    plan.apply(allow_missing_input=True)
    assert rows(files, 7) == expected
    assert not any(data.endswith(b" again") for data in spark_files(files.contents).values())


def test_undo_of_a_restore_after_new_batches() -> None:
    """Undo needs --drop-newer, and leaves nothing of the restored history behind."""
    start = checkpoint(CASE)
    files = Tree(dict(start))
    point = make_point(files, at="4")
    files = Tree(without_batches_before(files, 8).contents)
    before = spark_files(files.contents)
    plan_restore(files, point).apply(allow_missing_input=True)
    files.contents = rerun(files.contents, start, 5, 6)
    files.contents["state/0/0/5.zip"] = b"a snapshot that maintenance uploaded later"
    with pytest.raises(ChangeRefused, match="batches have been committed since"):
        plan_undo(files)
    plan_undo(files, drop_newer=True).apply()
    assert spark_files(files.contents) == before


def test_replan_leaves_out_the_recorded_offsets() -> None:
    """With --replan the next batch is planned again, and the source's log is cut back to the kept batch."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    files = without_batches_before(files, 8)
    plan_restore(files, point, replan=True).apply(allow_missing_input=True)
    assert History(files).batch_ids == (3, 4)
    assert not [finding for finding in fsck(files) if finding.severity == "error"]


def test_the_sink_is_rewound_with_its_files() -> None:
    """Output of later batches is set aside, what an earlier rewind set aside comes back, and undo restores both."""
    files, folder = Tree(checkpoint(CASE)), Tree(sink(10), SINK)
    start = dict(files.contents)
    point = make_point(files, "first", at="7", sink=folder)
    plan_rewind(files, to=4, sink=folder).apply(allow_missing_input=True)
    files.contents = rerun(files.contents, start, 5, 8)
    later = sink(12, first=10)
    for name in [name for name in later if name.startswith("part")]:
        folder.contents[name] = later[name]
    folder.contents["_spark_metadata/5"] = later["_spark_metadata/10"]
    before = spark_files(folder.contents)
    plan = plan_restore(files, point, sink=folder)
    plan.apply(allow_missing_input=True)
    listed = {path for path in spark_files(folder.contents) if path.startswith("part")}
    assert listed == {path for path in sink(8) if path.startswith("part")} | {
        name for name in later if name.startswith("part") and "-0011" in name
    }
    assert folder.contents["_spark_metadata/7"] == sink(8)["_spark_metadata/7"]
    assert "_spark_metadata/8" not in folder.contents
    plan_undo(files, sink=folder).apply()
    assert spark_files(folder.contents) == before


def test_the_sink_comes_back_after_a_rewind_to_the_start() -> None:
    """That rewind has set aside the whole log of the sink, and the point has kept it."""
    files, folder = Tree(checkpoint(CASE)), Tree(sink(10), SINK)
    point = make_point(files, at="7", sink=folder)
    plan_rewind(files, to=None, sink=folder).apply(allow_missing_input=True)
    empty = spark_files(folder.contents)
    plan_restore(files, point, sink=folder).apply(allow_missing_input=True)
    assert spark_files(folder.contents).keys() == {path for path in sink(8) if not path.endswith(".crc")}
    plan_undo(files, sink=folder).apply()
    assert (spark_files(folder.contents), empty) == ({}, {})


def test_a_point_without_the_log_of_the_sink() -> None:
    """If its batches ran again, nothing tells which files of the sink belong to it, so the rewind is refused."""
    files, folder = Tree(checkpoint(CASE)), Tree(sink(10), SINK)
    start = dict(files.contents)
    point = make_point(files, "plain", at="7")
    plan_rewind(files, to=4, sink=folder).apply(allow_missing_input=True)
    files.contents = rerun(files.contents, start, 5, 8)
    with pytest.raises(ChangeRefused, match="does not have the log of the sink") as refused:
        plan_restore(files, point, sink=folder)
    assert refused.value.code == "sink-not-kept"
    plan_undo(files, sink=folder, drop_newer=True).apply()
    plan_rewind_to(files, point)


def test_a_rewind_that_was_undone_does_not_count() -> None:
    """The batches of a point are those that it kept, and its sink is cut by the log that the undo has brought back."""
    files, folder = Tree(checkpoint(CASE)), Tree(sink(10), SINK)
    point = make_point(files, "plain", at="7")
    for to in (6, 4):
        plan_rewind(files, to=to, sink=folder).apply(allow_missing_input=True)
    with pytest.raises(ChangeRefused, match="does not have the log of the sink"):
        plan_restore(files, point, sink=folder)
    for _ in range(2):
        plan_undo(files, sink=folder).apply()
    assert is_in_checkpoint(files, point)
    assert plan_rewind_to(files, point).undone == (8, 9)


@pytest.mark.parametrize("undone", [False, True])
def test_repairs_do_not_count_as_rewinds(undone: bool) -> None:
    """After a repair, the batches of a point are those that it kept, so its batch is rewound to as ever."""
    files = Tree(checkpoint(CASE))
    point = make_point(files, at="7")
    files.contents["commits/.9.abc.tmp"] = b"left by a kill"
    plan = plan_repair(files, fsck(files))
    assert plan is not None
    plan.apply()
    if undone:
        plan_undo(files).apply()
    assert is_in_checkpoint(files, point)
    assert plan_rewind_to(files, point).undone == (8, 9)


def test_added_batches_after_a_restore() -> None:
    """A batch that an edit added counts as added as long as it is the one in the checkpoint."""
    files = Tree(checkpoint(CASE))
    make_point(files, "genuine", at="9")
    plan_rewind(files, to=8, replan=True).apply(allow_missing_input=True)
    plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    make_point(files, "edited", at="9")
    assert list(added_batches(files)) == [9]
    plan_restore(files, find_point(files, "genuine")).apply(allow_missing_input=True)
    assert not added_batches(files)
    plan_restore(files, find_point(files, "edited")).apply(allow_missing_input=True)
    assert list(added_batches(files)) == [9]
    plan_undo(files).apply()
    assert not added_batches(files)


def test_the_record_of_the_job_follows_a_restore_across_a_migration_of_sources() -> None:
    """The offsets of the point have the sources of the former code, so the record names these too; undo brings both back."""
    old = JobRecord("j", sink="files:/old", sources={"a": "files:/in"})
    new = JobRecord("j", sink="files:/new", sources={"b": "files:/in/b", "a": "files:/in"})
    files = Tree(checkpoint(CASE))
    files.write(JOB_FILE, old.to_bytes())
    point = make_point(files, at="7")
    layout = new_layout(History(files))
    metadata = {JOB_FILE: new.to_bytes()}
    plan_extra_batch(History(files), {}, verb="migrate", about="m", metadata=metadata, layout=layout).apply(files, None)
    plan = plan_rewind_to(files, point)
    assert plan.restored
    plan.apply(allow_missing_input=True)
    assert read_job_record(files) == replace(new, sources=old.sources)
    plan_undo(files).apply()
    assert read_job_record(files) == new


def test_the_record_of_a_job_that_only_moved_its_sink_stays() -> None:
    """The present settings of a job are its own, unless its sources changed."""
    files = Tree(checkpoint(CASE))
    files.write(JOB_FILE, JobRecord("j", source="files:/in", sink="files:/old").to_bytes())
    point = make_point(files, at="7")
    moved = JobRecord("j", source="files:/in", sink="files:/new")
    files.write(JOB_FILE, moved.to_bytes())
    plan_restore(files, point).apply(allow_missing_input=True)
    assert read_job_record(files) == moved


def test_output_that_was_deleted_is_left_out_of_the_sinks_log() -> None:
    """A reader of the sink would fail on a file that its log lists and that does not exist."""
    files, folder = Tree(checkpoint(CASE)), Tree(sink(10), SINK)
    point = make_point(files, at="7", sink=folder)
    del folder.contents["part-00000-0002.json"]
    plan = plan_restore(files, point, sink=folder)
    assert any("1 file of earlier batches cannot be found" in warning for warning in plan.warnings)
    plan.apply(allow_missing_input=True)
    assert b"part-00000-0002" not in folder.contents["_spark_metadata/2"]
    assert b"part-00001-0002" in folder.contents["_spark_metadata/2"]


def test_a_fork_at_a_point(tmp_path: Path) -> None:
    """A fork at a restore point needs no file of the batch in the checkpoint itself."""
    files = as_memory_files(CASE)
    expected = rows(files, 4)
    make_point(files, "early", at="4")
    files = without_batches_before(files, 8)
    located = locate_batch(files, "early")
    into = LocalTree(tmp_path / "fork")
    plan_fork(located.files, into, at=located.batch_id).apply()
    assert History(into).last_committed == 4
    assert rows(into, 4) == expected


class RemovingTree(MemoryTree):
    """A tree in which a running query removes old files and commits another batch while others read it."""

    def __init__(self, contents: dict[str, bytes], *, times: int) -> None:
        super().__init__(contents)
        self.left = times

    def link(self, source: str, target: str) -> None:
        if self.left and source.startswith("state/"):
            self.left -= 1
            raise FileNotFoundError(source)
        super().link(source, target)


@pytest.mark.parametrize("is_kept", [False, True])
def test_files_of_connectors(is_kept: bool) -> None:
    """A rewind leaves them as they are, or brings those of the point back; points of earlier versions have none."""
    files = Tree(checkpoint(CASE))
    own = {"sources/0/offsets/0": b"where Iceberg began", "schema_tracking/_schema_log_1/0": b"a schema of Delta"}
    if is_kept:
        files.contents |= own
    point = make_point(files, at="5")
    files.contents |= own if not is_kept else {"schema_tracking/_schema_log_1/0": b"a later schema"}
    before = dict(files.contents)
    for name in ("commits/5", "commits/.5.crc"):
        files.contents.pop(name, None)
        before.pop(name, None)
    plan_rewind_to(files, point).apply(allow_missing_input=True)
    assert {path: files.contents[path] for path in own} == own
    files.contents["schema_tracking/_schema_log_1/1"] = b"written since"
    plan_undo(files).apply()
    changed = {path for path in before if files.contents.get(path) != before[path]}
    assert {path for path in changed if not path.startswith(("_headwater/", "metadata", ".metadata"))} == set()


def test_a_race_with_clean_up_is_repeated() -> None:
    """If a file disappears before it is linked, another attempt is made; nothing incomplete is left."""
    files = RemovingTree(as_memory_files(CASE).contents, times=2)
    point = make_point(files)
    kept = {path for path in files.contents if path.startswith(f"{FOLDER}/")}
    assert kept == {path for path in kept if path.startswith(point.place)} | {point.description}


def test_a_race_that_never_ends_is_reported() -> None:
    """After several attempts the command fails, and no restore point exists."""
    files = RemovingTree(as_memory_files(CASE).contents, times=1000)
    with pytest.raises(ChangeRefused, match="changed while they were linked") as refused:
        make_point(files)
    assert refused.value.code == "keep-raced"
    assert not any(path.startswith(f"{FOLDER}/") for path in files.contents)


def test_a_change_during_keep_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewind that runs while files are linked is followed by another attempt."""
    files = as_memory_files(CASE)
    write, rewound = MemoryTree.write, []

    def write_and_rewind(tree: MemoryTree, path: str, data: bytes) -> None:
        write(tree, path, data)
        if path.endswith(".files.json") and not rewound:
            rewound.append(path)
            plan_rewind(files, to=6).apply(allow_missing_input=True)

    monkeypatch.setattr(MemoryTree, "write", write_and_rewind)
    assert make_point(files).batch_id == 6
    assert len(restore_points(files)) == 1


def test_batches_that_cannot_be_kept() -> None:
    """A batch that cannot be rewound to, or an empty checkpoint, is refused with the reason."""
    files = without_batches_before(as_memory_files(CASE), 8)
    with pytest.raises(UsageProblem, match="there is no batch 3"):
        make_point(files, at="3")
    files.contents = {path: data for path, data in files.contents.items() if "/9." not in path}
    with pytest.raises(ChangeRefused, match="cannot keep batch 8") as refused:
        make_point(files, at="8")
    assert "cannot be rebuilt" in refused.value.evidence["why"]
    with pytest.raises(UsageProblem, match="no batch is committed"):
        make_point(MemoryTree({"metadata": b'{"id":"x"}'}))


@pytest.mark.parametrize("name", ["HEAD", "41", "@10:30", "a/b", "../up", "", "x" * 101, ".hidden", "a b"])
def test_invalid_names(name: str) -> None:
    """A name can neither be mistaken for a batch nor lead to another folder."""
    with pytest.raises(UsageProblem) as refused:
        make_point(as_memory_files(CASE), name)
    assert refused.value.code == "bad-name"


def test_names_are_unique() -> None:
    """A taken name is refused; default names get a number."""
    files = as_memory_files(CASE)
    make_point(files, "x")
    with pytest.raises(ChangeRefused) as refused:
        make_point(files, "x")
    assert refused.value.code == "kept-exists"
    assert [make_point(files, at="4").name for _ in range(3)] == ["batch-4", "batch-4-2", "batch-4-3"]


def test_unknown_names_list_the_known_ones() -> None:
    """A revision that is neither a batch nor a point is refused with the names that exist."""
    files = as_memory_files(CASE)
    make_point(files, "monday")
    with pytest.raises(UsageProblem, match="neither a batch nor a restore point") as refused:
        locate_batch(files, "mondya")
    assert "monday" in refused.value.evidence["restore points"]
    assert locate_batch(files, "monday").batch_id == locate_batch(files, "HEAD").batch_id


def test_dropping() -> None:
    """A dropped point leaves no file, and dropping it again is refused."""
    files = as_memory_files(CASE)
    before = dict(files.contents)
    make_point(files, "x")
    drop_point(files, "x")
    assert files.contents == before
    with pytest.raises(UsageProblem) as refused:
        drop_point(files, "x")
    assert refused.value.code == "no-restore-point"


def test_a_corrupt_point_can_be_dropped() -> None:
    """A point without a readable description is not listed, is named by its error, and can be removed."""
    files = as_memory_files(CASE)
    point = make_point(files, "x")
    files.contents[point.description] = b'{"name": "x", "batch_id": "nine"'
    assert restore_points(files) == []
    with pytest.raises(CheckpointUnreadable, match="corrupt"):
        locate_batch(files, "x")
    drop_point(files, "x")
    assert not any(path.startswith(f"{FOLDER}/") for path in files.contents)


def test_a_point_that_an_interrupted_rewind_needs_is_not_dropped() -> None:
    """Drop is refused while the pending change still has to link files of the point."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    plan = plan_restore(files, point)
    files.contents["_headwater/pending.json"] = json.dumps(
        {"stage": 0, "begun_at_ms": 0, "metadata": None, "metadata_crc": None, "change": plan.change.as_dict()}
    ).encode()
    with pytest.raises(ChangeRefused, match="was interrupted"):
        drop_point(files, point.name)
    assert find_point(files, point.name) == point


def test_a_point_dropped_after_planning_moves_nothing() -> None:
    """The rewind is refused before any file is moved."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    plan = plan_restore(files, point)
    drop_point(files, point.name)
    before = dict(files.contents)
    with pytest.raises(ChangeRefused) as refused:
        plan.apply(allow_missing_input=True)
    assert refused.value.code == "kept-incomplete"
    assert spark_files(files.contents) == spark_files(before)
    assert "_headwater/pending.json" not in files.contents
    assert read_entries(files) == []


def test_a_damaged_point_is_refused() -> None:
    """A point that lacks a file, or has one of another size, is not rewound to."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    path = next(path for path in files.contents if path.startswith(point.place) and path.endswith(".changelog"))
    data = files.contents[path]
    for damaged in ({}, {path: data[:-1]}):
        files.contents = {name: held for name, held in files.contents.items() if name != path} | damaged
        with pytest.raises(ChangeRefused) as refused:
            plan_restore(files, point)
        assert refused.value.code == "kept-incomplete"
        assert path.rpartition("/")[2] in refused.value.evidence["why"]


def test_a_point_of_another_query_is_refused() -> None:
    """A checkpoint that was removed and created again under the same path does not take the old query's state."""
    files = as_memory_files(CASE)
    point = make_point(files, at="4")
    files.contents["metadata"] = b'{"id":"11111111-1111-1111-1111-111111111111"}'
    with pytest.raises(ChangeRefused) as refused:
        plan_restore(files, point)
    assert refused.value.code == "kept-other-query"


def test_only_automatic_points_expire() -> None:
    """Points that a user made stay until they are dropped."""
    files = as_memory_files(CASE)
    mine, old, new = make_point(files, "mine"), make_point(files, "old", automatic=True), make_point(files, "new")
    for point, kept_at in ((mine, 1000), (old, 1000)):
        files.write(point.description, replace(point, kept_at_ms=kept_at).to_bytes())
    files.write(new.description, replace(new, automatic=True).to_bytes())
    assert [point.name for point in drop_expired(files, 2000)] == ["old"]
    assert {point.name for point in restore_points(files)} == {"mine", "new"}


def test_links_take_no_space_until_spark_removes_the_files(tmp_path: Path, corpus) -> None:
    """On a local disk a point shares every file with the checkpoint, and owns those that the checkpoint has lost."""
    files = LocalTree(Path(shutil.copytree(corpus(CASE).path, tmp_path / "checkpoint")))
    point = make_point(files)
    assert files.own_bytes(point.place) == 0
    sizes = {path: entry.size for path, entry in walk(files, point.place)}
    gone = max(sizes, key=sizes.__getitem__)
    files.remove(gone.removeprefix(f"{point.place}/"))
    assert files.own_bytes(point.place) == sizes[gone]
    assert point.total_bytes == sum(sizes.values())


def test_abandoned_files_are_removed_a_day_later(tmp_path: Path, corpus) -> None:
    """What a killed command has left is removed by a later one, but not while it may still be running."""
    files = LocalTree(Path(shutil.copytree(corpus(CASE).path, tmp_path / "checkpoint")))
    files.write(f"{FOLDER}/x/20200101T000000-abcdef/offsets/1", b"v1")
    fresh = make_point(files, "y")
    files.write(f"{FOLDER}/z/{fresh.folder}/offsets/1", b"v1")
    make_point(files, "w")
    assert [entry.name for entry in files.entries(FOLDER)] == ["w", "y", "z"]


def test_a_description_of_a_later_release_is_read() -> None:
    """Unknown fields of point.json are ignored."""
    files = as_memory_files(CASE)
    point = make_point(files, "x")
    files.contents[point.description] = json.dumps({**json.loads(point.to_bytes()), "tables": {"t": 3}}).encode()
    assert find_point(files, "x") == point
    assert isinstance(point, RestorePoint)


def test_fsck_reports_unusable_points() -> None:
    """A lost or truncated file, an unreadable description and an interrupted keep each give one finding."""
    files = as_memory_files(CASE)
    lost, cut, corrupt = (make_point(files, name) for name in ("lost", "cut", "corrupt"))
    assert "restore-point" not in {finding.code for finding in fsck(files)}
    state = next(path for path in files.contents if path.startswith(lost.place) and path.endswith(".changelog"))
    del files.contents[state]
    short = state.replace(lost.place, cut.place)
    files.contents[short] = files.contents[short][1:]
    files.contents[corrupt.description] = b"{"
    files.contents[f"{FOLDER}/begun/20260101T000000-abcdef/offsets/1"] = b"v1"
    found = {finding.path: finding for finding in fsck(files) if finding.code == "restore-point"}
    assert {path: finding.severity for path, finding in found.items()} == {
        f"{FOLDER}/begun/point.json": "info",
        corrupt.description: "warning",
        short: "warning",
        state: "warning",
    }
    assert found[state].message.startswith("is missing")


@pytest.mark.parametrize("name", ["custom-format2", "avro-format2", "row-checksum-format2"])
def test_every_batch_of_a_restored_point_that_is_readable_is_right(name: str) -> None:
    """A point of format 2 has the commits back to its snapshot, and the offsets that describe the state of each."""
    files = Tree(checkpoint(name))
    for _ in range(4):
        plan_extra_batch(History(files), {}, verb="edit", about="a batch without a snapshot").apply(files, None)
    batches = StateReader(files).readable()
    expected = {batch: rows(files, batch) for batch in batches}
    point = make_point(files)
    plan_rewind(files, to=8, replan=True).apply(allow_missing_input=True)
    plan_restore(files, point).apply(allow_missing_input=True)
    readable = StateReader(files).readable()
    assert len(readable) > 3
    assert {batch: rows(files, batch) for batch in readable} == {batch: expected[batch] for batch in readable}
    for batch in readable[:-1]:  # as points of earlier releases
        files.contents.pop(f"offsets/{batch}")
    assert StateReader(files).readable() == [readable[-1]]
