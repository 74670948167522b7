"""State in parts: conditions that name a key, queries on a stream, files that are written part by part."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.large_state import ADDED, BATCHES, ensure_large_state, user_name

from cli.running import Command
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import UsageProblem
from headwater.core.ids import BatchId
from headwater.spark.state_source import StateSource
from headwater.statefiles import large_stores, partition
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.sqltypes import Atomic, Field
from headwater.views import state_parts, state_sql
from headwater.views.key_conditions import KeyCondition, key_condition

KEY = (Field("user", Atomic("string")), Field("shard", Atomic("long")), Field("at", Atomic("timestamp")))
USERS = 5_000
TOTAL = USERS + ADDED * (BATCHES - 1)


@pytest.mark.parametrize(
    ("condition", "fields", "complete"),
    [
        ("user = 'ann'", {"user": "ann"}, True),
        (" \"USER\"== 'ann' ", {"user": "ann"}, True),
        ("key.user='o''neill'", {"user": "o'neill"}, True),
        ("user = 'ann' and shard = -3", {"user": "ann", "shard": "-3"}, True),
        ("shard=7 AND visits > 3", {"shard": "7"}, False),
        ("user = 'ann' and shard > 3", {"user": "ann"}, False),
        ("user = 'null'", {"user": "null"}, False),
        ("user = 'ann' and user = 'bob'", {"user": "ann"}, False),
        ("user = 'ann' and value.user = 'x'", {"user": "ann"}, False),
    ],
)
def test_conditions_that_name_a_key_are_understood(condition: str, fields: dict[str, str], complete: bool) -> None:
    """The fields of the key are found, and whether the condition says anything else."""
    assert key_condition(condition, KEY) == KeyCondition(fields, complete)


@pytest.mark.parametrize(
    "condition",
    [
        "user = 'ann' or shard = 1",
        "not user = 'ann'",
        "user = 'ann' || 'x'",
        "lower(user) = 'ann'",
        "user = 5",
        "shard = '5'",
        "shard = 5.0",
        "shard = 5 + 1",
        "at = '2024-05-01'",
        "user <> 'ann'",
        "visits = 3",
        "(user = 'ann')",
        "user in ('ann')",
        "user = 'ann' and",
        "",
    ],
)
def test_other_conditions_are_left_to_duckdb(condition: str) -> None:
    """What is not a comparison of a key's own column with a literal of its type names no key."""
    assert key_condition(condition, KEY) is None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_large_state(tmp_path_factory.mktemp("large"), USERS, "rocksdb")


@pytest.fixture
def parts(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Iterator[StateAnswer]]:
    """The state in many parts, as often as it is needed."""
    monkeypatch.setattr(partition, "LARGE_BYTES", 1000)
    monkeypatch.setattr(large_stores, "RECORDS_AT_ONCE", 500)
    monkeypatch.setattr(state_parts, "_QUERIED_AT_ONCE", 1000)
    source = StateSource(LocalTree(checkpoint))
    return lambda: source.answers_in_parts(BatchId(BATCHES - 1), one=True)[0]


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) as n, sum(count) as total, max(last) as newest from state",
        "select user from state where count = 7 order by user",
        "select count % 2 as odd, count(*) as n from state group by 1 order by 1",
        "select count(*) as n from state a join state b using (user)",
        "with s as (from state) select (select count(*) from s where count > 5) as n, (select min(user) from s) as first",
        "select 'state from select' as text, count(*) as n from state",
    ],
)
def test_queries_on_parts_have_the_answer_of_the_complete_state(
    query: str, parts: Callable[[], Iterator[StateAnswer]]
) -> None:
    """A query gives the same result on a stream, or on a copy if it reads the state twice, as on one table."""
    complete = state_sql.sql(state_parts.joined_answer(parts()), query)
    found = list(state_parts.query(parts(), query))
    assert pa.concat_tables(found).to_pylist() == complete.to_pylist()


