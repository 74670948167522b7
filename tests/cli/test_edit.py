"""``headwater edit``, ``export`` and ``import``."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load
from headwater import Checkpoint
from headwater.errors import ChangeRefused, UsageProblem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return load("complete-changelog", tmp_path).path


def counts(path: Path) -> dict[str, int]:
    table = Checkpoint(path).state()
    return {row["key"]["kind"]: row["value"]["count"] for row in table.to_pylist()}


def test_an_edit_is_shown_applied_and_undone(command: Command, path: Path) -> None:
    """The plan shows rows before and after; log shows who, when and why; undo removes the batch."""
    before = counts(path)
    dry = command("edit", path, "--key", "kind=buy", "--set", "count=10", "--reason", "a test", "--dry-run")
    assert dry.status == 0, dry.err
    assert f"Edit the state of {path}\n" in dry.out
    assert "rows        1 changed" in dry.out
    assert "added       batch 5, which reads no input" in dry.out
    assert f"{before['buy']} → 10" in dry.out
    assert counts(path) == before
    asked = command("edit", path, "--key", "kind=buy", "--set", "count=10")
    assert (asked.status, counts(path)) == (UsageProblem.exit_status, before)
    ran = command("edit", path, "--key", "kind=buy", "--set", "count=10", "--reason", "a test", "--yes")
    assert ran.status == 0, ran.err
    assert f"done: batch 5 was added. To undo: headwater undo {path}" in ran.err
    assert counts(path) == before | {"buy": 10}
    assert ": a test" in command("log", path).out
    shown = json.loads(command("log", path, "--json").out.splitlines()[-1])
    assert (shown["change"]["verb"], shown["change"]["reason"], shown["sources"][0]["rows"]) == ("edit", "a test", 0)
    assert "added by edit by " in command("show", path).out
    changed = [json.loads(line) for line in command("diff", path, 4, 5, "--json").out.splitlines()]
    assert [(row["change"], row["key"]) for row in changed] == [("changed", {"kind": "buy"})]
    assert command("undo", path, "--yes").status == 0
    assert counts(path) == before


def test_the_plan_as_json(command: Command, path: Path) -> None:
    """With --json the plan is one object, and the result another."""
    ran = command("edit", path, "--delete", "--where", "kind = 'buy'", "--yes", "--json")
    plan, done = map(json.loads, ran.out.splitlines())
    assert plan["rows"] == {"added": 0, "changed": 0, "removed": 1, "unchanged": 0}
    assert (plan["sample"][0]["before"]["kind"], plan["sample"][0]["after"]) == ("buy", None)
    assert (plan["batch_id"], done["batch_id"], "commits/5" in plan["written"]) == (5, 5, True)
    assert "buy" not in counts(path)
    refused = command("edit", path, "--delete", "--where", "kind = 'buy'", "--yes", "--json")
    assert refused.status == ChangeRefused.exit_status
    assert json.loads(refused.err)["error"] == "no-such-row"


def test_the_output_of_state_can_be_put_back(command: Command, path: Path, tmp_path: Path) -> None:
    """What state writes as CSV is a file of rows for --from; an unknown sink is a warning."""
    before, file = counts(path), tmp_path / "rows.csv"
    file.write_text(command("state", path, "--format", "csv").out.replace(f'"buy",{before["buy"]},', '"buy",99,'))
    ran = command("edit", path, "--from", file, "--yes")
    assert ran.status == 0, ran.err
    assert "warning: the sink of this query is not recorded" in ran.out
    assert counts(path) == before | {"buy": 99}


def test_the_journal_has_no_rows(command: Command, path: Path) -> None:
    """A removed key is not left in the journal."""
    command("edit", path, "--key", "kind=buy", "--delete", "--yes")
    (entry,) = (path / "_headwater/journal").glob("*.json")
    assert "buy" not in entry.read_text()
    assert base64.b64encode(b"buy").decode()[:3] not in entry.read_text()


def test_state_is_exported_and_imported(command: Command, path: Path, tmp_path: Path) -> None:
    """Both forms of import replace the rows of a checkpoint by those of the file."""
    before, file = counts(path), tmp_path / "out.parquet"
    ran = command("export", path, file)
    assert f"{len(before)} rows as of batch 4 written to {file}" in ran.err
    other = load("complete-hdfs", tmp_path / "other").path
    assert command("edit", other, "--sql", "update state set count = 0", "--yes").status == 0
    ran = command("import", file, "--checkpoint", other, "--yes", "--reason", "a move")
    assert ran.status == 0, ran.err
    assert counts(other) == before
    assert command("undo", other, "--yes").status == 0
    assert command("import", other, "--from", file, "--yes").status == 0
    assert counts(other) == before
    assert "import by " in command("log", other).out
    assert command("import", other).status == UsageProblem.exit_status


def test_custom_state_is_exported_to_a_folder(command: Command, tmp_path: Path) -> None:
    """Every variable and index has a file of its own, and all are imported together."""
    path = load("custom-changelog", tmp_path).path
    before = command("state", path, "--json").out
    ran = command("export", path, tmp_path / "out", "--json")
    files = [json.loads(line)["file"] for line in ran.out.splitlines()]
    assert len(files) == 5
    assert command("edit", path, "--key", "user=bob", "--delete", "--yes").status == 0
    assert command("import", path, "--from", files[0], "--yes").status == ChangeRefused.exit_status
    assert command("import", path, "--from", tmp_path / "out", "--yes").status == 0
    after = command("state", path, "--json").out
    assert sorted(after.splitlines()) == sorted(before.splitlines())


def test_from_python(path: Path, tmp_path: Path) -> None:
    """Plans show themselves, and take Python values and Arrow tables."""
    held = Checkpoint(path)
    plan = held.edit({"kind": "buy"}, set={"count": 7}, reason="by hand")
    assert "rows        1 changed" in repr(plan)
    assert "1 changed" in plan._repr_html_()
    assert plan.apply().change.details["reason"] == "by hand"
    rows = held.state(key={"kind": "buy"})
    held.edit({"kind": "buy"}, delete=True).apply()
    assert "buy" not in counts(path)
    held.edit(rows=rows).apply()
    assert counts(path)["buy"] == 7
    (file,) = held.export(tmp_path / "out.arrow")
    held.edit(sql="delete from state").apply()
    assert counts(path) == {}
    held.import_(file).apply()
    assert counts(path)["buy"] == 7


def test_rows_are_erased(command: Command, path: Path) -> None:
    """The plan names what is lost, and the result says that it cannot be undone."""
    before = counts(path)
    dry = command("edit", path, "--key", "kind=buy", "--delete", "--erase", "--dry-run")
    assert dry.status == 0, dry.err
    assert "this cannot be undone" in dry.out
    assert "lost        batches 0 to 4 (5 batches): the stream can no longer be rewound to them" in dry.out
    assert counts(path) == before
    ran = command("edit", path, "--key", "kind=buy", "--delete", "--erase", "--yes", "--json", "--reason", "17")
    plan, done = map(json.loads, ran.out.splitlines())
    assert plan["erases"]["batches"] == [0, 1, 2, 3, 4]
    assert done["batch_id"] == 5
    assert "This cannot be undone" in ran.err
    assert counts(path) == {kind: number for kind, number in before.items() if kind != "buy"}
    log = command("log", path).out
    assert "edit by " in log
    assert log.count("yes") == 1
    refused = command("undo", path, "--yes", "--json")
    assert (refused.status, json.loads(refused.err)["error"]) == (ChangeRefused.exit_status, "erased")
    (entry,) = (path / "_headwater/journal").glob("*.json")
    assert "buy" not in entry.read_text()
    assert command("edit", path, "--key", "kind=sell", "--set", "count=1", "--erase").status == UsageProblem.exit_status


def test_options_of_a_new_checkpoint_need_a_job(command: Command, path: Path, tmp_path: Path) -> None:
    """An import into an existing checkpoint has no position."""
    command("export", path, tmp_path / "out.parquet")
    refused = command("import", tmp_path / "out.parquet", "--checkpoint", path, "--at", "latest")
    assert refused.status == UsageProblem.exit_status
    assert "--at needs --job" in refused.err
