"""``headwater migrate``: changed code on the checkpoint of a job, from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import assert_no_stack_trace
from cli.one_process import run_all
from cli.running import Command
from cli.test_check_checkpoint import JOBS
from headwater import Checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.plan_record import read_plans


@pytest.mark.services
def test_migration_from_the_command_line(tmp_path: Path) -> None:
    """The plan shows fields, rows and what differs; then the job resumes with the migrated state, until it is undone."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ann", "at": "2024-05-01T10:01:00Z"}\n')
    run = ["run", "jobs.py", "--checkpoint", "visits", "--trigger", "available-now"]
    migrate = ["migrate", "visits", "--job", "jobs.py", "--setting", "latest=true"]
    first, refused, bad, done, resumed = run_all(
        tmp_path,
        run,
        [*migrate, "--json"],
        [*migrate, "--set", "max=1 +", "--yes"],
        [*migrate, "--set", "max=window.start", "--reason", "show the last visit", "--yes"],
        [*run, "--set", "latest=true"],
    )
    assert first.status == 0, first.err
    plan = json.loads(refused.out)
    (store,) = plan["stores"]
    assert (plan["rows"], [(one["name"], one["from"]) for one in store["fields"]]) == (
        1,
        [("count", "kept"), ("max", "initial")],
    )
    assert store["sample"][0]["after"]["max"] is None
    assert plan["effects"] == [
        f"max(at) covers only records from batch {plan['batch_id'] + 1} on, for the key in the state"
    ]
    assert (refused.status, json.loads(refused.err)["error"]) == (2, "not-confirmed"), refused.err
    assert (bad.status, bad.err.partition(":")[0]) == (2, "error[bad-sql]"), bad.err
    for one in (refused, bad):
        assert_no_stack_trace(one.err)
    assert done.status == 0, done.err
    assert "+ max timestamp: window.start   (max(at))" in done.out
    assert f"done: batch {plan['batch_id']} was added. To undo: headwater undo visits" in done.err
    assert resumed.status == 0, resumed.err
    held = Checkpoint(tmp_path / "visits")
    assert [row["max"].isoformat() for row in held.state()["value"].to_pylist()] == ["2024-05-01T10:00:00+00:00"]
    assert len(read_plans(LocalTree(tmp_path / "visits"))) == 2
    held.undo(drop_newer=True).apply()
    assert held.state()["value"].to_pylist() == [{"count": 1}]
    assert len(read_plans(LocalTree(tmp_path / "visits"))) == 1


def test_checkpoint_without_state(command: Command, tmp_path: Path) -> None:
    """A checkpoint without state is refused before Spark starts."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata").write_text('{"id":"3b1e2a34-0000-4000-8000-000000000000"}')
    ran = command("migrate", str(tmp_path / "empty"), "--job", "word-count", "--yes")
    assert (ran.status, ran.err.partition(":")[0]) == (15, "error[no-state]"), ran.err
