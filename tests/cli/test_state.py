"""``headwater state``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cli.commands import imported_by
from cli.running import Command
from corpus_support import CorpusCheckpoint, load

Corpus = Callable[[str], CorpusCheckpoint]


def test_json_lines_have_the_rows_of_spark(command: Command, corpus: Corpus) -> None:
    """``--json`` prints one row per line, with the names and times of Spark's reader."""
    held = corpus("aggregation-changelog")
    batch = held.answers[-1].batch_id
    ran = command("state", held.path, "--json")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert list(rows[0]) == ["operator_id", "store", "var", "partition_id", "key", "value"]
    (spark,) = held.answers_at(batch)
    native = [{name: row[name] for name in ("key", "value", "partition_id")} for row in rows]
    assert sorted(map(repr, native)) == sorted(map(repr, spark.rows))
    assert rows[0]["key"]["window"]["start"].endswith(".000Z")


def test_at_an_older_batch(command: Command, corpus: Corpus) -> None:
    """``--at`` accepts a number or a revision."""
    held = corpus("aggregation-changelog")
    newest = held.answers[-1].batch_id
    by_number = command("state", held.path, "--at", newest - 2, "--json").out
    assert by_number == command("state", held.path, "--at", "HEAD~2", "--json").out
    assert by_number != command("state", held.path, "--json").out


def test_every_variable_and_one(command: Command, corpus: Corpus) -> None:
    """Each variable of custom state is shown under its name; timers and lists have the columns of Spark's reader."""
    path = corpus("custom-changelog").path
    rows = [json.loads(line) for line in command("state", path, "--json").out.splitlines()]
    shapes = {row["var"]: set(row["value"]) for row in rows}
    assert {"list_element"} in shapes.values()
    assert {"user_map_key", "user_map_value"} in shapes.values()
    assert {"expiration_timestamp_ms"} in shapes.values()
    name = next(var for var, shape in shapes.items() if shape == {"list_element"})
    only = [json.loads(line) for line in command("state", path, "--var", name, "--json").out.splitlines()]
    assert only == [row for row in rows if row["var"] == name]


def test_table_has_a_count_and_a_limit(command: Command, corpus: Corpus) -> None:
    """The table shows some rows, their number, and how to see the rest."""
    ran = command("state", corpus("aggregation-changelog").path, "--limit", 2)
    assert "window.start" in ran.out
    assert len([line for line in ran.out.splitlines() if "Z" in line]) == 2
    assert "rows" in ran.err
    assert "--limit 0 shows all" in ran.err


def test_where_and_key_select_rows(command: Command, corpus: Corpus) -> None:
    """A condition in SQL and a field of the key select the same rows."""
    path = corpus("aggregation-changelog").path
    rows = [json.loads(line) for line in command("state", path, "--json").out.splitlines()]
    field = next(name for name, value in rows[0]["key"].items() if isinstance(value, str))
    wanted = rows[0]["key"][field]
    expected = sorted(repr(row) for row in rows if row["key"][field] == wanted)
    for options in (
        ["--where", f"{field} = '{wanted}'"],
        ["--where", f"key.{field} = '{wanted}'"],
        ["--key", f"{field}={wanted}"],
    ):
        found = [json.loads(line) for line in command("state", path, *options, "--json").out.splitlines()]
        assert sorted(map(repr, found)) == expected


def test_window_needs_no_quotes(command: Command, corpus: Corpus) -> None:
    """``window.start`` needs no quotes, although window is a reserved word in SQL."""
    path = corpus("aggregation-changelog").path
    rows = [json.loads(line) for line in command("state", path, "--json").out.splitlines()]
    start = max(row["key"]["window"]["start"] for row in rows)
    found = [
        json.loads(line)
        for line in command("state", path, "--where", f"window.start >= '{start}'", "--json").out.splitlines()
    ]
    assert {row["key"]["window"]["start"] for row in found} == {start}


def test_sql(command: Command, corpus: Corpus) -> None:
    """``--sql`` runs a query on the table ``state``."""
    path = corpus("aggregation-changelog").path
    count = len(command("state", path, "--json").out.splitlines())
    ran = command("state", path, "--sql", 'select count(*) as rows, max("window".start) as last from state', "--json")
    row = json.loads(ran.out)
    assert row["rows"] == count
    assert row["last"].endswith("Z")


