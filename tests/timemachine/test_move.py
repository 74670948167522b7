"""Moves without Spark: what is copied and rewritten, what refuses to run, undo, and interruptions at every moment."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_support import run_here
from corpus_support import crc_file, load
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import FileSinkLog, FileSourceLog
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE, hadoop_crc_of
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.moved import INCOMPLETE, POINTER, read_pointer, refuse_if_moved
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.checkpoint.record import JobRecord, read_job_record, sink_of
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, HeadwaterError, UsageProblem
from headwater.statefiles.reader import state_rows
from headwater.timemachine.keep import make_point
from headwater.timemachine.move import MovePlan, _Copier
from headwater.timemachine.move_plan import plan_move
from headwater.timemachine.move_undo import plan_move_undo
from headwater.timemachine.relocate import Place, Relocation, is_rewritten, java_quote, rewritten
from headwater.timemachine.rewind import plan_query_rewind, plan_rewind
from headwater.timemachine.rewind_target import plan_rewind_to
from headwater.timemachine.undo import plan_undo
from headwater.views.move_text import next_run
from s3_support import S3
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule, Tree
from timemachine.test_rewind_and_undo import bytes_of
from timemachine.trees import checkpoint


def at_home(name: str, folder: Path) -> Path:
    """Unpack a checkpoint of the corpus and make its absolute paths those of the folder that it is unpacked to."""
    held = load(name, folder)
    old, new = held.location.rpartition("/")[0].encode(), str(held.path.parent).encode()
    for file in held.path.parent.rglob("*"):
        if file.is_file() and old in (data := file.read_bytes()):
            stat = file.stat()
            file.write_bytes(data.replace(old, new))
            os.utime(file, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
            sums = file.with_name(f".{file.name}.crc")
            if sums.exists():
                sums.write_bytes(crc_file(file.read_bytes()))
    return held.path


def errors_in(path: Path, sink: Path | None = None) -> list[str]:
    context = CheckContext(LocalTree(path), 0, LocalTree(sink) if sink else None)
    return [finding.message for finding in run_checks(context) if finding.severity == "error"]


def input_paths(files) -> set[str]:
    log = FileSourceLog(files, "sources/0")
    return {entry.path for entry in log.everything_upto(log.names.latest or 0) or ()}


@pytest.mark.parametrize("name", ["custom-format2", "aggregation-changelog", "join-hdfs"])
def test_a_moved_checkpoint_is_the_same_with_other_paths(tmp_path: Path, name: str) -> None:
    """State, batches and times are the same, every absolute path leads to the new place, and fsck finds no error."""
    old = at_home(name, tmp_path / "old")
    before, rows = bytes_of(old), list(state_rows(LocalTree(old)))
    new, inputs = tmp_path / "new/place", tmp_path / "new input"
    plan = plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'input'}={inputs}"])
    assert bytes_of(old) == before
    plan.apply()
    assert list(state_rows(LocalTree(new))) == rows
    assert errors_in(new) == []
    assert History(LocalTree(new)).committed_at_ms == History(LocalTree(old)).committed_at_ms
    copied = bytes_of(new)
    for path, (data, modified) in bytes_of(old).items():
        if path.startswith("_headwater/") or path in ("metadata", ".metadata.crc"):
            continue
        if path in plan.rewritten:
            assert str(old).encode() not in (new / path).read_bytes()
            assert not (new / hadoop_crc_of(path)).exists()
        elif (new / path).exists():
            assert copied[path][0] == data and copied[path][1] // 1_000_000 == modified // 1_000_000
        else:
            assert path.endswith(".crc")
    assert all(path.startswith(f"file://{tmp_path}/new%20input/") for path in input_paths(LocalTree(new)))
    for metadata in new.glob("state/*/_metadata/v2/[0-9]*"):
        for store in parse_operator_metadata(metadata.read_bytes(), "v2").stores:
            assert all(path.startswith(f"file:{new}/state/") for path in store.schema_paths)
    assert (new / "metadata").read_bytes() == before["metadata"][0]
    # The old place has everything that it had: only the identity of the query is replaced.
    left = {path: data for path, (data, _) in bytes_of(old).items() if not path.startswith("_headwater/")}
    assert {path for path, data in left.items() if before[path][0] != data} == {"metadata"}


def test_the_log_of_a_file_sink_moves_with_its_files(tmp_path: Path) -> None:
    """A sink is copied with its log, the compacted files included, and is rewound at the new place."""
    old = at_home("kafka-to-files", tmp_path / "old")
    sink, new = tmp_path / "disk2/sink", tmp_path / "disk2/checkpoint"
    record = JobRecord("visits", sink=f"files:{old.parent / 'sink'}?format=json", source="kafka://h:9092/visits")
    LocalTree(old).write(JOB_FILE, record.to_bytes())
    plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'sink'}={sink}"]).apply()
    assert read_job_record(LocalTree(new)).sink == f"files:{sink}?format=json"
    log = FileSinkLog(LocalTree(sink))
    assert any(log.names.is_compact(number) for number in log.names.ids)
    listed = {entry.path for number in log.names.ids for entry in log.read(number).entries}
    assert listed and all(path.startswith(f"file://{sink}/") for path in listed)
    assert errors_in(new, sink) == []
    plan_rewind(LocalTree(new), to=1, sink=LocalTree(sink)).apply()
    assert FileSinkLog(LocalTree(sink)).names.latest == 1
    plan_undo(LocalTree(new)).apply()
    assert FileSinkLog(LocalTree(sink)).names.latest == 4


def test_paths_with_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark resolves .. in the paths that it records, so those of a move are compared and recorded without it."""
    old = at_home("kafka-to-files", tmp_path / "old")
    record = JobRecord("visits", sink=f"files:{old.parent}/x/../sink?format=json", source="kafka://h:9092/visits")
    LocalTree(old).write(JOB_FILE, record.to_bytes())
    monkeypatch.chdir(old)
    plan_move(LocalTree(old), "../../new/../moved", folders=["../sink=../../y/../disk2"]).apply()
    new, sink = old.parents[1] / "moved", old.parents[1] / "disk2"
    assert read_job_record(LocalTree(new)).sink == f"files:{sink}?format=json"
    log = FileSinkLog(LocalTree(sink))
    listed = {entry.path for number in log.names.ids for entry in log.read(number).entries}
    assert listed and all(path.startswith(f"file://{sink}/") for path in listed)
    assert errors_in(new, sink) == []


