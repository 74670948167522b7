"""Edits of state without Spark: what they write, what they refuse, and that they can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from corpus_support import CorpusCheckpoint, as_memory_files, corpus_names, load, sampled
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.log_entries import JOIN_STORES
from headwater.checkpoint.state_folder import Recipe
from headwater.core.errors import ChangeRefused, CheckpointBusy, HeadwaterError, UsageProblem
from headwater.core.ids import ANY_STORE, StoreRef
from headwater.migration.store_migration import plan_store_migration
from headwater.statefiles.reader import StateReader, state_rows
from headwater.statefiles.statewriter import put
from headwater.statefiles.stores import JOIN
from headwater.timemachine.change import Change
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.journal import added_batches, read_entries
from headwater.timemachine.repartition import plan_repartition
from headwater.timemachine.replay_scratch import recorded_batches
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.row_edits import Wanted
from headwater.timemachine.store_files import StoreChange
from headwater.timemachine.transfer import export_tables, plan_import
from headwater.timemachine.undo import plan_undo
from headwater.views.state_edits import plan_edit
from headwater.views.state_files import read_table, read_tables, write_tables
from timemachine.trees import spark_files

Corpus = Callable[[str], CorpusCheckpoint]
WRITABLE = [
    name
    for name in corpus_names()
    if not name.startswith("crashed")
    and name not in ("kafka-async", "spark3.4-aggregation-rocksdb", "spark3.5-aggregation-rocksdb")
]


def sampled_stores(often: list[str], others: list[str]) -> list[Any]:
    """Return names as parameters, of which the others are slow."""
    return [*often, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


TOTAL, RECENT, BY_KIND = (StoreRef(var=var) for var in ("total", "recent", "by_kind"))


def state(files: FileTree, ref: StoreRef = ANY_STORE) -> dict[str, Any]:
    """Return the values of a store after the last batch, by key."""
    found: dict[str, Any] = {}
    for row in state_rows(files, None, ref):
        found.setdefault(repr(row["key"]), []).append(row["value"])
    return found


def check(files: FileTree) -> None:
    assert not [one for one in run_checks(CheckContext(files, 0)) if one.severity == "error"]


@pytest.mark.parametrize("name", sampled(WRITABLE, every=2))
def test_every_store_can_be_edited(name: str) -> None:
    """A removal leaves exactly the other rows, all stores get the new version, and undo restores every byte."""
    files = as_memory_files(name)
    if not History(files).logs.state.stores:
        return
    before, contents = _shown_rows(files), dict(files.contents)
    editor = StateEditor(files)
    editable = [
        one
        for one in editor.targets
        if one.kind in ("rows", "value")
        and one.folder_store not in JOIN_STORES
        and one.operator_name != JOIN
        and "ttlExpirationMs" not in one.schema.value.names
    ]
    found = [(one, rows) for one in editable if (rows := editor.rows(one)).num_rows]
    if not found:
        return
    target, rows = found[0]
    editor.plan({target: Wanted(removed=rows.slice(0, 1))}).apply()
    after = _shown_rows(files)
    assert len(after) == len(before) - 1
    (gone,) = [row for row in before if row not in after]
    assert gone.startswith(f"{target.operator_id} {target.store} {target.var}")
    check(files)
    plan_undo(files).apply()
    assert _shown_rows(files) == before
    assert spark_files(files.contents) == spark_files(contents)


def _shown_rows(files: FileTree) -> list[str]:
    """Return all rows as texts, because a NaN is not equal to itself."""
    return [f"{row['operator_id']} {row['store']} {row['var']} {row}" for row in state_rows(files)]


@pytest.mark.parametrize(
    "name",
    sampled_stores(["aggregation-rocksdb", "aggregation-hdfs"], ["aggregation-changelog", "aggregation-format2"]),
)
def test_rows_are_changed_added_and_removed(name: str) -> None:
    """Values change in the rows that were chosen; a new row is found by its key; the journal has who and why."""
    files = as_memory_files(name)
    before = state(files)
    plan = plan_edit(files, key={"user": "çelik"}, fields={"count": "10"}, reason="a correction")
    assert plan.rows.as_dict() == {"added": 0, "changed": 2, "removed": 0, "unchanged": 0}
    assert state(files) == before, "a plan changes nothing"
    plan.apply()
    for key, (value,) in state(files).items():
        assert value == before[key][0] | ({"count": 10} if "çelik" in key else {})
    key = {"user": "new", "window.start": "2024-05-01T11:00:00Z", "window.end": "2024-05-01T11:05:00Z"}
    plan_edit(files, key=key, fields={"count": 1}, insert=True).apply()
    (added,) = [row for row in state_rows(files) if row["key"]["user"] == "new"]
    assert added["value"] == {"count": 1, "max": None, "sum": None}
    plan_edit(files, sql="update state set sum = -count, user = 'renamed' where user = 'new'").apply()
    (renamed,) = [row for row in state_rows(files) if row["key"]["user"] in ("new", "renamed")]
    assert (renamed["key"]["user"], renamed["value"]["sum"]) == ("renamed", -1)
    plan_edit(files, where="user = 'renamed' or count = 10", remove=True).apply()
    assert set(state(files)) == {key for key in before if "çelik" not in key}
    entries = added_batches(files)
    assert sorted(entries) == [10, 11, 12, 13]
    details = entries[10].change.details
    assert (details["reason"], "@" in details["by"]) == ("a correction", True)
    check(files)


def test_an_edited_batch_can_be_rewound_to_and_across() -> None:
    """A rewind across an edit removes it from the log, and undoing the rewind brings it back."""
    files = as_memory_files("aggregation-format2")
    before = state(files)
    plan_edit(files, where="true", fields={"count": 7}).apply()
    edited = state(files)
    assert edited != before
    plan_rewind(files, to=9, replan=True).apply()
    assert (state(files), added_batches(files)) == (before, {})
    plan_undo(files).apply()
    assert (state(files), list(added_batches(files))) == (edited, [10])
    plan_rewind(files, to=8).apply()
    assert added_batches(files) == {}


def test_steps_of_changes_that_add_no_batch_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewind of a long stream has thousands of steps, which `log` does not need; those before an edit it does."""
    files = as_memory_files("aggregation-format2")
    plan_rewind(files, to=8).apply()
    plan_undo(files).apply()
    with monkeypatch.context() as patch:
        patch.setattr(Change, "from_dict", lambda value: pytest.fail(f"parsed {value['about']}"))
        assert added_batches(files) == {}
    plan_edit(files, where="true", fields={"count": 7}).apply()
    assert list(added_batches(files)) == [10]


