"""``headwater alerts``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from alerts.receiver import receiving
from cli.running import Command
from corpus_support import load

RULES = """
[[alerts.rule]]
when = "nothing-committed"
above = "1h"

[[alerts.rule]]
when = "dropped-share"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwater.toml").write_text(RULES)
    return tmp_path


def test_rules_are_shown(folder: Path, command: Command) -> None:
    """Without a checkpoint, the rules are listed with their limits."""
    ran = command("alerts")
    assert ran.status == 0
    assert "nothing-committed" in ran.out
    assert "1 h" in ran.out
    assert "no targets" in ran.err


def test_rules_are_evaluated(folder: Path, command: Command) -> None:
    """On a checkpoint, the state of each rule is printed; the exit status is 1 if a condition is met."""
    path = load("aggregation-hdfs", folder).path
    ran = command("alerts", path, "--json")
    found = {line["rule"]: line for line in map(json.loads, ran.out.splitlines())}
    assert ran.status == 1
    assert (found["nothing-committed"]["state"], found["dropped-share"]["state"]) == ("met", "unknown")
    assert found["nothing-committed"]["summary"].startswith("nothing was committed for ")
    (folder / "headwater.toml").write_text('[[alerts.rule]]\nwhen = "batches-failing"')
    assert command("alerts", path).status == 0


def test_prometheus(folder: Path, command: Command) -> None:
    """The rules are printed as YAML and nothing else."""
    ran = command("alerts", "--prometheus")
    assert [rule["alert"] for rule in yaml.safe_load(ran.out)["groups"][0]["rules"]] == [
        "HeadwaterNothingCommitted",
        "HeadwaterDroppedShare",
    ]


def test_a_test_alert(folder: Path, command: Command) -> None:
    """A test alert reaches each target; one that fails is named."""
    with receiving() as receiver:
        target = f'[[alerts.send]]\nwebhook = "{receiver.url}/a"\n[[alerts.send]]\nwebhook = "http://127.0.0.1:1/b"'
        (folder / "headwater.toml").write_text(f"{RULES}\n{target}")
        ran = command("alerts", "--test")
    assert [path for path, _, _ in receiver.requests] == ["/a"]
    assert ran.status == 12
    assert "delivered: webhook 127.0.0.1" in ran.out
    assert "error[not-delivered]: webhook 127.0.0.1:1 cannot be reached" in ran.err


def test_mistakes(folder: Path, command: Command) -> None:
    """No rules, a wrong file and options that exclude each other are refused."""
    assert command("alerts", "--prometheus", "x").status == 2
    assert "error[no-targets]" in command("alerts", "--test").err
    (folder / "headwater.toml").write_text("[alerts]\nrule = 1")
    for arguments in (["alerts"], ["ui", "x"], ["run", "word-count"]):
        ran = command(*arguments)
        assert ran.status == 2
        assert "error[bad-config]" in ran.err
    (folder / "headwater.toml").unlink()
    assert "error[no-rules]" in command("alerts").err
