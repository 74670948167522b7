"""Rewind, undo, fork and fsck of a checkpoint whose query writes to a Delta table, from the command line."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as RustTable

from broker_support import run_here
from corpus_support import as_memory_files, load
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.checkpoint.restore_points import find_point
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_log import DeltaLog
from headwater.timemachine.fork import plan_query_fork
from headwater.timemachine.keep import make_point
from headwater.timemachine.rewind import plan_query_rewind, plan_rewind
from headwater.timemachine.rewind_target import plan_rewind_to
from headwater.timemachine.tables import fsck
from lakehouse.delta_support import Writer, rows_of

LAST = 9


@dataclass(frozen=True)
class Streamed:
    """A checkpoint with batches 0 to 9, and the table that has them."""

    checkpoint: Path
    writer: Writer
    query_id: str

    @property
    def sink(self) -> str:
        return f"delta:{self.writer.path}"

    @property
    def batches(self) -> list[int]:
        return [number for who, number in rows_of(self.writer.path) if who == self.query_id]

    def record_sink(self) -> None:
        folder = self.checkpoint / "_headwater"
        folder.mkdir(exist_ok=True)
        (folder / "job.json").write_bytes(JobRecord("job", sink=self.sink).to_bytes())

    def findings(self, *options: str) -> list[dict[str, Any]]:
        return findings(self.checkpoint, self.sink, *options)


def findings(checkpoint: Path, sink: str, *options: str) -> list[dict[str, Any]]:
    """Return what fsck reports about the table of a checkpoint."""
    done = run_here("fsck", checkpoint, "--json", *options)
    return [found for line in done.stdout.splitlines() if (found := json.loads(line))["path"] == sink]


@pytest.fixture
def streamed(tmp_path: Path) -> Streamed:
    checkpoint = load("aggregation-hdfs", tmp_path).path
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    writer = Writer(tmp_path / "table")
    for number in range(LAST + 1):
        writer.batch(query_id, number)
    return Streamed(checkpoint, writer, query_id)


def test_a_plan_for_a_named_table(streamed: Streamed) -> None:
    """The plan names the table, its versions, the batches in it and what leaves; a dry run changes nothing."""
    shown = run_here("rewind", streamed.checkpoint, "--to", 4, "--sink", streamed.sink, "--dry-run").stdout
    assert f"{streamed.sink}: version 9 now; returns to version 4, as version 10" in shown
    assert "batches 5 to 9 (5 batches) are in this table with this query's id" in shown
    assert "5 files, 5 rows" in shown
    planned = run_here("rewind", streamed.checkpoint, "--to", 4, "--sink", streamed.sink, "--dry-run", "--json")
    table = json.loads(planned.stdout)["table"]
    assert (table["version"], table["returns_to"], table["leaving"]) == (9, 4, {"files": 5, "rows": 5})
    assert streamed.writer.head == LAST


def test_rewind_and_undo(streamed: Streamed) -> None:
    """Checkpoint and table move together, there and back."""
    options = ("--sink", streamed.sink, "--yes", "--allow-missing-input")
    done = run_here("rewind", streamed.checkpoint, "--to", 4, *options)
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(5))
    assert not (streamed.checkpoint / "commits/5").exists()
    assert [found["code"] for found in streamed.findings("--sink", streamed.sink)] == ["table-equal"]
    done = run_here("undo", streamed.checkpoint, "--yes")
    assert done.returncode == 0, done.stderr
    assert "returns to version 9" in done.stdout
    assert streamed.batches == list(range(LAST + 1))
    assert (streamed.checkpoint / "commits/9").exists()
    done = run_here("rewind", streamed.checkpoint, "--redo", 0, *options)
    assert done.returncode == 0, done.stderr
    assert streamed.batches == []


def test_a_recorded_table_need_not_be_named(streamed: Streamed) -> None:
    """The table that a run recorded is rewound without being named; one that is unknown is warned about."""
    unknown = run_here("rewind", streamed.checkpoint, "--to", 4, "--dry-run").stdout
    assert "a table that has recorded batches 5 to 9 silently skips them" in unknown
    assert "delta:PATH" in unknown
    streamed.record_sink()
    assert "returns to version 4" in run_here("rewind", streamed.checkpoint, "--to", 4, "--dry-run").stdout
    (streamed.writer.path / "_delta_log").rename(streamed.writer.path / "elsewhere")
    missing = run_here("rewind", streamed.checkpoint, "--to", 4, "--dry-run").stdout
    assert f"{streamed.sink} was not found" in missing


def test_fsck_names_the_command_that_repairs_a_table_ahead(streamed: Streamed) -> None:
    """After a rewind of the checkpoint alone the table is ahead, and the command that fsck names repairs it."""
    assert run_here("rewind", streamed.checkpoint, "--to", 4, "--yes", "--allow-missing-input").returncode == 0
    run_here("rewind", streamed.checkpoint, "--redo", 5, "--replan", "--yes", "--allow-missing-input")
    (found,) = streamed.findings("--sink", streamed.sink)
    assert (found["severity"], found["code"]) == ("error", "table-ahead")
    command = found["message"].rpartition("run headwater ")[2].split()
    done = run_here(*command, "--yes", "--allow-missing-input")
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(5))
    assert [found["code"] for found in streamed.findings("--sink", streamed.sink)] == ["table-equal"]


def test_fsck_compares_the_table_with_the_checkpoint(streamed: Streamed) -> None:
    """fsck reports a table that is equal, restored by hand, behind, missing, or that of another query."""
    streamed.record_sink()
    (found,) = streamed.findings()
    assert (found["severity"], found["code"]) == ("info", "table-equal")
    RustTable(str(streamed.writer.path)).restore(3)
    (found,) = streamed.findings()
    assert found["code"] == "table-restored"
    assert f"run headwater rewind {streamed.checkpoint} --redo 4 --sink {streamed.sink}" in found["message"]
    other = Writer(streamed.writer.path.with_name("behind"))
    other.batch(streamed.query_id, 6)
    (found,) = findings(streamed.checkpoint, f"delta:{other.path}", "--sink", f"delta:{other.path}")
    assert found["code"] == "table-behind"
    other = Writer(streamed.writer.path.with_name("other"))
    other.batch("another", 6)
    (found,) = findings(streamed.checkpoint, f"delta:{other.path}", "--sink", f"delta:{other.path}")
    assert found["code"] == "not-its-table"
    (found,) = findings(streamed.checkpoint, "delta:/nowhere", "--sink", "delta:/nowhere")
    assert found["code"] == "table-missing"


def test_a_fork_gets_a_copy_of_the_table(streamed: Streamed, tmp_path: Path) -> None:
    """A fork continues in a copy as of its batch, which shares the data files; the original stays as it is."""
    into, copy = tmp_path / "fork", tmp_path / "copy"
    options = ("--at", 6, "--sink", f"delta:{copy}", "--copy-of", streamed.sink)
    streamed.writer.insert(77)
    done = run_here("fork", streamed.checkpoint, into, *options)
    assert done.returncode == 0, done.stderr
    assert "shares 7 files, 7 rows with the original as of version 6" in done.stdout
    assert "VACUUM" in done.stdout
    log = DeltaLog(LocalTree(copy))
    snapshot = log.snapshot(0)
    query_id = json.loads((into / "metadata").read_text())["id"]
    assert snapshot.transactions == {query_id: 6}
    assert all(Path(path.removeprefix("file:")).exists() for path, _ in snapshot.files)
    assert len(streamed.batches) == LAST + 1
    (found,) = findings(into, f"delta:{copy}", "--sink", f"delta:{copy}")
    assert found["code"] == "table-equal"
    # The copy does not know which of its rows are those of earlier batches.
    refused = run_here("rewind", into, "--to", 5, "--sink", f"delta:{copy}", "--dry-run")
    assert "error[table-log-cleaned]" in refused.stderr
    assert run_here("fork", streamed.checkpoint, tmp_path / "again", *options).returncode == 15


def test_a_restore_point_pins_the_version_of_the_table(streamed: Streamed) -> None:
    """A rewind to a restore point returns to its version, also in a branch that was left; fsck warns of VACUUM."""
    streamed.record_sink()
    assert run_here("keep", streamed.checkpoint, "good", "--at", 6).returncode == 0
    assert run_here("rewind", streamed.checkpoint, "--to", 4, "--yes", "--allow-missing-input").returncode == 0
    assert streamed.batches == list(range(5))
    shown = run_here("rewind", streamed.checkpoint, "--to", "good", "--dry-run")
    assert "returns to version 6, as version 11" in shown.stdout, shown.stderr
    done = run_here("rewind", streamed.checkpoint, "--to", "good", "--yes", "--allow-missing-input")
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(7))
    assert run_here("undo", streamed.checkpoint, "--yes").returncode == 0
    assert streamed.batches == list(range(5))
    assert [found["code"] for found in streamed.findings()] == ["table-equal"]
    (point,) = (streamed.checkpoint / "_headwater/kept/good").glob("point.json")
    point.write_text(json.dumps(json.loads(point.read_text()) | {"kept_at_ms": 0}))
    assert [found["code"] for found in streamed.findings()] == ["table-equal", "kept-table"]
    point.write_text(json.dumps(json.loads(point.read_text()) | {"table_version": None}))
    refused = run_here("rewind", streamed.checkpoint, "--to", "good", "--dry-run")
    assert "error[table-not-kept]" in refused.stderr


def test_a_fork_into_a_new_table(streamed: Streamed, tmp_path: Path) -> None:
    """Without the original's table, the fork starts with an empty one, and the plan says so."""
    done = run_here("fork", streamed.checkpoint, tmp_path / "fork", "--sink", f"delta:{tmp_path / 'new'}")
    assert done.returncode == 0, done.stderr
    assert "the new table starts empty" in done.stdout
    assert not (tmp_path / "new").exists()