@pytest.mark.parametrize("name", ["custom-changelog", "avro-custom", "row-checksum-custom"])
def test_lists_and_maps_of_custom_state(name: str) -> None:
    """A list is replaced as one, with its count; a map has a row for each of its keys."""
    files = as_memory_files(name)
    before = state(files)
    plan_edit(files, RECENT, key={"user": "bob"}, fields={"list_value": '[{"amount": 5, "kind": "x"}]'}).apply()
    assert state(files, RECENT)["{'user': 'bob'}"] == [{"list_element": {"amount": 5, "kind": "x"}}]
    (counter,) = [one for one in StateEditor(files).targets if one.family == "$rowCounter_recent"]
    counts = {row["key"]["user"]: row["value"]["count"] for row in StateReader(files).table(counter, 10).to_pylist()}
    lists = {repr({"user": user}): count for user, count in counts.items()}
    assert lists == {key: len(values) for key, values in state(files, RECENT).items()}
    new = {"user": "bob", "user_map_key.kind": "gift"}
    plan_edit(files, BY_KIND, key=new, fields={"amount": 5, "n": 1}, insert=True).apply()
    assert {"amount": 5, "n": 1} in [one["user_map_value"] for one in state(files, BY_KIND)["{'user': 'bob'}"]]
    plan_undo(files).apply()
    plan_undo(files).apply()
    assert state(files) == before


@pytest.mark.parametrize(
    "name", sampled_stores(["custom-changelog", "custom-ttl", "join-hdfs", "join4"], ["custom-ttl-rocksdb", "join3"])
)
def test_a_key_is_removed_with_everything_that_belongs_to_it(name: str) -> None:
    """No store, variable, timer or index of the operator contains the key afterwards, and all contain the others."""
    files = as_memory_files(name)
    field, value = ("field0", "3") if name.startswith("join") else ("user", "çelik")
    before = _bytes_of_all(files)
    plan = plan_edit(files, key={field: value}, remove=True)
    plan.apply()
    after = _bytes_of_all(files)
    shown = value if field == "field0" else f"'{value}'"
    gone = [row for row in before if row not in after]
    assert 3 < plan.rows.removed <= len(gone), "a list counts as one row"
    assert all(f"'{field}': {shown}" in row for row in gone)
    assert not any(f"'{field}': {shown}" in row for row in after)
    check(files)


def _bytes_of_all(files: FileTree) -> list[str]:
    reader = StateReader(files)
    found = []
    for target in reader.targets(reader.latest()):
        if target.kind != "side":
            rows = reader.table(target, reader.latest()).to_pylist()
            found += [f"{target.label} {row}" for row in rows]
    return found


