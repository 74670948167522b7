"""Rewinding checkpoints that Spark wrote, and undoing it: complete trees are compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from broker_support import run_here
from corpus_support import load
from headwater import Checkpoint
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import FileSourceLog
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE, PLANS_FILE
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator, plans_file
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused, CheckpointBusy
from headwater.timemachine.change import Preview
from headwater.timemachine.compact import empty_quarantine, measure_quarantine
from headwater.timemachine.effects import other_sink_warnings
from headwater.timemachine.executor import apply_change
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.interrupted import abort
from headwater.timemachine.journal import read_entries
from headwater.timemachine.keep import make_point
from headwater.timemachine.repair import plan_repair
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_query_rewind, plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Tree, failing_after
from timemachine.trees import MATRIX, SINK, checkpoint, rerun, sink, spark_files


def bytes_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file of Spark with its contents and modification time, except for the time of guarded files."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), 0 if "metadata" in path.name else path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != "_headwater"
    }


@pytest.mark.parametrize("name", MATRIX)
def test_a_rewound_checkpoint_ends_at_the_batch(name: str) -> None:
    """The last batch kept is the last commit, the next one has its recorded offsets, and fsck finds no error."""
    files = Tree(checkpoint(name))
    plan = plan_rewind(files, to=4)
    apply_change(plan.change, files)
    history = History(files)
    assert (history.batch_ids[-1], history.last_committed) == (5, 4)
    assert max(max(store.versions, default=0) for store in history.logs.state.stores.values()) == 5
    assert history.batch(history.batch_ids[4]).can_rewind_to
    assert [found for found in run_checks(CheckContext(files, 0)) if found.severity == "error"] == []


@pytest.mark.parametrize("name", ["pruned-changelog", "pruned-hdfs", "pruned-format2"])
def test_the_oldest_batch_is_not_planned_again(name: str) -> None:
    """Spark starts with the offsets of the next batch if those of the batch before are gone, so they have to stay."""
    files = Tree(checkpoint(name))
    oldest = min(number for number in History(files).batch_ids if History(files).batch(number).can_rewind_to)
    with pytest.raises(ChangeRefused, match="Spark would not start") as refused:
        plan_rewind(files, to=oldest, replan=True)
    assert refused.value.remedy == f"headwater rewind {files.location} --to {oldest}   (without --replan)"
    plan_rewind(files, to=oldest + 1, replan=True)
    point = make_point(files, at=str(oldest))
    with pytest.raises(ChangeRefused, match="Spark would not start"):
        plan_restore(files, point, replan=True)
    into = MemoryTree({})
    fork = plan_fork(files, into, at=oldest)
    fork.apply()
    assert History(into).batch(oldest).can_rewind_to
    assert any("runs with its recorded offsets" in warning for warning in fork.warnings)
    plan_rewind(files, to=oldest).apply(allow_missing_input=True)
    assert History(files).batch(oldest).can_rewind_to


def test_undo_of_an_edit_keeps_what_was_accepted_for_the_next_batch() -> None:
    """The record of what the state means is as it was before the edit, which has added that batch."""
    files = Tree(checkpoint("aggregation-changelog"))
    accepted = RecordedPlan(10, (StatefulOperator("aggregate", {"keys": ("a",)}),), accepted=("x",))
    before = plans_file([RecordedPlan(0, ()), accepted])
    files.write(PLANS_FILE, before)
    plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    plan_undo(files).apply()
    assert files.read(PLANS_FILE) == before


@pytest.mark.parametrize(
    ("recorded", "given", "is_other"),
    [
        ("delta:/data/out", "files:nowhere", True),
        ("kafka://h:9092/out", "kafka://h:9092/other", True),
        ("delta:/data/out", "delta:/data/x/../out/", False),
        ("files:/data/my%20out?format=json", "files:/data/my out", False),
        ("files:/data/out", "/data/out", False),
        ("files:/data/out", "/data/other", True),
        ("files:s3a://k/out", "files:s3://k/out", False),
        ("files:/data/out", "files:file:///data/out", False),
        ("postgresql://ann:***@h/db?table=t", "postgresql://ann:secret@h/db?table=t", False),
        ("postgresql://h/db?table=t", "postgresql://h/db?table=u", True),
        ("postgresql://ann:secret@h/db?table=t", "postgresql://ann:secret@h/other", True),
        (None, "files:nowhere", False),
    ],
)
def test_another_sink_than_the_recorded_one(recorded: str | None, given: str, is_other: bool) -> None:
    """The plan says what becomes of the rows in the recorded one, without its password."""
    warnings = other_sink_warnings(recorded, given)
    assert bool(warnings) == is_other
    assert "secret" not in "".join(warnings)


def test_a_stop_in_the_middle_of_a_rewind_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C while files move leaves a change that can be finished, and the command names the way."""
    path = load("aggregation-changelog", tmp_path).path
    with monkeypatch.context() as stopped:
        stopped.setattr(LocalTree, "move", failing_after(5, LocalTree.move, KeyboardInterrupt))
        done = run_here("rewind", path, "--to", 4, "--yes", "--allow-missing-input")
    assert done.returncode == 130
    assert "stopped: the rewind of" in done.stderr and f"headwater rewind {path} --resume" in done.stderr
    assert run_here("rewind", path, "--resume").returncode == 0


