"""Rewind, undo, fork and fsck of a checkpoint whose query writes to an Iceberg table, from the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker_support import run_here
from corpus_support import load
from headwater.checkpoint.record import JobRecord
from lakehouse.iceberg_support import Lake

LAST = 9
APPLY = ("--yes", "--allow-missing-input")


@dataclass(frozen=True)
class Streamed:
    """A checkpoint with batches 0 to 9, and the table that has them."""

    checkpoint: Path
    lake: Lake
    query_id: str

    @property
    def batches(self) -> list[int]:
        return [number for who, number in self.lake.rows if who == self.query_id]

    def record_sink(self) -> None:
        folder = self.checkpoint / "_headwater"
        folder.mkdir(exist_ok=True)
        (folder / "job.json").write_bytes(JobRecord("job", sink=self.lake.sink).to_bytes())

    def findings(self, *options: str) -> list[dict[str, Any]]:
        return findings(self.checkpoint, *options)


def findings(checkpoint: Path, *options: str) -> list[dict[str, Any]]:
    """Return what fsck reports about the table of a checkpoint."""
    done = run_here("fsck", checkpoint, "--json", *options)
    return [found for line in done.stdout.splitlines() if (found := json.loads(line))["path"].startswith("iceberg:")]


@pytest.fixture
def streamed(tmp_path: Path) -> Streamed:
    checkpoint = load("aggregation-hdfs", tmp_path).path
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    lake = Lake(tmp_path / "lake")
    for number in range(LAST + 1):
        lake.batch(query_id, number)
    return Streamed(checkpoint, lake, query_id)


def test_rewind_and_undo(streamed: Streamed) -> None:
    """The plan names the table and its snapshots. Checkpoint and table move together, there and back."""
    sink, snapshots = streamed.lake.sink, streamed.lake.snapshots(streamed.query_id)
    shown = run_here("rewind", streamed.checkpoint, "--to", 4, "--sink", sink, "--dry-run").stdout
    now = f"iceberg:lake.shop.sales: snapshot {snapshots[9]} now; returns to snapshot {snapshots[4]}"
    assert f"{now}, the tag headwater-" in shown
    assert "batches 5 to 9 (5 batches) are in this table with this query's id" in shown
    assert "5 files, 5 rows" in shown
    done = run_here("rewind", streamed.checkpoint, "--to", 4, "--sink", sink, *APPLY)
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(5))
    assert [found["code"] for found in streamed.findings("--sink", sink)] == ["table-equal"]
    done = run_here("undo", streamed.checkpoint, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"returns to snapshot {snapshots[9]}" in done.stdout
    assert streamed.batches == list(range(LAST + 1))
    done = run_here("rewind", streamed.checkpoint, "--redo", 0, "--sink", sink, *APPLY)
    assert "becomes empty" in done.stdout, done.stderr
    assert streamed.batches == []
    done = run_here("undo", streamed.checkpoint, "--yes")
    assert f"iceberg:lake.shop.sales: empty now; returns to snapshot {snapshots[9]}" in done.stdout, done.stderr
    assert streamed.batches == list(range(LAST + 1))


def test_fsck_names_the_command_that_repairs_a_table_ahead(streamed: Streamed) -> None:
    """After a rewind of the checkpoint alone the table is ahead, and the command that fsck names repairs it."""
    sink = streamed.lake.sink
    assert run_here("rewind", streamed.checkpoint, "--to", 4, "--replan", *APPLY).returncode == 0
    (found,) = streamed.findings("--sink", sink)
    assert (found["severity"], found["code"]) == ("error", "table-ahead")
    command = shlex.split(found["message"].rpartition("run headwater ")[2])
    done = run_here(*command, *APPLY)
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(5))
    assert [found["code"] for found in streamed.findings("--sink", sink)] == ["table-equal"]


def test_a_recorded_table_need_not_be_named(streamed: Streamed) -> None:
    """The table that a run recorded is rewound and checked without being named; one that is not found is warned about."""
    streamed.record_sink()
    assert "returns to snapshot" in run_here("rewind", streamed.checkpoint, "--to", 4, "--dry-run").stdout
    assert [found["code"] for found in streamed.findings()] == ["table-equal"]
    streamed.lake.folder.rename(streamed.lake.folder.with_name("elsewhere"))
    missing = run_here("rewind", streamed.checkpoint, "--to", 4, "--dry-run").stdout
    assert "was not found; an Iceberg table that has recorded batches 5 to 9" in missing
    (found,) = streamed.findings("--sink", streamed.lake.sink)
    assert found["code"] == "table-missing"


def test_a_fork_gets_a_copy_of_the_table(streamed: Streamed, tmp_path: Path) -> None:
    """A fork continues in a copy as of its batch, which shares the data files; the original stays as it is."""
    into, copy = tmp_path / "fork", streamed.lake.sink.replace("shop.sales", "shop.tried")
    options = ("--at", 6, "--sink", copy, "--copy-of", streamed.lake.sink)
    done = run_here("fork", streamed.checkpoint, into, *options)
    assert done.returncode == 0, done.stderr
    assert "shares 7 files, 7 rows with the original as of snapshot" in done.stdout
    assert "expire_snapshots" in done.stdout
    assert len(streamed.batches) == LAST + 1
    (found,) = findings(into, "--sink", copy)
    assert found["code"] == "table-equal"
    written = json.loads((streamed.lake.folder.with_name("tried") / "metadata/v1.metadata.json").read_text())
    assert written["properties"]["gc.enabled"] == "false"
    assert len(written["snapshots"]) == 7
    refused = run_here("rewind", into, "--to", 5, "--sink", copy, "--dry-run")
    assert "is a copy that starts with the rows of batch 6" in refused.stderr
    assert run_here("fork", streamed.checkpoint, tmp_path / "again", *options).returncode == 15
    other = run_here("fork", streamed.checkpoint, tmp_path / "b", "--sink", "delta:x", "--copy-of", streamed.lake.sink)
    assert "the formats differ" in other.stderr
    unknown = run_here("fork", streamed.checkpoint, tmp_path / "b", "--sink", "iceberg:rest.a.b")
    assert "only a Hadoop catalog derives it" in unknown.stderr


def test_a_restore_point_pins_the_snapshot(streamed: Streamed) -> None:
    """A rewind to a restore point returns to its snapshot, also in a branch that was left; fsck warns that it may expire."""
    streamed.record_sink()
    pinned = streamed.lake.snapshots(streamed.query_id)[6]
    assert run_here("keep", streamed.checkpoint, "good", "--at", 6).returncode == 0
    assert run_here("rewind", streamed.checkpoint, "--to", 4, *APPLY).returncode == 0
    shown = run_here("rewind", streamed.checkpoint, "--to", "good", "--dry-run")
    assert f"returns to snapshot {pinned}" in shown.stdout, shown.stderr
    done = run_here("rewind", streamed.checkpoint, "--to", "good", *APPLY)
    assert done.returncode == 0, done.stderr
    assert streamed.batches == list(range(7))
    assert run_here("undo", streamed.checkpoint, "--yes").returncode == 0
    assert streamed.batches == list(range(5))
    (point,) = (streamed.checkpoint / "_headwater/kept/good").glob("point.json")
    point.write_text(json.dumps(json.loads(point.read_text()) | {"kept_at_ms": 0}))
    assert [found["code"] for found in streamed.findings()] == ["table-equal"], "the tag of the undo keeps it"
    streamed.lake.drop_tags()
    assert [found["code"] for found in streamed.findings()] == ["table-equal", "kept-table"]


def test_the_engine_is_for_delta(streamed: Streamed) -> None:
    """Spark is not needed for the commit to an Iceberg table, and is refused as its engine."""
    options = ("--sink", streamed.lake.sink, "--engine", "spark", "--dry-run")
    refused = run_here("rewind", streamed.checkpoint, "--to", 4, *options)
    assert "--engine spark is for Delta tables" in refused.stderr