@pytest.mark.parametrize(
    ("name", "ref", "arguments", "code"),
    [
        ("kafka-stateless", ANY_STORE, {"where": "true", "remove": True}, "no-state"),
        ("crashed-after-changelog", ANY_STORE, {"where": "true", "remove": True}, "uncommitted-batch"),
        ("spark3.4-aggregation-rocksdb", ANY_STORE, {"where": "true", "remove": True}, "cannot-write-state"),
        ("join-changelog", StoreRef(store="left"), {"where": "true", "remove": True}, "cannot-edit"),
        ("custom-changelog", StoreRef(var="timers"), {"where": "true", "remove": True}, "cannot-edit"),
        ("custom-changelog", StoreRef(var="$rowCounter_recent"), {"where": "true", "remove": True}, "cannot-edit"),
        ("custom-changelog", ANY_STORE, {"where": "true", "remove": True}, "which-state"),
        ("custom-ttl", TOTAL, {"where": "true", "remove": True}, "cannot-edit"),
        ("custom-ttl", TOTAL, {"where": "true", "fields": {"ttlExpirationMs": "1"}}, "cannot-edit"),
        ("session-rocksdb", ANY_STORE, {"where": "true", "fields": {"user_2": "x"}}, "key-mismatch"),
        (
            "session-hdfs",
            ANY_STORE,
            {"where": "true", "fields": {"session_window.start": "2024-01-01T00:00:00Z"}},
            "key-mismatch",
        ),
        ("aggregation1-hdfs", ANY_STORE, {"where": "true", "fields": {"user_2": "x"}}, "key-mismatch"),
        ("aggregation-hdfs", ANY_STORE, {"key": {"user": "nobody"}, "remove": True}, "no-such-row"),
        ("aggregation-hdfs", ANY_STORE, {"key": {"user": "nobody"}, "insert": True}, "bad-key"),
        ("aggregation-hdfs", ANY_STORE, {"where": "true", "fields": {"count": "many"}}, "bad-value"),
        ("aggregation-hdfs", ANY_STORE, {"where": "true", "fields": {"total": "1"}}, "no-value-field"),
        ("aggregation-hdfs", ANY_STORE, {"where": "true"}, "bad-option"),
        ("aggregation-hdfs", ANY_STORE, {"remove": True}, "bad-option"),
        ("aggregation-hdfs", ANY_STORE, {"sql": "select 1"}, "bad-sql"),
        ("aggregation-hdfs", ANY_STORE, {"sql": "update state set nothing = 1"}, "bad-sql"),
        ("aggregation-hdfs", ANY_STORE, {"sql": "update state set count = count"}, "nothing-to-do"),
        ("aggregation-hdfs", ANY_STORE, {"sql": "update state set user = 'one', \"window\" = null"}, "duplicate-key"),
        ("aggregation-hdfs", ANY_STORE, {"rows": pa.table({"user": ["a"]})}, "bad-rows"),
    ],
)
def test_refusals(name: str, ref: StoreRef, arguments: dict[str, Any], code: str) -> None:
    """What cannot be proven right is refused by name, and the checkpoint stays as it is."""
    files = as_memory_files(name)
    contents = dict(files.contents)
    with pytest.raises(HeadwaterError) as refused:
        plan_edit(files, ref, **arguments).apply()
    assert refused.value.code == code
    assert files.contents == contents


def test_a_value_with_a_time_to_live_can_be_changed_in_place() -> None:
    """The value of a row may change if its expiry does not, because an index contains the expiry."""
    files = as_memory_files("custom-ttl")
    plan_edit(files, TOTAL, key={"user": "çelik"}, fields={"value.total": "123"}).apply()
    assert state(files, TOTAL)["{'user': 'çelik'}"][0]["value"]["total"] == 123


def test_a_plan_becomes_stale_and_a_lease_is_respected(tmp_path: Path) -> None:
    """A plan is not applied to a checkpoint that has changed since, or that another process uses."""
    files = LocalTree(load("aggregation-hdfs", tmp_path).path)
    first, second = (plan_edit(files, where="true", fields={"count": number}) for number in (1, 2))
    with hold_lease(files, "a job", "cannot run"), pytest.raises(CheckpointBusy):
        first.apply()
    first.apply()
    with pytest.raises(ChangeRefused, match="has changed since"):
        second.apply()
    assert [entry.change.verb for entry in read_entries(files)] == ["edit"]