@pytest.mark.parametrize("name", MATRIX)
def test_undo_restores_every_byte(name: str, tmp_path: Path) -> None:
    """After several rewinds on a disk are undone in turn, every file has its contents and time again."""
    path = load(name, tmp_path).path
    files = LocalTree(path)
    trees = []
    for arguments in ({"to": 7}, {"to": 5, "replan": True}, {"to": None}):
        trees.append(bytes_of(path))
        plan_rewind(files, **arguments).apply(allow_missing_input=True)
        assert bytes_of(path) != trees[-1]
    for tree in reversed(trees):
        plan_undo(files).apply()
        assert bytes_of(path) == tree
    with pytest.raises(ChangeRefused, match="there is no change to undo"):
        plan_undo(files)


def test_a_rewind_to_the_start_keeps_only_the_first_offsets() -> None:
    """A rewind to the start keeps only the offsets of batch 0; with replan it keeps nothing, not even temporary files."""
    files = Tree(checkpoint("custom-changelog"))
    for name in (".9.92c0d47d.tmp", "..9.92c0d47d.tmp.crc"):
        files.write(f"commits/{name}", b"")
    kept = Preview(files, plan_rewind(files, to=None).change.steps)
    assert {path.partition("/")[0] for path in _paths(kept)} == {"offsets", "sources", "metadata", ".metadata.crc"}
    assert History(kept).batch_ids == (0,)
    replanned = Preview(files, plan_rewind(files, to=None, replan=True).change.steps)
    assert set(_paths(replanned)) == {"metadata", ".metadata.crc"}


def _paths(files: Preview) -> list[str]:
    found = [f"{folder}/{name}".removeprefix("/") for folder, names in files.tree("").items() for name in names]
    return [path for path in found if not path.startswith("_headwater")]


@pytest.mark.parametrize("to", [None, 0, 3, 8])
def test_a_preview_equals_the_result(to: int | None) -> None:
    """The preview of a plan is the tree that applying it leaves."""
    files = Tree(checkpoint("aggregation-format2"))
    plan = plan_rewind(files, to=to)
    preview = Preview(Tree(files.contents), plan.change.steps)
    apply_change(plan.change, files)
    assert {path: preview.read(path) for path in _paths(preview)} == spark_files(files.contents)
    assert preview.entries("commits") == files.entries("commits")


def test_the_plan_as_json() -> None:
    """The JSON form of a plan has the batches, the paths and the input to be read again."""
    plan = plan_rewind(Tree(checkpoint("aggregation-changelog")), to=6).as_dict()
    assert json.loads(json.dumps(plan)) == plan
    assert (plan["to"], plan["next_batch"], plan["undone"]) == (6, 7, [7, 8, 9])
    assert {"offsets/8", "offsets/.8.crc", "commits/7", "state/0/0/9.zip", "state/0/0/8.changelog"} <= set(
        plan["set_aside"]
    )
    assert not {"offsets/7", "commits/6", "state/0/0/7.changelog", "state/0/0/6.zip"} & set(plan["set_aside"])
    assert plan["rewritten"] == []
    (reread,) = plan["rereads"]
    assert (reread["kind"], reread["files"]) == ("files", 1)
    assert any("--sink files:DIR" in warning for warning in plan["warnings"])


