"""``headwater check --checkpoint``: changed code on the checkpoint of a job, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import assert_no_stack_trace
from cli.one_process import run_all
from cli.running import Command
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.plan_record import read_plans

JOBS = '''
from pyspark.sql import functions as F
from headwater import Console, Files, Job


def visits(rows, *, window="5 minutes", latest=False):
    """Visits per window."""
    counted = rows.withWatermark("at", "10 minutes").groupBy(F.window("at", window), "user")
    return counted.agg(F.count("*").alias("n"), *([F.max("at").alias("last")] if latest else []))


VISITS = Job("visits", visits, reads=Files("in", schema="user STRING, at TIMESTAMP"), writes=Console(), mode="update")
'''


@pytest.mark.services
def test_changed_code_from_the_command_line(tmp_path: Path) -> None:
    """A silent change is found by check, refused by run, and recorded once it is accepted."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ann", "at": "2024-05-01T10:01:00Z"}\n')
    job, longer = ["jobs.py", "--checkpoint", "visits"], ["--set", "window=10 minutes"]
    run, check = ["run", *job, "--trigger", "available-now"], ["check", *job]
    first, same, changed, refused, migrate, accepted, after = run_all(
        tmp_path,
        run,
        check,
        [*check, *longer, "--json"],
        [*run, *longer],
        [*run, "--set", "latest=true"],
        [*run, *longer, "--accept-change"],
        [*check, *longer],
    )
    assert first.status == 0, first.err
    assert (same.status, same.out.splitlines()[0]) == (0, "visits on visits: same"), same.out + same.err
    found = json.loads(changed.out)
    assert (changed.status, found["verdict"]) == (1, "changes-meaning")
    (difference,) = found["differences"]
    assert (difference["what"], difference["old"], difference["new"]) == (
        "operator 0 (aggregation): keys",
        "window(at, 5 minutes), user",
        "window(at, 10 minutes), user",
    )
    assert difference["remedy"] == "headwater run jobs.py --checkpoint visits --accept-change"
    assert (refused.status, refused.err.partition(":")[0]) == (10, "error[changed-meaning]"), refused.err
    assert "--accept-change" in refused.err
    assert (migrate.status, migrate.err.partition(":")[0]) == (10, "error[state-incompatible]"), migrate.err
    assert f"headwater migrate {tmp_path}/visits --job jobs.py" in migrate.err
    for one in (refused, migrate):
        assert_no_stack_trace(one.err)
    assert accepted.status == 0, accepted.err
    # The accepted run found no input, so the state is still that of the old code.
    assert (after.status, after.out.splitlines()[0]) == (1, "visits on visits: compatible but changes meaning")
    record = read_plans(LocalTree(tmp_path / "visits"))
    assert [plan.accepted for plan in record] == [
        (),
        ("operator 0 (aggregation): keys: window(at, 5 minutes), user → window(at, 10 minutes), user",),
    ]


def test_json_needs_a_checkpoint(command: Command) -> None:
    """``--json`` belongs to the comparison with a checkpoint."""
    ran = command("check", "word-count", "--json")
    assert (ran.status, ran.err.partition(":")[0]) == (2, '{"error"'), ran.err
    assert "needs --checkpoint" in ran.err


def test_checkpoint_has_to_exist(command: Command, tmp_path: Path) -> None:
    """A checkpoint that does not exist is reported before Spark starts."""
    ran = command("check", "word-count", "--checkpoint", str(tmp_path / "none"))
    assert ran.status == 13, ran.err