def test_a_bad_query_on_parts_is_refused(parts: Callable[[], Iterator[StateAnswer]]) -> None:
    """DuckDB's message and the columns are shown, as for a small state."""
    with pytest.raises(UsageProblem, match="DuckDB cannot run this SQL") as refused:
        list(state_parts.query(parts(), "select nothing from state"))
    assert "user, count, last" in str(refused.value)


@pytest.mark.parametrize(
    "condition", ["count > 900 and user < 'user-000002'", "count = (select max(count) from state)"]
)
def test_conditions_on_parts_choose_the_rows_of_the_complete_state(
    condition: str, parts: Callable[[], Iterator[StateAnswer]]
) -> None:
    """Also a condition that compares a row with all others."""
    complete = state_sql.where(state_parts.joined_answer(parts()), condition).rows()
    chosen = [row for part in state_parts.filtered(parts(), condition) for row in part.rows()]
    assert chosen == complete
    assert 0 < len(chosen) < TOTAL / 2


def test_a_condition_that_names_a_key_reads_no_other_rows(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every field of the key, DuckDB is not asked, and with more conditions only about the rows of the key."""
    asked: list[int] = []
    where = state_sql.where
    monkeypatch.setattr(
        state_sql, "where", lambda answer, text: asked.append(answer.table.num_rows) or where(answer, text)
    )
    source = StateSource(LocalTree(checkpoint))
    batch = BatchId(BATCHES - 1)

    def users(condition: str) -> list[str]:
        (answer,) = source.answers(batch, where=condition)
        return [key["user"] for key in answer.table["key"].to_pylist()]

    assert users(f"user = '{user_name(3)}'") == [user_name(3)]
    assert not asked
    assert users(f"user = '{user_name(3)}' and count > 100") == []
    assert users("user = 'null'") == []
    assert asked == [1, 0]
    assert users("user >= 'user-00000' and count = 1 and last > '2000-01-01'")
    assert max(asked) > 1000


def test_the_command_writes_large_state_to_files(
    checkpoint: Path,
    parts: Callable[[], Iterator[StateAnswer]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Parquet, csv and JSON files have every row once, csv has one header, and the table names the number of rows."""
    run = Command(monkeypatch, capsys)
    users = {user_name(number) for number in range(TOTAL)}
    assert len(list(parts())) > 5
    for form in ("parquet", "csv"):
        done = run("state", str(checkpoint), "--format", form, "--out", str(tmp_path / form))
        assert f"{TOTAL:,} rows written" in done.err
    assert set(pq.read_table(tmp_path / "parquet")["user"].to_pylist()) == users
    with (tmp_path / "csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == TOTAL
    assert {row["user"] for row in rows} == users
    assert len(run("state", str(checkpoint), "--json").out.splitlines()) == TOTAL
    assert len(run("state", str(checkpoint), "--json", "--limit", "1234").out.splitlines()) == 1234
    shown = run("state", str(checkpoint))
    assert f"{TOTAL:,} rows" in shown.err
    assert f"{TOTAL - 50:,} more" in shown.err
    assert not list(tmp_path.glob(".*"))


def test_dictionaries_in_parquet(tmp_path: Path) -> None:
    """Columns with few values get a dictionary, also nested ones; a column of different values is written as it is."""
    count = 20_000
    window = pa.StructArray.from_arrays([pa.array([1] * count)], ["start"])
    table = pa.table({"user": [f"user-{n}" for n in range(count)], "browser": ["Firefox"] * count, "window": window})
    assert state_parts.write_parquet([table], tmp_path / "state.parquet") == count
    assert pq.read_table(tmp_path / "state.parquet").equals(table)
    columns = pq.ParquetFile(tmp_path / "state.parquet").metadata.row_group(0)
    found = {columns.column(n).path_in_schema: columns.column(n).has_dictionary_page for n in range(3)}
    assert found == {"user": False, "browser": True, "window.start": True}