def test_undo_after_new_batches_needs_drop_newer() -> None:
    """An undo is refused if batches were committed since; with drop_newer they are set aside."""
    before = checkpoint("join-hdfs")
    files = Tree(before)
    apply_change(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 6)
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "newer-batches"
    assert refused.value.evidence["committed since"] == "5, 6"
    assert refused.value.remedy == "headwater undo memory: --drop-newer"
    plan = plan_undo(files, drop_newer=True)
    assert plan.dropped == (5, 6)
    apply_change(plan.change, files)
    assert spark_files(files.contents) == before
    assert any(data.endswith(b" again") for data in files.contents.values()), "the dropped batches are set aside"


def test_undo_drops_newer_batches_from_a_sink_that_was_empty_before() -> None:
    """The second rewind found no log in the sink, but the batches since have one, with which Spark would skip batches."""
    before = checkpoint("aggregation-changelog")
    files, folder = Tree(before), Tree(sink(10), SINK)
    apply_change(plan_rewind(files, to=None, sink=folder).change, files, folder)
    files.contents |= {path: before[path] for path in ("offsets/0", "sources/0/0")}
    planned = spark_files(files.contents)
    apply_change(plan_rewind(files, to=None, replan=True, sink=folder).change, files)
    files.contents |= {path: data for path, data in before.items() if path not in files.contents}
    folder.contents |= sink(4)
    plan = plan_undo(files, sink=folder, drop_newer=True)
    assert plan.sink_files is folder
    apply_change(plan.change, files, folder)
    assert (spark_files(files.contents), spark_files(folder.contents)) == (planned, {})


def test_undo_is_refused_if_spark_removed_files_that_it_needs() -> None:
    """A snapshot is not moved back if Spark has since removed files that it depends on."""
    before = checkpoint("aggregation-rocksdb")
    files = Tree(before)
    apply_change(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 6)
    cleaned = next(path for path in sorted(files.contents) if "/SSTs/" in path and not path.endswith(".crc"))
    files.contents = {path: data for path, data in files.contents.items() if "/SSTs/" not in path}
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files, drop_newer=True)
    assert refused.value.code == "cannot-restore"
    assert cleaned.rpartition("/")[0] in refused.value.evidence["missing"]


def test_undo_rebuilds_a_source_log_that_was_compacted_meanwhile() -> None:
    """If the re-run has cleaned up the kept part of a log, undo rebuilds it from the compacted file."""
    lines = [f'{{"path":"file:///in/{number}","timestamp":1,"batchId":{number}}}' for number in range(10)]
    before = {path: data for path, data in checkpoint("aggregation-hdfs").items() if "sources" not in path}
    before |= {f"sources/0/{number}": f"v1\n{line}".encode() for number, line in enumerate(lines[:5])}
    files = Tree(before)
    apply_change(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 8)
    for number in range(5):
        files.contents.pop(f"sources/0/{number}", None)
    files.contents["sources/0/9.compact"] = "\n".join(["v1", *lines]).encode()
    apply_change(plan_undo(files, drop_newer=True).change, files)
    entries = FileSourceLog(files, "sources/0").everything_upto(4)
    assert entries is not None
    assert [entry.line for entry in entries] == lines[:5]
    assert {p: d for p, d in spark_files(files.contents).items() if "sources" not in p} == {
        p: d for p, d in before.items() if "sources" not in p
    }