def test_running_stream_is_named(tmp_path: Path) -> None:
    """While a job runs, its uncommitted batch is not taken for one that was interrupted."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    last = History(files).last_committed
    assert last is not None
    files.write(f"offsets/{last + 1}", files.read(f"offsets/{last}"))
    with pytest.raises(ChangeRefused) as refused:
        StateEditor(files)
    assert refused.value.code == "uncommitted-batch"
    plans: list[Callable[[], object]] = [
        lambda: StateEditor(files),
        lambda: plan_repartition(files, 4),
        lambda: plan_store_migration(files, store="hdfs"),
    ]
    for plan in plans:
        with hold_lease(files, "totals", "cannot run"), pytest.raises(CheckpointBusy) as busy:
            plan()
        assert busy.value.problem == "cannot change the state: totals is running on this checkpoint"


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_rows_of_a_file_are_put(tmp_path: Path, suffix: str) -> None:
    """Rows of a file replace those with the same keys, and the others stay."""
    files = as_memory_files("complete-changelog")
    rows = StateReader(files).answer(StateEditor(files).targets[0], 4).flat().slice(0, 1)
    changed = rows.set_column(1, "count", pa.array([99], pa.int64()))
    path = tmp_path / f"fixed.{suffix}"
    if suffix == "csv":
        names = ",".join(changed.column_names)
        path.write_text(f"{names}\n{','.join(str(column[0].as_py()) for column in changed.columns)}\n")
    elif suffix == "arrow":
        write_arrow(changed, path)
    else:
        import pyarrow.parquet as pq

        pq.write_table(changed, path)
    plan = plan_edit(files, rows=read_table(str(path)), rows_from=str(path))
    assert plan.rows.as_dict() == {"added": 0, "changed": 1, "removed": 0, "unchanged": 0}
    plan.apply()
    assert sum(value["count"] == 99 for (value,) in state(files).values()) == 1


def test_a_file_sink_gets_an_entry_without_files(tmp_path: Path) -> None:
    """Spark looks for an entry of every batch when it compacts the sink's log, so the added batch gets one."""
    held = load("sink-session", tmp_path)
    log = held.sink / "_spark_metadata"
    before = sorted(entry.name for entry in log.iterdir())
    last = History(LocalTree(held.path)).last_committed
    assert last is not None
    plan = plan_edit(LocalTree(held.path), where="true", fields={"count": 1}, sink=f"files:{held.sink}")
    assert any(path.startswith(f"sink:_spark_metadata/{last + 1}") for path in plan.written)
    plan.apply()
    (added,) = {entry.name for entry in log.iterdir()} - set(before)
    assert added.removesuffix(".compact") == str(last + 1)
    assert added.endswith(".compact") or (log / added).read_bytes() == b"v1"
    assert not [
        one
        for one in run_checks(CheckContext(LocalTree(held.path), 0, LocalTree(held.sink)))
        if one.severity == "error"
    ]
    plan_undo(LocalTree(held.path)).apply()
    assert sorted(entry.name for entry in log.iterdir() if entry.is_file()) == before


def test_a_complete_store_is_written_as_a_snapshot() -> None:
    """On an HDFS-backed store, complete contents do not depend on any older version."""
    files = as_memory_files("aggregation-hdfs")
    reader = StateReader(files)
    stores = reader.logs.state.expected(2)
    contents = {}
    for store in stores:
        rows = reader.partition(reader.targets(9)[0], store).rows(9)
        puts = [put(rows.key(number), rows.value(number)) for number in range(len(rows))]
        contents[store] = StoreChange(puts, complete=True)
    before = state(files)
    batch = plan_extra_batch(History(files), contents, verb="edit", about="a rewrite")
    batch.apply(files, None)
    assert state(files) == before
    assert [StateReader(files).recipe(store, 10) for store in stores] == [Recipe("11.snapshot", ())] * 2


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def test_a_change_of_many_rows_is_not_stored_in_the_journal() -> None:
    """Large state files are written to a scratch folder first, which is empty afterwards."""
    files = as_memory_files("aggregation-changelog")
    windows = "timestamp '2024-05-01' + interval (i) minute"
    sql = (
        f"insert into state (\"window\", user, count) select {{'start': {windows}, 'end': {windows}}}, "
        "md5(i::varchar) || md5((-i)::varchar), i from range(4000) t(i)"
    )
    plan_edit(files, sql=sql).apply()
    assert len(state(files)) == 4007
    assert not [path for path in files.contents if "scratch" in path]
    assert max(len(data) for path, data in files.contents.items() if "journal" in path) < 200_000
    plan_undo(files).apply()
    assert len(state(files)) == 7


