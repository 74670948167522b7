"""Rewinding checkpoints that Spark wrote, and undoing it: whole trees are compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from corpus_support import load
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.file_logs import FileSourceLog
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import held_by_us
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, CheckpointBusy
from headwater.timemachine.compact import empty_quarantine, measure
from headwater.timemachine.executor import abort, carry_out
from headwater.timemachine.preview import Preview
from headwater.timemachine.repair import plan_repair
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Tree
from timemachine.trees import MATRIX, checkpoint, rerun, sparks_part


def bytes_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of Spark's with its bytes and its time; the guard was written over the query's identity."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), 0 if "metadata" in path.name else path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != "_headwater"
    }


@pytest.mark.parametrize("name", MATRIX)
def test_a_rewound_checkpoint_ends_where_it_was_told_to(name: str) -> None:
    """The last batch kept is the last one committed, the next is planned with its old offsets, and fsck finds no fault."""
    files = Tree(checkpoint(name))
    plan = plan_rewind(files, to=4)
    carry_out(plan.change, files)
    history = History(files)
    assert (history.batch_ids[-1], history.last_committed) == (5, 4)
    assert max(store.newest or 0 for store in history.logs.state.stores.values()) == 5
    assert history.batch(history.batch_ids[4]).can_rewind_to
    assert [found for found in run_checks(Scene(files, 0)) if found.severity == "error"] == []


@pytest.mark.parametrize("name", MATRIX)
def test_undo_restores_every_byte(name: str, tmp_path: Path) -> None:
    """Several rewinds on a disk are undone in turn: every file is back with its bytes and its time."""
    path = load(name, tmp_path).path
    files = LocalTree(path)
    trees = []
    for arguments in ({"to": 7}, {"to": 5, "replan": True}, {"to": None}):
        trees.append(bytes_of(path))
        plan_rewind(files, **arguments).apply()
        assert bytes_of(path) != trees[-1]
    for tree in reversed(trees):
        plan_undo(files).apply()
        assert bytes_of(path) == tree
    with pytest.raises(ChangeRefused, match="no change of this checkpoint is left to undo"):
        plan_undo(files)


def test_redo_0_leaves_an_empty_stream_with_its_first_plan() -> None:
    """Starting over keeps the offsets of batch 0 alone; planned anew, not even those, nor what a killed query left half done."""
    files = Tree(checkpoint("custom-changelog"))
    for name in (".9.92c0d47d.tmp", "..9.92c0d47d.tmp.crc"):
        files.write(f"commits/{name}", b"")
    kept = Preview(files, plan_rewind(files, to=None).change.steps)
    assert {path.partition("/")[0] for path in _paths(kept)} == {"offsets", "sources", "metadata", ".metadata.crc"}
    assert History(kept).batch_ids == (0,)
    anew = Preview(files, plan_rewind(files, to=None, replan=True).change.steps)
    assert set(_paths(anew)) == {"metadata", ".metadata.crc"}


def _paths(files: Preview) -> list[str]:
    found = [f"{folder}/{name}".removeprefix("/") for folder, names in files.tree("").items() for name in names]
    return [path for path in found if not path.startswith("_headwater")]


@pytest.mark.parametrize("to", [None, 0, 3, 8])
def test_a_preview_is_what_comes_of_it(to: int | None) -> None:
    """The tree that a plan shows is the tree that carrying it out leaves."""
    files = Tree(checkpoint("aggregation-format2"))
    plan = plan_rewind(files, to=to)
    preview = Preview(Tree(files.contents), plan.change.steps)
    carry_out(plan.change, files)
    assert {path: preview.read(path) for path in _paths(preview)} == sparks_part(files.contents)
    assert preview.entries("commits") == files.entries("commits")


def test_the_plan_as_json() -> None:
    """What `--dry-run --json` promises: the batches, the paths and the input to be read again."""
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


def test_undo_after_new_batches_needs_to_be_told() -> None:
    """Batches committed since are refused by number; with drop_newer they are set aside and the old ones are back."""
    before = checkpoint("join-hdfs")
    files = Tree(before)
    carry_out(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 6)
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "newer-batches"
    assert refused.value.evidence["committed since"] == "5, 6"
    assert refused.value.remedy == "headwater undo memory: --drop-newer"
    plan = plan_undo(files, drop_newer=True)
    assert plan.dropped == (5, 6)
    carry_out(plan.change, files)
    assert sparks_part(files.contents) == before
    assert any(data.endswith(b" again") for data in files.contents.values()), "the dropped batches are set aside"


def test_undo_is_refused_when_spark_removed_what_it_needs() -> None:
    """A snapshot that leans on files which Spark has cleaned since is not brought back to life."""
    before = checkpoint("aggregation-rocksdb")
    files = Tree(before)
    carry_out(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 6)
    cleaned = next(path for path in sorted(files.contents) if "/SSTs/" in path and not path.endswith(".crc"))
    files.contents = {path: data for path, data in files.contents.items() if "/SSTs/" not in path}
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files, drop_newer=True)
    assert refused.value.code == "cannot-restore"
    assert cleaned.rpartition("/")[0] in refused.value.evidence["lacking"]


def test_undo_rebuilds_a_source_log_that_was_compacted_meanwhile() -> None:
    """When the second run has cleaned the kept part of a log away, undo writes it again from the compacted file."""
    lines = [f'{{"path":"file:///in/{number}","timestamp":1,"batchId":{number}}}' for number in range(10)]
    before = {path: data for path, data in checkpoint("aggregation-hdfs").items() if "sources" not in path}
    before |= {f"sources/0/{number}": f"v1\n{line}".encode() for number, line in enumerate(lines[:5])}
    files = Tree(before)
    carry_out(plan_rewind(files, to=4).change, files)
    files.contents = rerun(files.contents, before, 5, 8)
    for number in range(5):
        files.contents.pop(f"sources/0/{number}", None)
    files.contents["sources/0/9.compact"] = "\n".join(["v1", *lines]).encode()
    carry_out(plan_undo(files, drop_newer=True).change, files)
    entries = FileSourceLog(files, "sources/0").everything_upto(4)
    assert entries is not None
    assert [entry.line for entry in entries] == lines[:5]
    assert {p: d for p, d in sparks_part(files.contents).items() if "sources" not in p} == {
        p: d for p, d in before.items() if "sources" not in p
    }


def test_undoing_a_repair_keeps_what_was_written_since() -> None:
    """A leftover that was set aside does not come back over a file of the same name."""
    files = Tree({**checkpoint("aggregation-hdfs"), "offsets/.10.crc": b"stale", "commits/.77.crc": b"stale"})
    plan = plan_repair(files, run_checks(Scene(files, 0)))
    assert plan is not None
    assert plan.set_aside == ("commits/.77.crc", "offsets/.10.crc")
    carry_out(plan.change, files)
    files.contents["offsets/.10.crc"] = b"new"
    carry_out(plan_undo(files).change, files)
    assert (files.contents["offsets/.10.crc"], files.contents["commits/.77.crc"]) == (b"new", b"stale")


def test_unknown_batches_and_pruned_state_name_the_nearest() -> None:
    """A refusal says which batch can be reached instead, as a command to paste."""
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


def test_the_last_batch_leaves_nothing_to_rewind() -> None:
    """Keeping everything is no rewind; nor is a planned batch that has left nothing behind."""
    contents = checkpoint("aggregation-hdfs")
    with pytest.raises(ChangeRefused, match="batch 9 is the last one"):
        plan_rewind(Tree(contents), to=9)
    files = Tree(contents)
    carry_out(plan_rewind(files, to=4).change, files)
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(files, to=4)
    assert refused.value.remedy.startswith("headwater rewind memory: --redo 5 --replan")
    assert plan_rewind(files, to=4, replan=True).set_aside == ["offsets/.5.crc", "offsets/5"]


def test_a_plan_goes_stale(tmp_path: Path) -> None:
    """A plan is carried out only on the checkpoint that it was made for."""
    path = load("dedup-hdfs", tmp_path).path
    plan = plan_rewind(LocalTree(path), to=4)
    shutil.copy(path / "offsets" / "9", path / "offsets" / "10")
    before = bytes_of(path)
    with pytest.raises(ChangeRefused) as refused:
        plan.apply()
    assert refused.value.code == "plan-stale"
    assert bytes_of(path) == before


def test_a_held_lease_is_respected(tmp_path: Path) -> None:
    """Nothing moves while somebody works on the checkpoint, even in the same process."""
    path = load("dedup-hdfs", tmp_path).path
    plan = plan_rewind(LocalTree(path), to=4)
    before = bytes_of(path)
    with held_by_us(LocalTree(path), "a neighbour", "cannot be"), pytest.raises(CheckpointBusy, match="a neighbour"):
        plan.apply()
    assert bytes_of(path) == before
    plan.apply()


def test_compact_gives_the_room_back_and_forbids_undo(tmp_path: Path) -> None:
    """After compact the quarantine is empty, the checkpoint untouched, and the rewind cannot be undone any more."""
    path = load("session-hdfs", tmp_path).path
    files = LocalTree(path)
    plan = plan_rewind(files, to=4)
    plan.apply()
    before = bytes_of(path)
    assert measure(files).files == len(plan.set_aside)
    empty_quarantine(files)
    assert (measure(files).files, bytes_of(path)) == (0, before)
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "quarantine-emptied"


def test_undo_is_refused_when_the_quarantine_was_robbed() -> None:
    """What somebody removed by hand is missed before anything moves."""
    files = Tree(checkpoint("aggregation-hdfs"))
    carry_out(plan_rewind(files, to=4).change, files)
    del files.contents[next(path for path in files.contents if path.endswith("/commits/7"))]
    with pytest.raises(ChangeRefused) as refused:
        plan_undo(files)
    assert refused.value.code == "quarantine-incomplete"


def test_a_gap_in_the_source_log_is_refused() -> None:
    """A rewind that would need to guess which input files were read is not planned."""
    contents = checkpoint("aggregation-hdfs")
    gap = {path: data for path, data in contents.items() if path not in ("sources/0/0", "sources/0/2.compact")}
    with pytest.raises(ChangeRefused, match="no longer tells which files were read"):
        plan_rewind(Tree(gap), to=1)


def test_garbage_instead_of_a_position_is_refused() -> None:
    """A source's position that cannot be read must not be taken for the start."""
    contents = checkpoint("aggregation-hdfs")
    contents["offsets/5"] = contents["offsets/5"].replace(b"logOffset", b"logOfset")
    with pytest.raises(Exception, match="offsets/5 has no position"):
        plan_rewind(Tree(contents), to=4)


def test_an_undo_of_a_start_over_that_is_taken_back_leaves_no_folders(tmp_path: Path) -> None:
    """Spark starts from nothing only where not even empty folders of state are."""
    path = load("aggregation-rocksdb", tmp_path).path
    files = LocalTree(path)
    plan_rewind(files, to=None).apply()
    assert not list((path / "state").iterdir())

    def die_half_way(done: int, of: int) -> None:
        if done > of // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_undo(files).apply(progress=die_half_way)
    assert list((path / "state").iterdir())
    abort(files)
    assert not list((path / "state").iterdir())