def test_a_sink_in_a_folder_with_a_percent_sign(tmp_path: Path) -> None:
    """The recorded URI names the folder, and so does the command to run the job."""
    old = at_home("kafka-to-files", tmp_path / "old")
    sink, new = tmp_path / "disk%20two/sink", tmp_path / "new"
    record = JobRecord("visits", sink=f"files:{old.parent / 'sink'}?format=json", source="kafka://h:9092/visits")
    LocalTree(old).write(JOB_FILE, record.to_bytes())
    plan = plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'sink'}={sink}"])
    plan.apply()
    found = sink_of(LocalTree(new))
    assert found is not None and found.location == str(sink)
    assert f"--sink '{read_job_record(LocalTree(new)).sink}'" in next_run(plan)
    assert any(path.startswith("sink:") for path in plan_query_rewind(LocalTree(new), to=1).set_aside)


def test_a_sink_that_was_rewound_while_a_move_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first attempt has copied and the old sink does not have any more leaves the new one."""
    old = at_home("kafka-to-files", tmp_path / "old")
    sink, new = tmp_path / "disk2/sink", tmp_path / "disk2/checkpoint"
    record = JobRecord("visits", sink=f"files:{old.parent / 'sink'}?format=json", source="kafka://h:9092/visits")
    LocalTree(old).write(JOB_FILE, record.to_bytes())

    def die(*_: object, **__: object) -> None:
        raise Crashed

    with monkeypatch.context() as killed:
        killed.setattr("headwater.timemachine.move.paths_of_checkpoint", die)
        with contextlib.suppress(Crashed):
            plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'sink'}={sink}"]).apply()
    assert FileSinkLog(LocalTree(sink)).names.latest == 4
    plan_query_rewind(LocalTree(old), to=1).apply(allow_missing_input=True)
    plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'sink'}={sink}"]).apply()
    assert FileSinkLog(LocalTree(sink)).names.latest == 1
    assert {path.name for path in sink.glob("part*")} == {path.name for path in (old.parent / "sink").glob("part*")}
    assert errors_in(new, sink) == []


@pytest.mark.parametrize(
    ("checkpoint", "sink", "source"),
    [("new/checkpoint", "new/data", "new/data"), ("new/checkpoint", "new", "new/in"), ("new", "out", "new/in")],
)
def test_folders_are_not_mixed(tmp_path: Path, checkpoint: str, sink: str, source: str) -> None:
    """Files of one folder among those of another could not be told apart after an interruption."""
    old = at_home("sink-session", tmp_path / "old")
    uris = {"source": f"files:{old.parent / 'input'}?format=json", "sink": f"files:{old.parent / 'sink'}?format=json"}
    LocalTree(old).write(JOB_FILE, JobRecord("visits", **uris).to_bytes())
    folders = [f"{old.parent / 'sink'}={tmp_path / sink}", f"{old.parent / 'input'}={tmp_path / source}"]
    with pytest.raises(UsageProblem, match="cannot move two folders into the same place"):
        plan_move(LocalTree(old), str(tmp_path / checkpoint), folders=folders)


def test_a_checkpoint_inside_the_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is removed from the sink after an interruption does not include the checkpoint."""
    old = at_home("kafka-to-files", tmp_path / "old")
    sink, new = tmp_path / "sink", tmp_path / "sink/_checkpoint"
    record = JobRecord("visits", sink=f"files:{old.parent / 'sink'}?format=json", source="kafka://h:9092/visits")
    LocalTree(old).write(JOB_FILE, record.to_bytes())

    def move() -> None:
        plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'sink'}={sink}"], workers=1).apply()

    copy_one, copied = _Copier._copy_one, []

    def die_late(self: _Copier, path: str, *rest: object) -> None:
        if path.startswith("commits/"):
            raise Crashed
        copied.append(path)
        copy_one(self, path, *rest)

    with monkeypatch.context() as killed:
        killed.setattr(_Copier, "_copy_one", die_late)
        with contextlib.suppress(Crashed):
            move()
    assert (new / INCOMPLETE).exists() and len(copied) > len(list(sink.glob("part*")))
    (sink / "left by the first attempt").write_bytes(b"")
    move()
    assert errors_in(new, sink) == [] and not (sink / "left by the first attempt").exists()
    assert History(LocalTree(new)).last_committed == History(LocalTree(old)).last_committed


