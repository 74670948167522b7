"""Rewinds of declarative pipelines that real Spark wrote, without Spark."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker_support import run_here
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import CASCADE_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.pipelines import open_pipeline
from headwater.core.errors import ChangeRefused
from headwater.timemachine.pipeline_rewind import PipelinePlan, plan_pipeline_rewind
from pipelines.trees import (
    STREAMING,
    checkpoint_of,
    committed_at,
    just_before,
    rows_of,
    set_time,
    tables_of,
    unpack,
)
from timemachine.test_rewind_and_undo import bytes_of

LAST = {"files": 1, "delta": 2}
"""The last batch of the flow `sales`."""


@pytest.fixture(params=["files", "delta"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(kind: str, tmp_path: Path) -> Path:
    return unpack(kind, tmp_path)


def plan(home: Path, to_time: str, **options: Any) -> PipelinePlan:
    pipeline = open_pipeline(str(home / "storage"))
    assert pipeline is not None
    return plan_pipeline_rewind(pipeline, to_time, **options)


def targets(planned: PipelinePlan) -> dict[str, int | None]:
    return {name: one.to for name, one in zip(planned.together.names, planned.together.plans, strict=True)}


def heads(home: Path) -> dict[str, int | None]:
    return {flow: History(LocalTree(checkpoint_of(home, flow))).last_committed for flow in STREAMING}


def spark_files(home: Path) -> dict[str, Any]:
    """Return what Spark sees: checkpoints, and the tables' rows. A Delta table is undone by a further commit."""
    checkpoints = {flow: bytes_of(checkpoint_of(home, flow)) for flow in STREAMING}
    return {**checkpoints, "rows": tables_of(home)}


def without_positions(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the files without the positions in Delta tables, and without the times of the files that have them."""
    if kind == "files":
        return found
    flows = {
        flow: {
            path: (re.sub(rb'"reservoirVersion":\d+', b"", data), 0) if path.startswith("offsets/") else (data, time)
            for path, (data, time) in found[flow].items()
        }
        for flow in STREAMING
    }
    return {**flows, "rows": found["rows"]}


def last_position(found: dict[str, Any], flow: str) -> int:
    offsets = [path for path in found[flow] if path.startswith("offsets/") and path[8:].isdigit()]
    data, _ = found[flow][max(offsets, key=lambda path: int(path[8:]))]
    return int(re.findall(rb'"reservoirVersion":(\d+)', data)[-1])


def test_a_rewind_takes_all_flows_and_tables_back_and_one_undo_reverts_it(kind: str, home: Path) -> None:
    """Each flow ends with its last batch by that time, its table has these rows only, and undo restores every file."""
    last = LAST[kind]
    before, rows = spark_files(home), tables_of(home)
    done = run_here("rewind", home / "spark-pipeline.yml", "--to-time", just_before(home, "sales", last), "--yes")
    assert done.returncode == 0, done.stderr
    assert heads(home) == {"sales": last - 1, "big_sales": last - 1, "totals": 2 * last - 1}
    after = tables_of(home)
    assert [row["id"] for row in after["sales"]] == [1, 2, 3, 4]
    assert after["big_sales"] == [row for row in rows["big_sales"] if row["id"] <= 4]
    assert after["totals"] == rows["totals"][:1]
    checked = run_here("fsck", home / "storage")
    assert checked.returncode == 0, checked.stdout
    undone = run_here("undo", home / "spark-pipeline.yml", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert "3 streams" in undone.stderr
    restored = spark_files(home)
    assert without_positions(restored, kind) == without_positions(before, kind)
    if kind == "delta":  # readers continue after the commits that took the rows away and brought them back
        assert [last_position(before, flow) for flow in ("big_sales", "totals")] == [6, 6]
        assert [last_position(restored, flow) for flow in ("big_sales", "totals")] == [8, 8]


def test_a_dry_run_changes_nothing_and_shows_every_flow(kind: str, home: Path) -> None:
    """The plan as JSON has one entry per flow, those that are read before their readers."""
    before = spark_files(home)
    shown = run_here(
        "rewind", home / "storage", "--to-time", just_before(home, "sales", LAST[kind]), "--dry-run", "--json"
    )
    found = json.loads(shown.stdout)
    assert found["pipeline"] == str(home / "storage")
    assert found["flows"][0]["flow"] == "sales"
    assert {one["flow"]: one["plan"]["to"] for one in found["flows"]}["totals"] == 2 * LAST[kind] - 1
    assert spark_files(home) == before


def test_a_time_before_the_first_batch_starts_the_pipeline_from_scratch(home: Path) -> None:
    """All tables become empty."""
    planned = plan(home, just_before(home, "sales", 0))
    assert targets(planned) == dict.fromkeys(STREAMING)
    planned.apply()
    assert tables_of(home) == {table: [] for table in STREAMING}


def test_a_time_after_the_last_batch_is_refused(home: Path) -> None:
    """There is nothing to undo then."""
    with pytest.raises(ChangeRefused) as refused:
        plan(home, "0s")
    assert refused.value.code == "nothing-to-undo"


def test_a_rewind_of_one_table_is_refused_if_another_one_has_its_rows(kind: str, home: Path) -> None:
    """With cascade the readers of the table are rewound as well."""
    moment = just_before(home, "sales", LAST[kind])
    with pytest.raises(ChangeRefused) as refused:
        plan(home, moment, tables=["sales"])
    assert refused.value.code == "downstream-rows" and "--cascade" in (refused.value.remedy or "")
    planned = plan(home, moment, tables=["sales"], cascade=True)
    assert set(targets(planned)) == set(STREAMING)


def test_a_table_that_nothing_reads_can_be_rewound_alone(kind: str, home: Path) -> None:
    """The other flows stay as they are, and undo by the name of the pipeline finds the one that changed."""
    before = heads(home)
    moment = just_before(home, "sales", LAST[kind])
    rows = tables_of(home)
    done = run_here("rewind", home / "storage", "--to-time", moment, "--tables", "totals", "--yes")
    assert done.returncode == 0, done.stderr
    assert "sales stays as it is" in done.stdout
    assert heads(home) == {**before, "totals": 2 * LAST[kind] - 1}
    assert run_here("undo", home / "storage", "--yes").returncode == 0
    assert (heads(home), tables_of(home)) == (before, rows)


def test_a_reader_returns_further_if_it_has_read_undone_rows(tmp_path: Path) -> None:
    """The times of two flows' commits do not show what one has read of the other; the logs do."""
    home = unpack("files", tmp_path)
    early = committed_at(home, "sales", 0)
    for batch in (0, 1):
        set_time(checkpoint_of(home, "big_sales") / "commits" / str(batch), early)
    assert targets(plan(home, just_before(home, "sales", 1)))["big_sales"] == 0


def test_a_flow_after_a_full_refresh_that_has_not_run_is_left_alone(tmp_path: Path) -> None:
    """Spark uses the highest number, and its folder may still be empty."""
    home = unpack("files", tmp_path)
    checkpoint_of(home, "totals").with_name("1").mkdir()
    planned = plan(home, just_before(home, "sales", 1))
    assert set(targets(planned)) == {"sales", "big_sales"}
    assert planned.together.unaffected == ("totals",)


def test_a_table_that_is_not_found_is_refused_until_it_is_named(tmp_path: Path) -> None:
    """Nothing in a checkpoint tells where a Delta table is. What was named is recorded for later commands."""
    home = unpack("delta", tmp_path / "home")
    moment = just_before(home, "sales", 2)
    shutil.move(home / "spark-warehouse", tmp_path / "warehouse")
    refused = run_here("rewind", home / "storage", "--to-time", moment, "--yes")
    assert "error[table-not-found]" in refused.stderr and "--warehouse" in refused.stderr
    named = ("--warehouse", tmp_path / "warehouse")
    dry = run_here("rewind", home / "storage", "--to-time", moment, "--dry-run", *named)
    assert dry.returncode == 0 and not (home / "storage/_headwater").exists()
    done = run_here("rewind", home / "storage", "--to-time", moment, "--yes", *named)
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "warehouse/shop2.db/sales")) == 4
    assert run_here("undo", home / "storage", "--yes").returncode == 0
    assert len(rows_of(tmp_path / "warehouse/shop2.db/sales")) == 6
    assert run_here("rewind", home / "storage", "--to-time", moment, "--dry-run").returncode == 0