def test_options_that_make_no_sense(streamed: Streamed) -> None:
    """An unknown engine and a sink that cannot be checked are usage errors."""
    assert run_here("rewind", streamed.checkpoint, "--to", 4, "--sink", streamed.sink, "--engine", "x").returncode == 2
    assert run_here("fsck", streamed.checkpoint, "--sink", "console:").returncode == 2


def test_undo_of_an_edit_takes_later_batches_out_of_the_table(streamed: Streamed) -> None:
    """Batches that ran after an edit are removed from the table with the edit, and the pair ends at the batch before it."""
    streamed.record_sink()
    done = run_here("edit", streamed.checkpoint, "--delete", "--where", "true", "--reason", "test", "--yes")
    assert done.returncode == 0, done.stderr
    for folder in ("offsets", "commits"):
        (streamed.checkpoint / folder / "11").write_bytes((streamed.checkpoint / folder / "10").read_bytes())
    streamed.writer.batch(streamed.query_id, 11)
    assert run_here("undo", streamed.checkpoint, "--yes").returncode == 15
    done = run_here("undo", streamed.checkpoint, "--drop-newer", "--yes")
    assert done.returncode == 0, done.stderr
    assert "batch 11 is in this table with this query's id" in done.stdout
    assert streamed.batches == list(range(LAST + 1))
    assert [found["code"] for found in streamed.findings()] == ["table-equal"]


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """A rewind with a table that was named and does not exist is refused."""
    files = as_memory_files("dedup-hdfs")
    with pytest.raises(ChangeRefused) as refused:
        plan_query_rewind(files, to=4, sink=f"delta:{tmp_path}/nothing")
    assert refused.value.code == "not-a-delta-table"