def test_restore_points_and_earlier_changes_move_along(tmp_path: Path) -> None:
    """At the new place a restore point can be rewound to, and a rewind from before the move can be undone."""
    old = at_home("custom-changelog", tmp_path / "old")
    make_point(LocalTree(old), "early", at="3")
    plan_rewind(LocalTree(old), to=6).apply()
    new = tmp_path / "new"
    plan_move(LocalTree(old), str(new), folders=[f"{old.parent / 'input'}={tmp_path / 'inbox'}"]).apply()
    files = LocalTree(new)
    plan_undo(files).apply()
    assert History(files).last_committed == 9
    assert errors_in(new) == []
    assert all(str(old) not in path for path in input_paths(files))
    from headwater.checkpoint.restore_points import require_point

    for number in range(5):
        (new / f"commits/{number}").unlink()
    plan_rewind_to(files, require_point(files, "early")).apply(allow_missing_input=True)
    assert History(files).last_committed == 3
    assert errors_in(new) == []
    for metadata in new.glob("state/*/_metadata/v2/[0-9]*"):
        assert str(old) not in metadata.read_text()


def test_the_old_place_refuses_and_names_the_new_one(tmp_path: Path) -> None:
    """Commands on the old location refuse with the new one; reading commands warn; fsck reports it."""
    old, new = at_home("aggregation-changelog", tmp_path / "old"), tmp_path / "new"
    shown = run_here("move", old, new, "--dry-run", "--json")
    plan = json.loads(shown.stdout)
    assert (plan["from"], plan["to"], plan["folders"], plan["resumes"]) == (str(old), str(new), [], False)
    assert plan["stays"] == [f"source 0: {old.parent}/input/events"]
    assert not new.exists()
    done = run_here("move", old, new, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"headwater undo {old}" in done.stderr
    for command in (["rewind", old, "--to", "4", "--yes"], ["keep", old], ["fork", old, tmp_path / "fork"]):
        refused = run_here(*command)
        assert (refused.returncode, "error[checkpoint-moved]" in refused.stderr) == (15, True)
        assert str(new) in refused.stderr
    refused = run_here("run", "retail-sales", "--checkpoint", old, "--source", f"files:{tmp_path}?format=csv")
    assert "error[checkpoint-moved]" in refused.stderr
    assert f"continues at {new}" in run_here("log", old).stderr
    found = run_here("fsck", old)
    assert (found.returncode, "checkpoint-moved" in found.stdout) == (0, True)
    with pytest.raises(ChangeRefused, match="moved to"):
        plan_move(LocalTree(old), str(tmp_path / "third"))


def test_undo_uses_the_old_place_again(tmp_path: Path) -> None:
    """After undo the old checkpoint is as it was, and the new place refuses; a second move to a third place works."""
    old, new = at_home("aggregation-changelog", tmp_path / "old"), tmp_path / "new"
    before = bytes_of(old)
    plan_move(LocalTree(old), str(new)).apply()
    shown = run_here("undo", old, "--dry-run", "--json")
    assert json.loads(shown.stdout)["verb"] == "move"
    undone = run_here("undo", old, "--yes")
    assert undone.returncode == 0, undone.stderr
    now = bytes_of(old)
    assert {path: now[path][0] for path in before} == {path: data for path, (data, _) in before.items()}
    refuse_if_moved(LocalTree(old))
    with pytest.raises(ChangeRefused, match="moved to"):
        refuse_if_moved(LocalTree(new))
    refused = run_here("undo", new, "--yes")
    assert "moved back" in refused.stderr
    with pytest.raises(ChangeRefused, match="not empty"):
        plan_move(LocalTree(old), str(new))
    plan_move(LocalTree(old), str(tmp_path / "third")).apply()
    assert errors_in(tmp_path / "third") == []


def test_undo_does_not_drop_batches_that_ran_since(tmp_path: Path) -> None:
    """Undo is refused if a batch was planned at the new place, unless it may be dropped; so is one after a change."""
    old, new = at_home("aggregation-changelog", tmp_path / "old"), tmp_path / "new"
    plan_move(LocalTree(old), str(new)).apply()
    pointer = read_pointer(LocalTree(old))
    assert pointer is not None and pointer.newest_batch == 9
    (new / "offsets/10").write_bytes((new / "offsets/9").read_bytes())
    with pytest.raises(ChangeRefused, match="batches have run"):
        plan_move_undo(LocalTree(old), pointer)
    assert plan_move_undo(LocalTree(old), pointer, drop_newer=True).dropped == (10,)
    (new / "offsets/10").unlink()
    plan_rewind(LocalTree(new), to=5).apply(allow_missing_input=True)
    with pytest.raises(ChangeRefused, match="changes have been made"):
        plan_move_undo(LocalTree(old), pointer)


def test_refusals(tmp_path: Path) -> None:
    """A target with files, nested folders, and folders that the query does not use are refused before anything is copied."""
    old = at_home("aggregation-changelog", tmp_path / "old")
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for arguments, code in [
        ({"into": str(full)}, "not-empty"),
        ({"into": str(old / "inside")}, "bad-option"),
        ({"into": str(tmp_path / "new"), "folders": ["/somewhere=/else"]}, "not-a-folder-of-the-query"),
        ({"into": str(tmp_path / "new"), "folders": ["nothing"]}, "bad-option"),
        ({"into": str(tmp_path / "new"), "folders": [f"{old.parent}/input={old.parent}/input/new"]}, "bad-option"),
    ]:
        with pytest.raises(HeadwaterError) as refused:
            plan_move(LocalTree(old), **arguments)
        assert refused.value.code == code
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["move", "fork"])
def test_into_itself(tmp_path: Path, verb: str) -> None:
    """The advice is never to remove the checkpoint that is to be moved."""
    old = at_home("custom-format2", tmp_path / "old")
    done = run_here(verb, old, f"{old.parent}/x/../{old.name}", "--yes" if verb == "move" else "--at=4")
    assert done.returncode == 2
    assert "into itself" in done.stderr and "remove" not in done.stderr


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    """Files that were copied before are kept, files with other contents are refused, and the checkpoint stays usable."""
    old, inbox = at_home("aggregation-changelog", tmp_path / "old"), tmp_path / "inbox"
    source = old.parent / "input/events"
    inbox.mkdir()
    first = min(source.glob("*.json"))
    (inbox / first.name).write_bytes(first.read_bytes())
    (inbox / "newer.json").write_text("{}")
    plan = plan_move(LocalTree(old), str(tmp_path / "new"), folders=[f"{source}={inbox}"])
    (inbox / first.name).write_text("something else")
    with pytest.raises(ChangeRefused) as refused:
        plan.apply()
    assert refused.value.code == "folder-differs"
    refuse_if_moved(LocalTree(old))
    (inbox / first.name).write_bytes(first.read_bytes())
    plan_move(LocalTree(old), str(tmp_path / "new"), folders=[f"{source}={inbox}"]).apply()
    assert (inbox / "newer.json").exists()
    assert len(list(inbox.glob("*.json"))) == len(list(source.glob("*.json"))) + 1