@pytest.mark.parametrize(
    ("origin", "into"),
    [
        ("aggregation-changelog", "five-partitions"),
        ("aggregation-hdfs", "aggregation-format2"),
        pytest.param("custom-rocksdb", "custom-format2", marks=pytest.mark.slow),
        ("join-hdfs", "join-changelog"),
        ("typed-values-changelog", "typed-values-hdfs"),
        ("merge1-custom", "merge1-custom-rocksdb"),
    ],
)
def test_exported_state_is_imported(origin: str, into: str, tmp_path: Path) -> None:
    """State moves between stores, formats and numbers of partitions without a difference."""
    source, target = as_memory_files(origin), as_memory_files(into)
    reader = StateReader(source)
    plan_edit_first(target)
    tables = export_tables(reader, reader.latest())
    paths = list(write_tables(tables, str(tmp_path / ("out" if len(tables) > 1 else "out.arrow"))))
    plan = plan_import(target, read_tables(str(paths[0].parent if len(paths) > 1 else paths[0])), reason="a move")
    plan.apply()
    assert _all_rows(target) == _all_rows(source)
    assert read_entries(target)[-1].change.verb == "import"
    check(target)


def plan_edit_first(files: FileTree) -> None:
    """Remove a row, so that an import of equal state still changes something."""
    editor = StateEditor(files)
    parts = [one for one in editor.targets if one.kind != "side" and not (one.family or "").startswith("$rowCounter")]
    editor.plan({one: Wanted(complete=True) for one in parts}).apply()


def _all_rows(files: FileTree) -> list[str]:
    return sorted(row.partition("'partition_id'")[0] for row in _bytes_of_all(files))


def test_an_import_needs_the_same_schema_and_all_parts(tmp_path: Path) -> None:
    """Files of other schemas, of other programs, or of only some parts of an operator are refused."""
    files = as_memory_files("aggregation-hdfs")
    (table,) = export_tables(StateReader(as_memory_files("complete-hdfs")), 4)
    with pytest.raises(ChangeRefused, match=r"the key schema in .* differs from that of"):
        plan_import(files, {"a.parquet": table})
    with pytest.raises(UsageProblem, match="not written by headwater export"):
        plan_import(files, {"a.parquet": pa.table({"user": ["a"]})})
    custom = as_memory_files("custom-changelog")
    parts = export_tables(StateReader(custom), 9)
    with pytest.raises(ChangeRefused, match="have to agree"):
        plan_import(custom, {"a.parquet": parts[-1]})
    with pytest.raises(UsageProblem, match="do not fit into one file"):
        write_tables(parts, str(tmp_path / "a.parquet"))


def test_rows_of_a_data_frame_are_put(tmp_path: Path) -> None:
    """A DataFrame of pandas is taken like the Arrow table from which it was made, and so is any other Arrow stream."""
    from headwater import Checkpoint

    held = Checkpoint(load("complete-changelog", tmp_path).path)
    fixed = held.state().to_pandas()
    fixed["value"] = [{**value, "count": 99} for value in fixed["value"]]
    held.edit(rows=fixed.iloc[1:2]).apply()
    assert sorted(row["count"] for row in held.state()["value"].to_pylist()).count(99) == 1
    stream = pa.RecordBatchReader.from_batches(held.state().schema, held.state().to_batches())
    with pytest.raises(ChangeRefused, match="already has these rows"):
        held.edit(rows=stream)
    with pytest.raises(ValueError, match="an Arrow table or a DataFrame"):
        held.edit(rows=[{"count": 1}])


def test_a_table_becomes_the_history_of_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows are in the same folder, so that a seed that was interrupted finds its history again."""
    from pyarrow import parquet

    from headwater.views.given_tables import as_history

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = pa.table({"user": ["ann", "bob"], "n": [1, 2]})
    uri = as_history(table)
    assert as_history(table.to_pandas()) == uri != as_history(table.slice(1))
    folder = uri.removeprefix("files:").removesuffix("?format=parquet")
    assert parquet.read_table(folder).to_pylist() == table.to_pylist()

    someone_else = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: someone_else)
    elsewhere = as_history(table)
    assert elsewhere != uri, "a folder of another user is not used"
    assert parquet.read_table(elsewhere.removeprefix("files:").removesuffix("?format=parquet")) == table


def test_an_edit_is_not_replayed() -> None:
    """The batch of an edit has no input; those before and after it are replayed."""
    files = as_memory_files("aggregation-changelog")
    last = History(files).last_committed
    assert last is not None
    plan_edit(files, where="user = 'çelik'", remove=True).apply()
    with pytest.raises(ChangeRefused) as refused:
        recorded_batches(files, last, last + 1)
    assert refused.value.code == "cannot-replay"
    assert recorded_batches(files, last - 1, last) == [last - 1, last]