def test_undoing_a_repair_keeps_what_was_written_since() -> None:
    """A leftover is not moved back over a new file of the same name."""
    files = Tree({**checkpoint("aggregation-hdfs"), "offsets/.10.crc": b"stale", "commits/.77.crc": b"stale"})
    plan = plan_repair(files, run_checks(CheckContext(files, 0)))
    assert plan is not None
    assert plan.set_aside == ("commits/.77.crc", "offsets/.10.crc")
    apply_change(plan.change, files)
    files.contents["offsets/.10.crc"] = b"new"
    apply_change(plan_undo(files).change, files)
    assert (files.contents["offsets/.10.crc"], files.contents["commits/.77.crc"]) == (b"new", b"stale")


def test_unknown_batches_and_pruned_state_name_the_nearest() -> None:
    """The error names the nearest batch that can be rewound to, as a command."""
    contents = checkpoint("aggregation-changelog")
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(Tree(contents), to=99)
    assert (refused.value.code, refused.value.evidence["batches"]) == ("no-batch", "0 to 9")
    assert refused.value.remedy == "headwater rewind memory: --to 9"
    pruned = {
        path: data
        for path, data in contents.items()
        if not (
            path.startswith("state/0/1/")
            and "/SSTs/" not in path
            and int(path.split("/")[3].strip(".").split(".")[0]) < 6
        )
    }
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(Tree(pruned), to=3)
    assert refused.value.code == "state-pruned"
    assert "state version 4 of operator 0, store default, partition 1" in refused.value.evidence["why"]
    assert refused.value.remedy == "headwater rewind memory: --to 5"
    without_commit = {path: data for path, data in contents.items() if path != "commits/3"}
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(Tree(without_commit), to=3)
    assert (refused.value.code, refused.value.evidence["why"]) == ("cannot-rewind", "commits/3 is missing")


def test_the_last_batch_leaves_nothing_to_rewind() -> None:
    """There is nothing to rewind after the last batch, nor for a planned batch that has written nothing."""
    contents = checkpoint("aggregation-hdfs")
    with pytest.raises(ChangeRefused, match="batch 9 is the last one"):
        plan_rewind(Tree(contents), to=9)
    files = Tree(contents)
    apply_change(plan_rewind(files, to=4).change, files)
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(files, to=4)
    assert refused.value.remedy.startswith("headwater rewind memory: --redo 5 --replan")
    assert plan_rewind(files, to=4, replan=True).set_aside == ["offsets/.5.crc", "offsets/5"]


def test_a_plan_goes_stale(tmp_path: Path) -> None:
    """A plan is refused if the checkpoint has changed since."""
    path = load("dedup-hdfs", tmp_path).path
    plan = plan_rewind(LocalTree(path), to=4)
    shutil.copy(path / "offsets" / "9", path / "offsets" / "10")
    before = bytes_of(path)
    with pytest.raises(ChangeRefused) as refused:
        plan.apply(allow_missing_input=True)
    assert refused.value.code == "plan-stale"
    assert bytes_of(path) == before


def test_a_held_lease_is_respected(tmp_path: Path) -> None:
    """No file is moved while another process, or the same one, holds the lease."""
    path = load("dedup-hdfs", tmp_path).path
    plan = plan_rewind(LocalTree(path), to=4)
    before = bytes_of(path)
    with hold_lease(LocalTree(path), "another job", "cannot be"), pytest.raises(CheckpointBusy, match="another job"):
        plan.apply(allow_missing_input=True)
    assert bytes_of(path) == before
    plan.apply(allow_missing_input=True)


def test_compact_empties_the_quarantine_and_prevents_undo(tmp_path: Path) -> None:
    """After compact the quarantine is empty, the checkpoint is unchanged, and the rewind can no longer be undone."""
    path = load("session-hdfs", tmp_path).path
    files = LocalTree(path)
    plan = plan_rewind(files, to=4)
    plan.apply(allow_missing_input=True)
    before = bytes_of(path)
    assert measure_quarantine(files).files == len(plan.set_aside)
    empty_quarantine(files)
    assert (measure_quarantine(files).files, bytes_of(path)) == (0, before)
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "quarantine-emptied"


