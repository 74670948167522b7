"""Generated records as rows of a Delta table, written without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from broker_support import run_here
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import UsageProblem
from headwater.lakehouse.delta_actions import commit_path, rows_in
from headwater.lakehouse.delta_lines import DeltaLineWriter
from headwater.lakehouse.delta_log import DeltaLog


def values(folder: Path) -> list[str]:
    log = DeltaLog(LocalTree(folder))
    files = log.snapshot(log.head).files.values()
    return [text for file in files for text in parquet.read_table(folder / file["path"]).column("value").to_pylist()]


def test_each_full_file_is_a_commit(tmp_path: Path) -> None:
    """A commit appears when its file has its number of records; the rest is committed at the end."""
    with DeltaLineWriter(LocalTree(tmp_path), records_per_file=2) as writer:
        writer.send_values([b"1", b"2", b"3"])
        assert values(tmp_path) == ["1", "2"]
        writer.send_values([b"4", b"5"])
    log = DeltaLog(LocalTree(tmp_path))
    assert [[rows_in(add) for add in log.commit(version).adds] for version in log.versions] == [[2], [2], [1]]
    assert sorted(values(tmp_path)) == ["1", "2", "3", "4", "5"]


def test_two_writers(tmp_path: Path) -> None:
    """A version that another program committed first is left alone, and the next one is used."""
    first = DeltaLineWriter(LocalTree(tmp_path), records_per_file=1)
    second = DeltaLineWriter(LocalTree(tmp_path), records_per_file=1)
    for number in range(3):
        first.send_values([f"a{number}".encode()])
        second.send_values([f"b{number}".encode()])
    assert sorted(values(tmp_path)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert DeltaLog(LocalTree(tmp_path)).versions == list(range(6))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schemaString": json.dumps({"fields": [{"name": "shop"}]})}, "other columns than value: shop"),
        ({"configuration": {"delta.appendOnly": "true"}}, "features or properties"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    """A table with other columns or with properties is refused."""
    with DeltaLineWriter(LocalTree(tmp_path), records_per_file=1) as writer:
        writer.send_values([b"1"])
    file = LocalTree(tmp_path)
    actions = [json.loads(line) for line in file.read(commit_path(0)).splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"] |= change
    file.write(commit_path(0), "\n".join(map(json.dumps, actions)).encode())
    with pytest.raises(UsageProblem) as refused:
        DeltaLineWriter(LocalTree(tmp_path), records_per_file=1)
    assert reason in refused.value.evidence["reason"]


def test_generate(tmp_path: Path) -> None:
    """``generate --to delta:PATH`` writes each record as the text of a row, malformed ones too."""
    table = tmp_path / "sales"
    done = run_here("generate", "sales", "--to", f"delta:{table}", "--count", "50", "--malformed", "10%", "--seed", "1")
    assert f"50 sales to delta:{table}" in done.stdout
    assert len(values(table)) == 50
    again = run_here("generate", "sales", "--to", f"delta:{table}", "--count", "5", "--seed", "2", "--json")
    assert json.loads(again.stdout)["records"] == 5
    assert len(values(table)) == 55
    refused = run_here("generate", "sales", "--to", f"delta:{table}?merge_on=a", "--count", "5")
    assert (refused.returncode, "bad-target" in refused.stderr) == (2, True)
