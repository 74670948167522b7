"""``headwater show``, and the JSON of ``headwater log``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.running import Command
from corpus_support import corpus_names, load, sampled

KEYS = {"batch_id", "status", "planned_at", "committed_at", "watermark", "sources", "can_rewind_to", "why_not"}


def logged_batches(command: Command, path: Path) -> list[dict[str, Any]]:
    """Return what `log` prints: each batch as one JSON object with the documented fields, oldest first."""
    ran = command("log", path, "--json")
    assert (ran.status, ran.err) == (0, "")
    batches = [json.loads(line) for line in ran.out.splitlines()]
    assert batches
    assert [batch["batch_id"] for batch in batches] == sorted(batch["batch_id"] for batch in batches)
    for batch in batches:
        assert batch.keys() >= KEYS
        assert batch["status"] in ("committed", "planned")
        assert batch["can_rewind_to"] == (batch["why_not"] is None)
        assert batch["planned_at"].endswith("Z")
        for source in batch["sources"]:
            assert source.keys() >= {"kind", "start", "end", "rows"}
    return batches


@pytest.mark.parametrize("name", sampled(corpus_names(), every=3))
def test_json_of_log_and_show(name: str, command: Command, corpus) -> None:
    """A batch has the fields of the log, its configuration, the state of every store, and files that exist.

    Operators and their names are those of Spark's `state-metadata` reader, which supports Spark 4 only.
    """
    checkpoint = corpus(name)
    last = [batch for batch in logged_batches(command, checkpoint.path) if batch["status"] == "committed"][-1]
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
    shown_operators = {(store["operator_id"], store["operator"]) for store in shown["state"]}
    if name.startswith("spark3"):
        assert not checkpoint.metadata
        assert shown_operators == {(int(folder.name), None) for folder in (checkpoint.path / "state").iterdir()}
    else:
        assert shown_operators == {(one["operatorId"], one["operatorName"]) for one in checkpoint.metadata}


def test_text(command: Command, corpus) -> None:
    """The text shows the times, the source and its input files, and how the state is rebuilt."""
    out = command("show", corpus("aggregation-changelog").path, "HEAD~9").out
    assert out.splitlines()[0] == "batch 0, committed"
    for piece in ("source 0: files", "input file", "state version 1", "operator 0, stateStoreSave", "offsets/0"):
        assert piece in out


def test_head_is_the_default(command: Command, corpus) -> None:
    """The last committed batch is shown by default, and under each of its names."""
    path = corpus("aggregation-hdfs").path
    assert command("show", path).out == command("show", path, "9").out == command("show", path, "HEAD").out
    assert command("show", path, "@2100-01-01").out == command("show", path).out


def test_unknown_batch(command: Command, corpus) -> None:
    """An unknown batch is a usage error that names the known ones."""
    ran = command("show", corpus("aggregation-hdfs").path, "77")
    assert ran.status == 2
    assert "0 to 9" in ran.err


def test_corrupt_batch(command: Command, tmp_path: Path) -> None:
    """For a corrupt batch, what can be read is shown, with the problem."""
    path = load("aggregation-hdfs", tmp_path).path
    (path / "offsets/4").write_bytes(b"")
    ran = command("show", path, "4")
    assert ran.status == 0
    assert re.search(r"^  problem +offsets/4 is empty$", ran.out, flags=re.MULTILINE)