def test_times_of_files_that_were_copied_by_other_means(tmp_path: Path) -> None:
    """The log of a source gets the times of the new files, so that Spark does not take old ones for new."""
    old, inbox = at_home("aggregation-changelog", tmp_path / "old"), tmp_path / "inbox"
    source = old.parent / "input/events"
    inbox.mkdir()
    for file in source.glob("*.json"):
        (inbox / file.name).write_bytes(file.read_bytes())
        os.utime(inbox / file.name, (1_900_000_000, 1_900_000_000))
        file.unlink()
    plan = plan_move(LocalTree(old), str(tmp_path / "new"), folders=[f"{source}={inbox}"])
    assert any("has no files" in warning for warning in plan.warnings)
    plan.apply()
    log = FileSourceLog(LocalTree(tmp_path / "new"), "sources/0")
    entries = log.everything_upto(log.names.latest or 0) or ()
    assert {entry.timestamp_ms for entry in entries} == {1_900_000_000_000}


class FlippingTree(LocalTree):
    """A disk that returns a wrong byte in one file after it was written."""

    def read_blocks(self, path: str):
        data = self.read(path)
        yield bytes([data[0] ^ 1]) + data[1:] if path == "commits/3" else data


def test_a_copy_that_differs_is_found(tmp_path: Path) -> None:
    """A copy that reads back differently ends the move, and the old checkpoint is as it was."""
    old = at_home("aggregation-changelog", tmp_path / "old")
    plan = plan_move(LocalTree(old), str(tmp_path / "new"))
    object.__setattr__(plan, "into", FlippingTree(tmp_path / "new"))
    with pytest.raises(CheckpointUnreadable) as found:
        plan.apply()
    assert found.value.code == "copy-differs"
    refuse_if_moved(LocalTree(old))
    refused = run_here("log", tmp_path / "new")
    assert refused.returncode == 0
    assert "error[move-incomplete]" in run_here("rewind", tmp_path / "new", "--to", "3", "--yes").stderr
    assert run_here("fsck", tmp_path / "new").returncode == 1


