"""Promotions of forks, without Spark."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from broker_support import run_here
from headwater.checkpoint.file_logs import FileSinkLog
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_checkpoint
from headwater.checkpoint.moved import POINTER, read_pointer, refuse_if_moved
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused
from headwater.spark.ownership import checkpoint_location
from headwater.timemachine.catching_up import lag_of, shared_parts
from headwater.timemachine.cuts import relative_to_sink
from headwater.timemachine.fork import plan_query_fork
from headwater.timemachine.promote import PromotePlan, PromoteUndoPlan, plan_promotion
from headwater.views.promote_text import compared
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule
from timemachine.test_cascade import Files
from timemachine.test_move import at_home
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
        theirs, own = (LocalTree(folder) for folder in self.folders)
        log = FileSinkLog(theirs)
        known = {entry.path for number in range(batch) for entry in log.read(number).entries}
        lines = []
        for number, entry in enumerate(one for one in log.read(batch).entries if one.path not in known):
            name = f"part-{batch}-{number}.json"
            own.write(name, theirs.read(relative_to_sink(theirs, entry.path)))
            lines.append(json.dumps({"path": f"file://{own.root}/{name}".replace(" ", "%20"), "action": "add"}))
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
    done = run_here("promote", twins.fork.location, "--yes")
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
    for action, begin in ((promotion, start), (undo, dict(whole.contents))):
        counted = medium(dict(begin), CrashSchedule(), "/original")
        action(counted)
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
