"""The methods of ``Checkpoint`` return what the commands of the same name print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.running import Command
from corpus_support import CorpusCheckpoint, load
from headwater import Checkpoint
from headwater.checkpoint.layout import PENDING_FILE
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.errors import ChangeRefused, CheckpointBusy, HeadwaterError, UsageProblem
from headwater.timemachine.journal import Pending
from headwater.timemachine.tables import fsck
from headwater.views.state_lines import table_lines

Corpus = Callable[[str], CorpusCheckpoint]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def printed(table: pa.Table, *columns: str) -> list[dict[str, Any]]:
    """Return columns of a table as ``--json`` prints them."""
    return lines("\n".join(table_lines(table.select(columns))))


def test_state_of_a_key(corpus: Corpus, command: Command) -> None:
    """``state(key=…)`` returns the rows that ``state --key`` prints; the fields may be Python values, nested ones too."""
    path = corpus("aggregation-changelog").path
    first = Checkpoint(path).state(at=2).to_pylist()[0]["key"]
    start = first["window"]["start"]
    shown = lines(command("state", path, "--at", 2, "--key", f"window.start={start.isoformat()}", "--json").out)
    assert shown
    for key in ({"window": {"start": start}}, {"window.start": start.isoformat()}):
        assert printed(Checkpoint(path).state(at=2, key=key), "key", "value") == [
            {"key": row["key"], "value": row["value"]} for row in shown
        ]


def test_state_where(corpus: Corpus, command: Command) -> None:
    """``state(where=…)`` returns the rows that ``state --where`` prints."""
    path = corpus("aggregation-changelog").path
    condition = "count > 1"
    shown = lines(command("state", path, "--where", condition, "--json").out)
    table = Checkpoint(path).state(where=condition)
    assert 0 < table.num_rows < Checkpoint(path).state().num_rows
    assert printed(table, "partition_id", "key", "value") == [
        {name: row[name] for name in ("partition_id", "key", "value")} for row in shown
    ]


def test_state_is_an_arrow_table(corpus: Corpus, tmp_path: Path) -> None:
    """A state is a real Arrow table, so functions that take only such tables accept it."""
    state = Checkpoint(corpus("aggregation-changelog").path).state()
    assert type(state) is pa.Table
    parquet.write_table(state, tmp_path / "state.parquet")
    assert parquet.read_table(tmp_path / "state.parquet") == state
    assert pa.concat_tables([state, state]).num_rows == 2 * state.num_rows
    assert polars.from_arrow(state).unnest("key", "value").height == state.num_rows


def test_diff_is_what_the_command_prints(corpus: Corpus, command: Command) -> None:
    """``diff`` returns the changes that ``diff --json`` prints."""
    path = corpus("aggregation-changelog").path
    shown = lines(command("diff", path, "1", "4", "--json").out)
    assert printed(Checkpoint(path).diff(1, 4), "change", "key", "before", "after") == [
        {name: row[name] for name in ("change", "key", "before", "after")} for row in shown
    ]


@pytest.mark.parametrize("changes", [False, True])
def test_key_history(corpus: Corpus, command: Command, changes: bool) -> None:
    """``key_history`` returns the rows that ``history`` prints, and whether a batch changed the key."""
    path = corpus("aggregation-changelog").path
    user = Checkpoint(path).state(at=2).to_pylist()[0]["key"]["user"]
    options = ["--changes"] if changes else []
    shown = lines(command("history", path, "--key", f"user={user}", *options, "--json").out)
    assert shown
    table = Checkpoint(path).key_history({"user": user}, changes=changes)
    assert table.column_names == ["batch_id", "key", "value", "changed", "partition_id"]
    assert printed(table, "batch_id", "key", "value") == shown
    assert all(table["changed"].to_pylist()) == changes


def test_history_of_a_key_in_several_stores(corpus: Corpus) -> None:
    """A key that several stores have is refused until one store is named."""
    checkpoint = Checkpoint(corpus("join-changelog").path)
    state = checkpoint.state(store="left-keyToNumValues")
    field, value = next(iter(state.to_pylist()[0]["key"].items()))
    with pytest.raises(UsageProblem) as refused:
        checkpoint.key_history({field: value})
    assert refused.value.code == "which-state"
    assert checkpoint.key_history({field: value}, store="left-keyToNumValues").num_rows
    with pytest.raises(UsageProblem) as refused:
        checkpoint.key_history({})
    assert refused.value.code == "bad-key"


@pytest.mark.parametrize("condition", ["count > 2", "count > 1000", "(select sum(count) from state) > 10"])
def test_bisect(corpus: Corpus, command: Command, condition: str) -> None:
    """``bisect`` finds the batch that the command prints, with the same tests."""
    path = corpus("aggregation-changelog").path
    (shown,) = lines(command("bisect", path, "--where", condition, "--json").out)
    found = Checkpoint(path).bisect(condition)
    assert {"first_batch": found.first_batch, "tested": list(found.tested)} == shown


def test_fsck(tmp_path: Path, command: Command) -> None:
    """``fsck`` returns the findings that the command prints, an empty list for a consistent checkpoint."""
    path = load("aggregation-format2", tmp_path).path
    assert Checkpoint(path).fsck() == []
    (path / "commits/5").unlink()
    (path / "offsets/6").write_text("nonsense")
    found = Checkpoint(path).fsck()
    assert {finding.severity for finding in found} >= {"error"}
    assert [finding.as_dict() for finding in found] == lines(command("fsck", path, "--json").out)


def test_fsck_of_a_sink(corpus: Corpus) -> None:
    """The sink is given as a folder, or as on the command line; other sinks cannot be checked."""
    checkpoint = corpus("sink-session")
    missing = checkpoint.sink.with_name("elsewhere")
    for sink in (missing, f"files:{missing}"):
        assert Checkpoint(checkpoint.path).fsck(sink=sink) == fsck(LocalTree(checkpoint.path), f"files:{missing}")
    with pytest.raises(UsageProblem):
        fsck(LocalTree(checkpoint.path), "kafka://127.0.0.1:9092/visits")


def test_undo(tmp_path: Path, command: Command) -> None:
    """``undo`` plans what the command plans; applying it restores the checkpoint."""
    path = load("kafka-changelog", tmp_path).path
    checkpoint = Checkpoint(path)
    before = list(checkpoint.batches)
    with pytest.raises(ChangeRefused) as refused:
        checkpoint.undo()
    assert refused.value.code == "nothing-to-undo"
    checkpoint.plan_rewind(to=4).apply()
    assert checkpoint.batches[-1].batch_id == 5
    plan = checkpoint.undo()
    (shown,) = lines(command("undo", path, "--dry-run", "--json").out)
    assert plan.as_dict() == shown
    assert plan.apply().change.undoes == shown["undoes"]
    assert list(checkpoint.batches) == before


def test_undo_that_drops_batches(tmp_path: Path) -> None:
    """Batches that were committed since are discarded only if told so."""
    path = load("kafka-stateless", tmp_path).path
    checkpoint = Checkpoint(path)
    last = checkpoint.batches[-1].batch_id
    checkpoint.plan_rewind(to=last - 1).apply()
    (path / f"commits/{last}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    with pytest.raises(ChangeRefused) as refused:
        checkpoint.undo()
    assert refused.value.code == "newer-batches"
    assert checkpoint.undo(drop_newer=True).dropped == (last,)


def test_fork(tmp_path: Path, command: Command) -> None:
    """``fork`` plans what the command plans; applying it writes a checkpoint with the same state."""
    checkpoint = Checkpoint(load("kafka-changelog", tmp_path).path)
    into = tmp_path / "fork"
    plan = checkpoint.fork(into, at=4)
    (shown,) = lines(command("fork", checkpoint.location, into, "--at", 4, "--dry-run", "--json").out)
    assert plan.as_dict() == shown
    assert not into.exists()
    plan.apply()
    assert Checkpoint(into).batches[-1].batch_id == 4
    assert Checkpoint(into).state().sort_by("partition_id") == checkpoint.state(at=4).sort_by("partition_id")


def test_repartition(corpus: Corpus, command: Command) -> None:
    """``repartition`` plans what the command plans, and refuses what it refuses, without Spark."""
    checkpoint = Checkpoint(corpus("aggregation-changelog").path)
    plan = checkpoint.repartition(5)
    (shown,) = lines(command("repartition", checkpoint.location, 5, "--dry-run", "--json").out)
    assert plan.as_dict() == shown == {"batch_id": 10, "before": 2, "partitions": 5}
    for partitions, code in ((2, "nothing-to-do"), (0, "bad-option")):
        with pytest.raises(HeadwaterError) as refused:
            checkpoint.repartition(partitions)
        assert refused.value.code == code


def test_changes_respect_the_lease(tmp_path: Path) -> None:
    """A plan is not carried out while a job or another change holds the lease."""
    checkpoint = Checkpoint(load("kafka-changelog", tmp_path).path)
    checkpoint.plan_rewind(to=4).apply()
    plans = [checkpoint.plan_rewind(to=3), checkpoint.undo()]
    with hold_lease(checkpoint.files, "another job", "cannot be"):
        for plan in plans:
            with pytest.raises(CheckpointBusy):
                plan.apply()


def test_changes_wait_for_an_interrupted_one(tmp_path: Path) -> None:
    """No change is planned while another one is unfinished."""
    path = load("kafka-changelog", tmp_path).path
    checkpoint = Checkpoint(path)
    checkpoint.plan_rewind(to=6).apply()
    plan = checkpoint.plan_rewind(to=4)
    (path / PENDING_FILE).write_bytes(Pending(0, plan.change, 0, None, None).to_bytes())
    for change in (checkpoint.undo, lambda: checkpoint.fork(tmp_path / "fork"), lambda: checkpoint.repartition(5)):
        with pytest.raises(ChangeRefused) as refused:
            change()
        assert refused.value.code == "interrupted-operation"