class Halves:
    """The two trees of a move on crashing media, with one schedule for both."""

    def __init__(self, medium: type[CrashingDisk], old: dict[str, bytes], new: dict[str, bytes], crash_at=None) -> None:
        self.schedule = CrashSchedule(crash_at)
        self.old = medium(old, self.schedule, "/old")
        self.new = medium(new, self.schedule, "/new")

    @property
    def contents(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        return self.old.contents, self.new.contents

    def run(self, action: Callable[[Halves], object]) -> bool:
        """Run an action; return whether it was completed."""
        with contextlib.suppress(Crashed):
            action(self)
            return True
        return False


def _move(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.timemachine.move_plan.open_files", lambda _: halves.new)
    plan: MovePlan = plan_move(halves.old, "/new", workers=1)
    plan.carry_out()


def _undo(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.timemachine.move_undo.open_files", lambda _: halves.new)
    pointer = read_pointer(halves.old)
    if pointer is not None:
        plan_move_undo(halves.old, pointer).carry_out()


def _runnable(tree: dict[str, bytes]) -> bool:
    return tree.get("metadata", b"").startswith(b"{")


def _settled(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without what has a time or an id of its own."""
    ours = ("_headwater/",)
    return {
        path: data for path, data in tree.items() if not path.startswith(ours) and not path.endswith(".headwater.tmp")
    }


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", ["custom-changelog", pytest.param("join-hdfs", marks=pytest.mark.slow)])
def test_a_move_can_be_interrupted_at_any_moment(medium: type[CrashingDisk], name: str, monkeypatch) -> None:
    """The query can be started at one place at most, the old files stay, and the same command finishes the move."""
    start = checkpoint(name)
    whole = Halves(medium, start, {})
    assert whole.run(lambda halves: _move(halves, monkeypatch))
    points = whole.schedule.passed
    expected_old, expected_new = (_settled(tree) for tree in whole.contents)
    stride = max(1, points // 60)
    chosen = sorted({*range(0, points, stride), *range(max(0, points - 40), points)})
    print(f"move on {medium.__name__.lower()}: {len(chosen)} points")
    for crash_at in chosen:
        halves = Halves(medium, start, {}, crash_at)
        finished = halves.run(lambda halves: _move(halves, monkeypatch))
        old, new = halves.contents
        assert not (_runnable(old) and _runnable(new)), crash_at
        same = {path: old[path] for path in start if path not in ("metadata", ".metadata.crc")}
        assert same == {path: data for path, data in start.items() if path in same}
        if not finished and new and INCOMPLETE not in new:
            assert POINTER in old or not any(path for path in new if not path.endswith(".tmp")), crash_at
        again = Halves(medium, dict(old), dict(new))
        with contextlib.suppress(ChangeRefused):  # it was complete
            _move(again, monkeypatch)
        old, new = again.contents
        assert _settled(old) == expected_old, crash_at
        assert _settled(new) == expected_new, crash_at
        assert INCOMPLETE not in new and POINTER in old


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
def test_the_undo_of_a_move_can_be_interrupted_at_any_moment(medium: type[CrashingDisk], monkeypatch) -> None:
    """At most one of the two places can be started, and the same command finishes the undo."""
    moved = Halves(medium, checkpoint("custom-changelog"), {})
    _move(moved, monkeypatch)
    start = tuple(dict(tree) for tree in moved.contents)
    whole = Halves(medium, *(dict(tree) for tree in start))
    _undo(whole, monkeypatch)
    for crash_at in range(whole.schedule.passed):
        halves = Halves(medium, *(dict(tree) for tree in start), crash_at)
        halves.run(lambda halves: _undo(halves, monkeypatch))
        old, new = halves.contents
        assert not (_runnable(old) and _runnable(new)), crash_at
        again = Halves(medium, dict(old), dict(new))
        _undo(again, monkeypatch)
        old, new = again.contents
        assert (_runnable(old), _runnable(new), POINTER in old, POINTER in new) == (True, False, False, True), crash_at
        assert _settled(old) == _settled(checkpoint("custom-changelog")), crash_at


@pytest.mark.parametrize(
    ("recorded", "encoded", "expected"),
    [
        ("file:///data/in/a%20b.json", True, "file:///new%20disk/in/a%20b.json"),
        ("file:/data/in/a.json", True, "file:/new%20disk/in/a.json"),
        ("/data/in/x", False, "/new disk/in/x"),
        ("file:/data/in/day=1/x", False, "file:/new disk/in/day=1/x"),
        ("file:///data/input/a.json", True, None),
        ("s3a://data/in/a.json", True, None),
        ("file:///data/in", True, "file:///new%20disk/in"),
    ],
)
def test_local_paths(recorded: str, encoded: bool, expected: str | None) -> None:
    """A path below a moved folder changes in the form in which it was recorded; others stay."""
    new = LocalTree(Path("/new disk/in"))
    moves = Relocation(new, ((Place.of("/data/in"), new),))
    assert moves.new_uri(recorded, encoded=encoded) == expected


def test_paths_between_stores() -> None:
    """Between a disk and S3 the URIs are those that Spark records for the new store."""
    bucket, disk = open_files("s3://bucket/in"), LocalTree(Path("/data/in"))
    up, down = (
        Relocation(bucket, ((Place.of("/data/in"), bucket),)),
        Relocation(disk, ((Place.of("s3a://bucket/in"), disk),)),
    )
    assert up.new_uri("file:///data/in/a%20b.json", encoded=True) == "s3a://bucket/in/a%20b.json"
    assert down.new_uri("s3a://bucket/in/a%20b.json", encoded=True) == "file:///data/in/a%20b.json"
    assert down.new_uri("s3a://bucket/in/state/0", encoded=False) == "file:/data/in/state/0"
    assert up.new_endpoint("files:/data/in?format=json") == "files:s3a://bucket/in?format=json"
    assert down.new_endpoint("files:s3a://bucket/in/x") == "files:/data/in/x"
    assert up.new_endpoint("kafka://h:9092/t") is None


@pytest.mark.parametrize(
    "place",
    [
        "",
        "_headwater/quarantine/20260101T000000-rewind-abc/",
        "_headwater/kept/early/20260101T000000-abc/",
        "_headwater/migrated/7/",
        "_headwater/kept/early/20260101T000000-abc/_headwater/migrated/7/",
    ],
)
def test_metadata_is_rewritten_wherever_it_is_kept(place: str) -> None:
    """Metadata that a change, a restore point or a migration keeps leads to the schemas at the new place too."""
    data = checkpoint("custom-changelog")["state/0/_metadata/v2/0"]
    new = LocalTree(Path("/new"))
    moves = Relocation(new, ((Place.of("/old"), new),))
    found = rewritten(f"{place}state/0/_metadata/v2/0", data, moves)
    assert b'"file:/new/state/0/_stateSchema/' in found
    assert is_rewritten(f"{place}_headwater/job.json") or place.endswith("7/")


@pytest.mark.parametrize("old", ["/old", "/été à la mer"])
def test_a_single_schema_path_is_rewritten(old: str) -> None:
    """Metadata of the builds of Spark 4.0 that recorded one schema path, ``stateSchemaFilePath``, is rewritten as well."""
    version, body = checkpoint("custom-changelog")["state/0/_metadata/v2/0"].decode().split("\n", 1)
    metadata = json.loads(body)
    for store in metadata["stateStoreInfo"]:
        (recorded,) = store.pop("stateSchemaFilePaths")
        store["stateSchemaFilePath"] = f"file:{old}/state/{recorded.rpartition('/state/')[2]}"
    data = f"{version}\n{json.dumps(metadata, ensure_ascii=False)}".encode()
    new = LocalTree(Path("/new"))
    found = rewritten("state/0/_metadata/v2/0", data, Relocation(new, ((Place.of(old), new),)))
    stores = json.loads(found.partition(b"\n")[2])["stateStoreInfo"]
    assert stores
    assert all(store["stateSchemaFilePath"].startswith("file:/new/state/0/_stateSchema/") for store in stores)


def test_corrupt_metadata_is_moved_as_it_is() -> None:
    """Metadata that cannot be parsed is copied unchanged, for fsck to find it at the new location."""
    new = LocalTree(Path("/new"))
    assert rewritten("state/0/_metadata/v2/0", b"v2\n{", Relocation(new, ())) == b"v2\n{"


def test_quoting_is_that_of_java() -> None:
    """Spaces and percent signs are encoded, letters of other languages are not, as ``java.net.URI`` does it."""
    assert java_quote("/a b/100%/é/x=1/[y]/~(z)") == "/a%20b/100%25/é/x=1/%5By%5D/~(z)"


@pytest.mark.slow
def test_to_s3_and_back(s3: S3, tmp_path: Path) -> None:
    """A checkpoint with its input and its point goes to a bucket and back, and is then as it was in another folder."""
    old = at_home("custom-changelog", tmp_path / "old")
    make_point(LocalTree(old), "early", at="3")
    rows = list(state_rows(LocalTree(old)))
    place, inputs = s3.url("moves/checkpoint", "s3a"), s3.url("moves/input", "s3a")
    plan = plan_move(LocalTree(old), place, folders=[f"{old.parent / 'input'}={inputs}"])
    plan.apply()
    bucket = open_files(place)
    assert list(state_rows(bucket)) == rows
    assert not [finding for finding in run_checks(CheckContext(bucket, 0)) if finding.severity == "error"]
    assert all(path.startswith("s3a://headwater-tests/moves/input/events/") for path in input_paths(bucket))
    assert not [path for path in s3.objects("moves/checkpoint") if path.rpartition("/")[2].startswith(".")]
    log = FileSourceLog(bucket, "sources/0")
    written = {path: int(at.timestamp() * 1000) for path, at in s3.objects("moves/input").items()}
    for entry in log.everything_upto(log.names.latest or 0) or ():
        assert entry.timestamp_ms == written[entry.path.partition("moves/input/")[2]]
    home = tmp_path / "home"
    plan_move(bucket, str(home), folders=[f"{inputs}={tmp_path / 'inbox'}"]).apply()
    assert list(state_rows(LocalTree(home))) == rows
    assert errors_in(home) == []
    assert all(path.startswith(f"file://{tmp_path}/inbox/events/") for path in input_paths(LocalTree(home)))
    for metadata in home.glob("state/*/_metadata/v2/[0-9]*"):
        assert f"file:{home}/state/" in metadata.read_text()
    with pytest.raises(ChangeRefused, match="moved to"):
        refuse_if_moved(bucket)
    pointer = read_pointer(bucket)
    assert pointer is not None
    plan_move_undo(bucket, pointer).apply()
    refuse_if_moved(bucket)


def test_maps_may_have_equals_signs(tmp_path: Path) -> None:
    """A folder with ``=`` in its name can be moved; a plain text without one is refused with the form."""
    old = at_home("aggregation-changelog", tmp_path / "day=1")
    plan = plan_move(LocalTree(old), str(tmp_path / "new"), folders=[f"{old.parent}/input={tmp_path / 'day=2'}"])
    assert [folder.new.location for folder in plan.folders] == [str(tmp_path / "day=2")]
    with pytest.raises(UsageProblem):
        plan_move(Tree(checkpoint("aggregation-changelog")), str(tmp_path / "new"), folders=["x"])
