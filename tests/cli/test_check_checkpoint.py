"""``headwater check --checkpoint``: changed code on the checkpoint of a job, from the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.commands import assert_no_stack_trace, lines_after_note
from cli.one_process import run_all
from cli.running import Command, Ran
from headwater import Checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.plan_record import RecordedPlan, read_plans

JOBS = '''
from pyspark.sql import functions as F
from headwater import Console, Files, Job


def visits(rows, *, window="5 minutes", latest=False):
    """Visits per window."""
    counted = rows.withWatermark("at", "10 minutes").groupBy(F.window("at", window), "user")
    return counted.agg(F.count("*").alias("n"), *([F.max("at").alias("last")] if latest else []))


VISITS = Job("visits", visits, reads=Files("in", schema="user STRING, at TIMESTAMP"), writes=Console(), mode="update")
'''


@dataclass(frozen=True)
class Changed:
    """What the commands printed, one after another on one checkpoint."""

    folder: Path
    first: Ran
    same: Ran
    changed: Ran
    refused: Ran
    incompatible: Ran
    accepted: Ran
    after: Ran
    record: tuple[RecordedPlan, ...]
    unconfirmed: Ran
    migrated: Ran
    resumed: Ran


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Changed:
    """Run, change the code in several ways, and migrate the state, in one process."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "jobs.py").write_text(JOBS)
    (folder / "in").mkdir()
    (folder / "in" / "a.json").write_text('{"user": "ann", "at": "2024-05-01T10:01:00Z"}\n')
    job, longer = ["jobs.py", "--checkpoint", "visits"], ["--set", "window=10 minutes"]
    run, check = ["run", *job, "--trigger", "available-now"], ["check", *job]
    migrate = ["migrate", "visits", "--job", "jobs.py", "--setting", "latest=true"]
    *results, unconfirmed, migrated, resumed = run_all(
        folder,
        run,
        check,
        [*check, *longer, "--json"],
        [*run, *longer],
        [*run, "--set", "latest=true"],
        [*run, *longer, "--accept-change"],
        [*check, *longer],
        [*migrate, "--json"],
        [*migrate, "--set", "max=window.start", "--reason", "show the last visit", "--yes"],
        [*run, "--set", "latest=true"],
    )
    record = read_plans(LocalTree(folder / "visits"))
    return Changed(folder, *results, record, unconfirmed, migrated, resumed)


def refusal_of(ran: Ran) -> tuple[int, str]:
    """Return the status of a command, and the code of its error."""
    return ran.status, lines_after_note(ran.err)[0].partition(":")[0]


@pytest.mark.services
def test_changed_code_from_the_command_line(ran: Changed) -> None:
    """A silent change is found by check, refused by run, and recorded once it is accepted."""
    assert ran.first.status == 0, ran.first.err
    assert (ran.same.status, ran.same.out.splitlines()[0]) == (0, "visits on visits: same"), ran.same.out + ran.same.err
    found = json.loads(ran.changed.out)
    assert (ran.changed.status, found["verdict"]) == (1, "changes-meaning")
    (difference,) = found["differences"]
    assert (difference["what"], difference["old"], difference["new"]) == (
        "operator 0 (aggregation): keys",
        "window(at, 5 minutes), user",
        "window(at, 10 minutes), user",
    )
    assert difference["remedy"] == "headwater run jobs.py --checkpoint visits --accept-change"
    assert refusal_of(ran.refused) == (10, "error[changed-meaning]"), ran.refused.err
    assert "--accept-change" in ran.refused.err
    assert refusal_of(ran.incompatible) == (10, "error[state-incompatible]"), ran.incompatible.err
    assert f"headwater migrate {ran.folder}/visits --job jobs.py" in ran.incompatible.err
    for one in (ran.refused, ran.incompatible):
        assert_no_stack_trace(one.err)
    assert ran.accepted.status == 0, ran.accepted.err
    # The accepted run found no input, so the state is still that of the old code.
    assert (ran.after.status, ran.after.out.splitlines()[0]) == (1, "visits on visits: compatible but changes meaning")
    assert [plan.accepted for plan in ran.record[:2]] == [
        (),
        ("operator 0 (aggregation): keys: window(at, 5 minutes), user → window(at, 10 minutes), user",),
    ]


@pytest.mark.services
def test_migration_from_the_command_line(ran: Changed) -> None:
    """The plan shows fields, rows and what differs; then the job resumes with the migrated state, until it is undone."""
    plan = json.loads(ran.unconfirmed.out)
    (store,) = plan["stores"]
    assert (plan["rows"], [(one["name"], one["from"]) for one in store["fields"]]) == (
        1,
        [("count", "kept"), ("max", "initial")],
    )
    assert store["sample"][0]["after"]["max"] is None
    assert plan["effects"] == [
        f"max(at) covers only records from batch {plan['batch_id'] + 1} on, for the key in the state"
    ]
    assert (ran.unconfirmed.status, json.loads(ran.unconfirmed.err)["error"]) == (2, "not-confirmed")
    assert ran.migrated.status == 0, ran.migrated.err
    assert "+ max timestamp: window.start   (max(at))" in ran.migrated.out
    assert f"done: batch {plan['batch_id']} was added. To undo: headwater undo visits" in ran.migrated.err
    assert ran.resumed.status == 0, ran.resumed.err
    held = Checkpoint(ran.folder / "visits")
    assert [row["max"].isoformat() for row in held.state()["value"].to_pylist()] == ["2024-05-01T10:00:00+00:00"]
    held.undo(drop_newer=True).apply()
    assert held.state()["value"].to_pylist() == [{"count": 1}]
    assert len(ran.record) == 3
    assert len(read_plans(LocalTree(ran.folder / "visits"))) == 2


def test_json_needs_a_checkpoint(command: Command) -> None:
    """``--json`` belongs to the comparison with a checkpoint."""
    ran = command("check", "word-count", "--json")
    assert (ran.status, ran.err.partition(":")[0]) == (2, '{"error"'), ran.err
    assert "needs --checkpoint" in ran.err


def test_checkpoint_has_to_exist(command: Command, tmp_path: Path) -> None:
    """A checkpoint that does not exist is reported before Spark starts."""
    ran = command("check", "word-count", "--checkpoint", str(tmp_path / "none"))
    assert ran.status == 13, ran.err