def stream_with_point(tmp_path: Path) -> tuple[Path, Writer, str]:
    """Return a checkpoint with a restore point at batch 6, its Delta table, and the id of the query."""
    path = load("aggregation-hdfs", tmp_path).path
    query_id = json.loads((path / "metadata").read_text())["id"]
    table = Writer(tmp_path / "table")
    for number in range(10):
        table.batch(query_id, number)
    LocalTree(path).write(JOB_FILE, JobRecord("job", sink=f"delta:{table.path}").to_bytes())
    point = make_point(LocalTree(path), "good", at="6")
    assert (point.table_version, point.table_id is None) == (6, False)
    return path, table, query_id


@pytest.mark.parametrize("ran_again", [False, True])
def test_a_fork_of_a_point_copies_the_table_of_the_point(tmp_path: Path, ran_again: bool) -> None:
    """The state of the fork is that of the point, and so are the rows, also if the batches ran again since."""
    path, table, query_id = stream_with_point(tmp_path)
    plan_query_rewind(LocalTree(path), to=4).apply(allow_missing_input=True)
    if ran_again:
        for number in (5, 6):
            table.batch(query_id, number)
    copy = tmp_path / "copy"
    plan_query_fork(LocalTree(path), str(tmp_path / "fork"), at="good", sink=f"delta:{copy}").apply()
    wanted, copied = (DeltaLog(LocalTree(place)) for place in (table.path, copy))
    assert len(copied.snapshot(0).files) == 7
    assert {Path(name).name for name, _ in copied.snapshot(0).files} == {
        Path(name).name for name, _ in wanted.snapshot(6).files
    }


def test_a_point_of_a_table_whose_id_is_unknown(tmp_path: Path) -> None:
    """The commit with the id is gone, which is no sign of another table."""
    checkpoint, writer, _ = stream_with_point(tmp_path)
    (writer.path / commit_path(0)).unlink()
    assert DeltaLog(LocalTree(writer.path)).table_id is None
    (problem,) = [found.message for found in fsck(LocalTree(checkpoint)) if found.code == "kept-table"]
    assert "another table" not in problem


def test_a_point_of_a_table_that_was_created_again(tmp_path: Path) -> None:
    """Its versions are those of another table, so the rewind is refused, and fsck says why."""
    path, table, query_id = stream_with_point(tmp_path)
    shutil.rmtree(table.path)
    other = Writer(table.path)
    other.insert(0)
    for number in range(10):
        other.batch(query_id, number)
    files = LocalTree(path)
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    with pytest.raises(ChangeRefused, match="another one is at its place now") as refused:
        plan_rewind_to(files, find_point(files, "good"))
    assert refused.value.code == "table-not-kept"
    assert "restore point good, batch 6: another table is at its place now" in [one.message for one in fsck(files)]
