"""``headwater show``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import corpus_names, load


@pytest.mark.parametrize("name", corpus_names())
def test_json_object(name: str, command: Command, corpus) -> None:
    """A batch whole has the log's fields, its configuration, the state of every store, and files that are there."""
    checkpoint = corpus(name)
    logged = [json.loads(line) for line in command("log", checkpoint.path, "--json").out.splitlines()]
    last = [batch for batch in logged if batch["status"] == "committed"][-1]
    ran = command("show", checkpoint.path, last["batch_id"], "--json")
    shown = json.loads(ran.out)
    assert ran.status == 0
    assert {field: shown[field] for field in last} == last
    assert shown["conf"]
    assert all((checkpoint.path / path).is_file() for path in shown["files"])
    assert f"offsets/{last['batch_id']}" in shown["files"]
    assert {store["version"] for store in shown["state"]} <= {last["batch_id"] + 1}
    assert bool(shown["state"]) == (checkpoint.path / "state").exists()
    assert all(store["rebuildable"] for store in shown["state"])


@pytest.mark.parametrize("name", corpus_names())
def test_operators_and_stores_are_those_that_spark_names(name: str, command: Command, corpus) -> None:
    """Operators and their names agree with Spark's own `state-metadata` reader, which knows nothing before Spark 4."""
    checkpoint = corpus(name)
    shown = json.loads(command("show", checkpoint.path, "HEAD", "--json").out)
    ours = {(store["operator_id"], store["operator"]) for store in shown["state"]}
    if name.startswith("spark3"):
        assert not checkpoint.metadata
        assert ours == {(int(folder.name), None) for folder in (checkpoint.path / "state").iterdir()}
    else:
        assert ours == {(one["operatorId"], one["operatorName"]) for one in checkpoint.metadata}


def test_text(command: Command, corpus) -> None:
    """The text says when, what was read and from which files, and how the state is built."""
    out = command("show", corpus("aggregation-changelog").path, "HEAD~9").out
    assert out.splitlines()[0] == "batch 0, committed"
    for piece in ("source 0: files", "input file", "state version 1", "operator 0, stateStoreSave", "offsets/0"):
        assert piece in out


def test_head_is_the_default(command: Command, corpus) -> None:
    """Without a batch the last committed one is shown; every way to name it leads there."""
    path = corpus("aggregation-hdfs").path
    assert command("show", path).out == command("show", path, "9").out == command("show", path, "HEAD").out
    assert command("show", path, "@2100-01-01").out == command("show", path).out


def test_unknown_batch(command: Command, corpus) -> None:
    """A batch that is not there is a usage error that says which are."""
    ran = command("show", corpus("aggregation-hdfs").path, "77")
    assert ran.status == 2
    assert "0 to 9" in ran.err


def test_batch_that_cannot_be_read(command: Command, tmp_path: Path) -> None:
    """Of a broken batch as much is shown as can be read, and the problem."""
    path = load("aggregation-hdfs", tmp_path).path
    (path / "offsets/4").write_bytes(b"")
    ran = command("show", path, "4")
    assert ran.status == 0
    assert re.search(r"^  problem +offsets/4 is empty$", ran.out, flags=re.MULTILINE)