def test_a_table_of_several_flows_is_refused(tmp_path: Path) -> None:
    """Nothing tells their rows apart in a table of files."""
    home = unpack("files", tmp_path)
    flow = checkpoint_of(home, "big_sales").parent
    shutil.copytree(flow, flow.with_name("backfill"))
    with pytest.raises(ChangeRefused) as refused:
        plan(home, just_before(home, "sales", 1))
    assert refused.value.code == "shared-table"


def test_a_flow_by_its_name_takes_the_other_flows_along(kind: str, home: Path) -> None:
    """--cascade finds the readers of a flow in the pipeline, from any committed batch."""
    shown = run_here("rewind", f"{home}/storage:sales", "--to", LAST[kind] - 1, "--cascade", "--dry-run", "--json")
    readers = json.loads(shown.stdout)["cascade"]
    assert {reader["job"]: reader["plan"]["to"] for reader in readers} == {
        "big_sales": LAST[kind] - 1,
        "totals": 2 * LAST[kind] - 1,
    }


def test_options_for_one_checkpoint_are_refused(tmp_path: Path) -> None:
    """The error names the form that works."""
    home = unpack("files", tmp_path)
    batch = run_here("rewind", home / "storage", "--to", "1")
    assert "error[bad-option]" in batch.stderr and "PIPELINE:FLOW" in batch.stderr
    assert "--to-time" in run_here("rewind", home / "storage").stderr
    for option in ("--replan", "--allow-duplicates"):
        ignored = run_here("rewind", home / "storage", "--to-time", "10:30", "--cascade", option)
        assert f"{option} works on one flow" in ignored.stderr
    single = run_here("rewind", f"{home}/storage:sales", "--to", "0", "--tables", "sales")
    assert "error[bad-option]" in single.stderr


def test_an_interrupted_rewind_is_finished_by_the_name_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow that records what is under way is found among the others."""
    home = unpack("files", tmp_path)
    planned = plan(home, just_before(home, "sales", 1))

    def crash(number: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planned.apply(crash)
    assert (checkpoint_of(home, "sales") / CASCADE_FILE).exists()
    assert heads(home)["sales"] == 1
    again = run_here("rewind", home / "storage", "--resume")
    assert again.returncode == 0, again.stderr
    assert heads(home) == {"sales": 0, "big_sales": 0, "totals": 1}
    assert run_here("rewind", home / "storage", "--resume").returncode != 0