def test_bad_sql_is_explained(command: Command, corpus: Corpus) -> None:
    """The error for bad SQL lists the columns of the state."""
    ran = command("state", corpus("aggregation-changelog").path, "--where", "nope > 1")
    assert ran.status == 2
    assert "columns of state  window" in ran.err


def test_csv_and_parquet(command: Command, corpus: Corpus, tmp_path: Path) -> None:
    """Files have a column for each field, and contain all rows."""
    path = corpus("aggregation-changelog").path
    count = len(command("state", path, "--json").out.splitlines())
    target = tmp_path / "state.parquet"
    assert command("state", path, "--format", "parquet", "--out", target).status == 0
    table = pq.read_table(target)
    assert table.num_rows == count
    assert "window" in table.column_names
    assert "partition_id" in table.column_names
    csv = command("state", path, "--format", "csv").out.splitlines()
    assert len(csv) == count + 1
    assert csv[0].startswith('"window.start","window.end"')
    assert command("state", path, "--format", "parquet").status == 2
    for options in ([], ["--sql", "select count(*) from state"]):
        refused = command("state", path, *options, "--out", tmp_path / "state.txt")
        assert (refused.status, "--format csv|json|parquet" in refused.err) == (2, True)
    assert not (tmp_path / "state.txt").exists()


def test_several_stores_in_one_file_of_lines(command: Command, corpus: Corpus, tmp_path: Path) -> None:
    """``--json --out`` writes all stores to one file, and overwrites an existing file."""
    path, target = corpus("join-hdfs").path, tmp_path / "state.jsonl"
    for _ in range(2):
        command("state", path, "--json", "--out", target)
    assert target.read_text("utf-8") == command("state", path, "--json").out


def test_repeated_names(command: Command, corpus: Corpus) -> None:
    """JSON repeats a name; SQL and tables add a suffix."""
    path = corpus("typed-values-hdfs").path
    pairs = json.loads(command("state", path, "--json").out.splitlines()[0], object_pairs_hook=lambda held: held)
    value = next(held for name, held in pairs if name == "value")
    names = [name for name, _ in value]
    assert len(set(names)) < len(names)
    repeated = next(name for name in names if names.count(name) > 1)
    ran = command("state", path, "--sql", f"select {repeated}_2 from state", "--json")
    assert ran.status == 0, ran.err


def test_missing_state(command: Command, tmp_path: Path) -> None:
    """The error names the missing file and the batches that can be read."""
    held = load("aggregation-hdfs", tmp_path)
    for path in [*held.path.glob("state/0/*/*.snapshot"), held.path / "state/0/0/3.delta"]:
        path.unlink()
    ran = command("state", held.path)
    assert ran.status == 13
    assert "state/0/0/3.delta" in ran.err
    assert "readable batches  0..1" in ran.err


def test_native_engine_refuses_what_it_cannot_read(command: Command, tmp_path: Path) -> None:
    """With ``--engine native``, an unknown format is an error that names the file and a remedy."""
    held = load("aggregation-hdfs", tmp_path)
    for path in held.path.glob("state/0/*/*.snapshot"):
        path.unlink()
    (held.path / "state/0/0/1.delta").write_bytes(b"an unknown compression")
    ran = command("state", held.path, "--engine", "native")
    assert ran.status == 13
    assert "state/0/0/1.delta" in ran.err
    assert "--engine spark" in ran.err


def test_no_heavy_import(corpus: Corpus) -> None:
    """Reading state imports no Spark or pandas, and no DuckDB unless SQL is used."""
    path = corpus("aggregation-changelog").path
    assert not {"pyspark", "py4j", "pandas", "duckdb"} & imported_by("state", path, "--json")


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_side_of_a_join(command: Command, corpus: Corpus, side: str) -> None:
    """``--store left`` shows one side of a join, like the option ``joinSide`` of Spark's reader."""
    held = corpus("join-hdfs")
    batch = held.answers[-1].batch_id
    spark = next(answer for answer in held.answers_at(batch) if answer.join_side == side)
    rows = [json.loads(line) for line in command("state", held.path, "--store", side, "--json").out.splitlines()]
    native = [{name: row[name] for name in ("key", "value", "partition_id")} for row in rows]
    assert sorted(map(repr, native)) == sorted(map(repr, spark.rows))