def test_compact_leaves_what_was_set_aside_since() -> None:
    """It deletes what the user was asked about: a rewind in the meantime can still be undone."""
    files = Tree(checkpoint("aggregation-changelog"))
    plan_rewind(files, to=7).apply(allow_missing_input=True)
    asked = {entry.change.change_id for entry in read_entries(files)}
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    empty_quarantine(files, only=asked)
    plan_undo(files).apply()
    assert History(files).last_committed == 7
    with pytest.raises(ChangeRefused, match="has removed the files"):
        plan_undo(files)


def test_undo_is_refused_if_the_quarantine_is_incomplete() -> None:
    """A file that was removed from the quarantine is noticed before any file is moved."""
    files = Tree(checkpoint("aggregation-hdfs"))
    apply_change(plan_rewind(files, to=4).change, files)
    del files.contents[next(path for path in files.contents if path.endswith("/commits/7"))]
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "quarantine-incomplete"


def test_a_gap_in_the_source_log_is_refused() -> None:
    """A rewind is refused if the log no longer records which input files were read."""
    contents = checkpoint("aggregation-hdfs")
    gap = {path: data for path, data in contents.items() if path not in ("sources/0/0", "sources/0/2.compact")}
    with pytest.raises(ChangeRefused, match="no longer lists the files read up to offset"):
        plan_rewind(Tree(gap), to=1)


def test_an_invalid_offset_is_refused() -> None:
    """An invalid offset of a source is not mistaken for the start."""
    contents = checkpoint("aggregation-hdfs")
    contents["offsets/5"] = contents["offsets/5"].replace(b"logOffset", b"logOfset")
    with pytest.raises(Exception, match="offsets/5 has no valid offset"):
        plan_rewind(Tree(contents), to=4)


def test_rolling_back_an_undo_leaves_no_empty_folders(tmp_path: Path) -> None:
    """No empty state folders are left, because Spark starts from scratch only without them."""
    path = load("aggregation-rocksdb", tmp_path).path
    files = LocalTree(path)
    plan_rewind(files, to=None).apply(allow_missing_input=True)
    assert not list((path / "state").iterdir())

    def fail_half_way(done: int, of: int) -> None:
        if done > of // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_undo(files).apply(progress=fail_half_way)
    assert list((path / "state").iterdir())
    abort(files)
    assert not list((path / "state").iterdir())


def test_missing_input_is_refused_unless_allowed(tmp_path: Path) -> None:
    """A rewind is refused if input files are gone, through the Python interface too; it can be allowed explicitly."""
    path = load("aggregation-changelog", tmp_path).path
    before = bytes_of(path)
    plan = Checkpoint(path).plan_rewind(to=4)
    assert [reread.still_there for reread in plan.rereads] == [False]
    with pytest.raises(ChangeRefused) as refused:
        plan.apply()
    assert refused.value.code == "source-gone"
    assert "files are missing" in refused.value.evidence["source 0"]
    assert bytes_of(path) == before
    plan.apply(allow_missing_input=True)
    assert History(LocalTree(path)).last_committed == 4


def test_a_rewind_of_a_query_includes_its_recorded_sink(tmp_path: Path) -> None:
    """The file sink is taken from the job record, or from the URI or folder that is given instead."""
    path = load("aggregation-hdfs", tmp_path).path
    files, folder = LocalTree(path), tmp_path / "a sink%"
    for name, data in sink(10).items():
        LocalTree(folder).write(name, data.replace(SINK.encode(), quote(str(folder)).encode()))
    assert plan_query_rewind(files, to=4).change.sink is None
    assert plan_query_rewind(files, to=4, sink=f"files:{quote(str(folder))}").change.sink == str(folder)
    assert Checkpoint(path).plan_rewind(to=4, sink=folder).change.sink == str(folder)
    files.write(JOB_FILE, JobRecord(sink=f"files:{quote(str(folder))}").to_bytes())
    plan = plan_query_rewind(files, to=4)
    assert plan.change.sink == str(folder)
    assert "sink:_spark_metadata/5" in plan.set_aside
    plan.apply(allow_missing_input=True)
    assert not (folder / "_spark_metadata/5").exists()
    plan_undo(files).apply()
    assert (folder / "_spark_metadata/5").exists(), "undo opens the sink that the journal names"
