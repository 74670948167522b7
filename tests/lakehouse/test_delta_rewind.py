"""Plans of rewinds of Delta tables, and the cases in which they are refused. delta-rs writes the tables and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from pyarrow import parquet

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_lineage import lineage
from headwater.lakehouse.delta_log import DeltaLog
from headwater.timemachine.sink_rows import rows_by_batch
from lakehouse.delta_support import Writer, commits, delta_table, query, rewind, rows_of

LAST = 5


@pytest.fixture
def written(tmp_path: Path) -> Writer:
    """A table with six batches of query ``a``."""
    writer = Writer(tmp_path / "table")
    for number in range(LAST + 1):
        writer.batch("a", number)
    return writer


def _refusal(action: Callable[[], Any]) -> ChangeRefused:
    with pytest.raises(ChangeRefused) as refusal:
        action()
    return refusal.value


def _set_property(path: Path, **properties: str) -> None:
    RustTable(str(path)).alter.set_table_properties(
        {name.replace("__", "."): value for name, value in properties.items()}, raise_if_not_exists=False
    )


def test_the_plan_names_versions_files_and_rows(written: Writer) -> None:
    """A plan names the version now, the one that the table returns to, and what leaves."""
    plan = rewind(written.path, "a", 2, LAST)
    assert (plan.now, plan.returns_to, plan.batches) == (5, 2, (3, 4, 5))
    assert (plan.leaving.files, plan.leaving.rows, plan.returning.files) == (3, 3, 0)
    assert rows_of(written.path) == [("a", 0), ("a", 1), ("a", 2)]
    assert RustTable(str(written.path)).transaction_version("a") == 2


def test_before_the_first_batch(written: Writer) -> None:
    """A rewind to the start empties the table and forgets all batches of the query."""
    plan = rewind(written.path, "a", -1, LAST)
    assert plan.returns_to == -1
    assert rows_of(written.path) == []
    assert RustTable(str(written.path)).transaction_version("a") == -1


def test_a_table_that_has_none_of_the_batches_stays_as_it_is(written: Writer) -> None:
    """No commit is made if the table has no batch after the target."""
    assert rewind(written.path, "a", LAST, LAST).action is None
    assert written.head == LAST


def test_a_second_rewind_follows_the_lineage(written: Writer) -> None:
    """Batches that a rewind or an undo has removed from the table do not count in the next plan."""
    rewind(written.path, "a", 2, LAST)
    written.batch("a", 3)
    again = rewind(written.path, "a", 1, 3)
    assert again.batches == (2, 3)
    assert again.returns_to == 1
    plan = delta_table(written.path).plan_undo(query(1), dict(again.action or {}), change_id="undo")
    delta_table(written.path).apply(dict(plan.action or {}))
    assert rows_of(written.path) == [("a", number) for number in range(4)]
    # The newest commit of batch 3 is in an abandoned branch for the first rewind, and in the lineage now.
    assert rewind(written.path, "a", 2, 3).returns_to == 6


def test_complete_mode_returns_to_the_rows_of_the_batch(tmp_path: Path) -> None:
    """A batch that replaced the table gets its files back."""
    writer = Writer(tmp_path / "table")
    for number in range(4):
        writer.batch("a", number, mode="overwrite")
    plan = rewind(writer.path, "a", 1, 3)
    assert (plan.leaving.files, plan.returning.files) == (1, 1)
    assert rows_of(writer.path) == [("a", 1)]


def test_compaction_in_between_is_undone_with_the_batches(written: Writer) -> None:
    """OPTIMIZE changes no rows: the files that it replaced return."""
    written.optimize()
    written.batch("a", 6)
    plan = rewind(written.path, "a", 2, 6)
    assert plan.returning.files == 3
    assert rows_of(written.path) == [("a", 0), ("a", 1), ("a", 2)]


def test_commits_of_others_are_refused_and_can_be_kept(written: Writer) -> None:
    """Rows that another program inserted since are never lost: the plan is refused, or keeps them."""
    written.insert(7)
    written.batch("a", 6)
    refusal = _refusal(lambda: rewind(written.path, "a", 2, 6))
    assert refusal.code == "foreign-commits"
    assert "version 6 (WRITE)" in str(refusal)
    assert refusal.remedy == f"headwater rewind CKPT --redo 3 --sink delta:{written.path} --keep-foreign"
    plan = rewind(written.path, "a", 2, 6, keep_foreign=True)
    assert plan.returns_to is None
    assert plan.others == ("version 6 (WRITE)",)
    assert rows_of(written.path) == [("a", 0), ("a", 1), ("a", 2), ("other", 7)]
    # The next plan must not return to a version that the kept commit was never part of.
    written.batch("a", 3)
    rewind(written.path, "a", 1, 3, keep_foreign=True)
    assert rows_of(written.path) == [("a", 0), ("a", 1), ("other", 7)]


def test_a_commit_that_rewrote_rows_of_the_batches_cannot_be_kept(written: Writer) -> None:
    """A DELETE of rows that undone batches wrote cannot be kept without them."""
    written.delete("batch = 5")
    refusal = _refusal(lambda: rewind(written.path, "a", 2, LAST, keep_foreign=True))
    assert refusal.code == "cannot-keep-foreign"
    assert "version 6 (DELETE)" in str(refusal)


def test_vacuumed_files_are_noticed_before_anything_changes(tmp_path: Path) -> None:
    """A rewind is refused if a file that has to return is gone."""
    writer = Writer(tmp_path / "table")
    for number in range(3):
        writer.batch("a", number, mode="overwrite")
    RustTable(str(writer.path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    head = writer.head
    refusal = _refusal(lambda: rewind(writer.path, "a", 1, 2))
    assert refusal.code == "table-file-missing"
    assert refusal.evidence["first missing"].endswith(".parquet")
    assert writer.head == head


def test_a_cleaned_log_is_refused(written: Writer) -> None:
    """A rewind is refused if the log does not reach back to the batch; a later batch can still be reached."""
    RustTable(str(written.path)).create_checkpoint()
    for version in range(LAST):
        (written.path / commit_path(version)).unlink()
    written.batch("a", 6)
    written.batch("a", 7)
    assert _refusal(lambda: rewind(written.path, "a", 2, 7)).code == "table-log-cleaned"
    rewind(written.path, "a", 6, 7)
    assert rows_of(written.path) == [("a", number) for number in range(7)]
    rewind(written.path, "a", 5, 6)
    assert rows_of(written.path) == [("a", number) for number in range(6)]


def test_a_manual_restore_is_refused_with_the_batch_that_repairs_it(written: Writer) -> None:
    """After RESTORE, Delta would skip batches whose rows are gone. A rewind to the restored batch repairs it."""
    RustTable(str(written.path)).restore(2)
    refusal = _refusal(lambda: rewind(written.path, "a", 4, LAST))
    assert refusal.code == "table-restored"
    assert refusal.remedy == f"headwater rewind CKPT --redo 3 --sink delta:{written.path}"
    plan = rewind(written.path, "a", 2, LAST)
    assert plan.leaving.files == plan.returning.files == 0
    assert RustTable(str(written.path)).transaction_version("a") == 2


def test_a_table_that_lost_batches_is_refused(written: Writer) -> None:
    """A rewind that would keep batches that the table never got is refused; foreachBatch may have had nothing to write."""
    assert rewind(written.path, "a", 7, 8).action is None
    for number in range(LAST + 1):
        text = (written.path / commit_path(number)).read_text()
        (written.path / commit_path(number)).write_text(text.replace('"WRITE"', '"STREAMING UPDATE"'))
    refusal = _refusal(lambda: rewind(written.path, "a", 7, 8))
    assert refusal.code == "table-behind"
    assert refusal.remedy == f"headwater rewind CKPT --to 5 --sink delta:{written.path}"


def test_the_table_of_another_query_is_refused(written: Writer) -> None:
    """The ids in the table are shown, and one of them can be given."""
    refusal = _refusal(lambda: rewind(written.path, "b", 2, LAST))
    assert refusal.code == "not-its-table"
    assert refusal.remedy and f"--sink 'delta:{written.path}?txnAppId=a'" in refusal.remedy
    plan = delta_table(written.path, "a").plan_rewind(query(LAST, "b"), 2, change_id="x")
    assert plan.batches == (3, 4, 5)


def test_a_table_without_transactions_is_refused(tmp_path: Path) -> None:
    """A foreachBatch that writes without txnAppId leaves nothing by which a batch could be found."""
    writer = Writer(tmp_path / "table")
    writer.insert(0)
    refusal = _refusal(lambda: rewind(writer.path, "a", 2, LAST))
    assert refusal.code == "not-its-table"
    assert refusal.remedy and "txnVersion" in refusal.remedy


def test_expired_transactions_are_refused(tmp_path: Path) -> None:
    """If the table forgets transactions after a while, the refusal names the property."""
    writer = Writer(tmp_path / "table")
    writer.insert(0)
    _set_property(writer.path, delta__setTransactionRetentionDuration="interval 1 days")
    refusal = _refusal(lambda: rewind(writer.path, "a", 2, LAST))
    assert refusal.code == "txn-expired"
    assert "interval 1 days" in str(refusal)


def test_append_only_tables_are_refused(written: Writer) -> None:
    """delta.appendOnly forbids the removal of rows."""
    _set_property(written.path, delta__appendOnly="true")
    written.batch("a", 6)
    assert _refusal(lambda: rewind(written.path, "a", 5, 6)).code == "append-only-table"


@pytest.mark.parametrize(
    ("feature", "code"), [("catalogManaged", "catalog-managed"), ("icebergCompatV2", "table-feature")]
)
def test_features_that_headwater_does_not_know_are_refused(written: Writer, feature: str, code: str) -> None:
    """Features outside the allow-list are refused by name, and so are tables of a catalog."""
    path = written.path / commit_path(0)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [feature]}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refusal = _refusal(lambda: rewind(written.path, "a", 2, LAST))
    assert refusal.code == code
    assert refusal.evidence["table feature"] == feature


def test_no_table(tmp_path: Path) -> None:
    """A folder without a log is refused."""
    assert _refusal(lambda: rewind(tmp_path, "a", 2, LAST)).code == "not-a-delta-table"


def test_undo_after_batches_and_inserts(written: Writer) -> None:
    """Undo returns the removed rows, drops those of the re-run, and keeps what others inserted if told to."""
    done = dict(rewind(written.path, "a", 2, LAST).action or {})
    written.batch("a", 3)
    written.insert(9)
    refusal = _refusal(lambda: delta_table(written.path).plan_undo(query(3), done, change_id="undo"))
    assert refusal.code == "foreign-commits"
    plan = delta_table(written.path).plan_undo(query(3), done, change_id="undo", keep_foreign=True)
    delta_table(written.path).apply(dict(plan.action or {}))
    assert rows_of(written.path) == [*(("a", number) for number in range(6)), ("other", 9)]
    assert RustTable(str(written.path)).transaction_version("a") == LAST


def test_the_journal_names_the_table_by_its_id(written: Writer, tmp_path: Path) -> None:
    """An action is never applied to another table, whatever its path."""
    plan = delta_table(written.path).plan_rewind(query(LAST), 2, change_id="x")
    other = Writer(tmp_path / "other")
    for number in range(LAST + 1):
        other.batch("a", number)
    assert _refusal(lambda: delta_table(other.path).apply(dict(plan.action or {}))).code == "not-its-table"


def test_nothing_is_taken_back_over_a_later_commit(written: Writer) -> None:
    """If another program has committed since, taking back is refused; undo can keep that commit."""
    action = dict(rewind(written.path, "a", 2, LAST).action or {})
    written.insert(9)
    assert _refusal(lambda: delta_table(written.path).take_back(action)).code == "table-moved"
    plan = delta_table(written.path).plan_undo(query(2), action, change_id="undo", keep_foreign=True)
    delta_table(written.path).apply(dict(plan.action or {}))
    assert rows_of(written.path) == [*(("a", number) for number in range(6)), ("other", 9)]


def test_taking_back_adds_a_commit(written: Writer) -> None:
    """What was applied is taken back by a further commit, and can be applied again."""
    action = dict(delta_table(written.path).plan_rewind(query(LAST), 2, change_id="x").action or {})
    delta_table(written.path).take_back(action)
    assert written.head == LAST
    for _ in range(2):
        delta_table(written.path).apply(action)
        delta_table(written.path).apply(action)
        assert len(rows_of(written.path)) == 3
        delta_table(written.path).take_back(action)
        assert len(rows_of(written.path)) == 6
    assert written.head == LAST + 4
    marks = [
        line["commitInfo"]["operation"] for one in commits(written.path)[6:] for line in one if "commitInfo" in line
    ]
    assert marks == ["HEADWATER REWIND", "HEADWATER ABORT"] * 2


def test_a_domain_in_a_log_checkpoint(tmp_path: Path) -> None:
    """Its configuration is a text, not a map as that of a table."""
    table = Writer(tmp_path / "t")
    for number in range(4):
        table.batch("a", number)
    actions: dict[str, list[dict[str, Any]]] = {}
    for commit in commits(table.path)[:3]:
        for action in commit:
            for kind, value in action.items():
                actions.setdefault(kind, []).append(value)
    metadata = {"id": actions["metaData"][0]["id"], "schemaString": actions["metaData"][0]["schemaString"]}
    domain = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[]}', "removed": False}
    kept = ("path", "size", "modificationTime", "dataChange", "stats")
    rows: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"txn": {"appId": "a", "version": 2}},
        {"domainMetadata": domain},
        *({"add": {name: add[name] for name in kept}} for add in actions["add"]),
    ]
    path = table.path / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, _schema_of(rows)), path)
    for version in range(2):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    snapshot = DeltaLog(LocalTree(table.path)).snapshot(3)
    assert snapshot.domains["delta.clustering"]["configuration"] == domain["configuration"]
    assert len(snapshot.files) == 4
    plan = delta_table(table.path).plan_rewind(query(3), 2, change_id="c")
    assert plan.batches == (3,)


def _schema_of(rows: list[dict[str, Any]]) -> pa.Schema:
    return pa.schema(
        [
            (name, pa.array([value]).type)
            for name, value in {name: value for row in rows for name, value in row.items()}.items()
        ]
    )


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_separators_of_lines_in_statistics(tmp_path: Path, separator: str) -> None:
    """JSON may have them as they are, and only a line feed ends an action."""
    table = Writer(tmp_path / "t")
    table.batch("a", 0)
    table.batch(f"a{separator}b", 1)
    assert any(separator in file.read_text() for file in (table.path / "_delta_log").glob("*.json"))
    assert rewind(table.path, "a", -1, 0, keep_foreign=True).batches == (0,)
    assert rows_of(table.path) == [(f"a{separator}b", 1)]


def test_a_point_does_not_bring_back_what_another_query_has_undone(tmp_path: Path) -> None:
    """The other query writes these rows again."""
    table = Writer(tmp_path / "t")
    table.batch("a", 0)
    table.batch("b", 0)
    pinned = delta_table(table.path).version_of(query(0), 0)
    rewind(table.path, "b", -1, 0)
    table.batch("a", 1)
    for keep_foreign in (False, True):
        with pytest.raises(ChangeRefused, match="that have been undone since") as refused:
            delta_table(table.path).plan_rewind(query(1), 0, change_id="c", keep_foreign=keep_foreign, pinned=pinned)
        assert refused.value.code == "foreign-commits"
    assert rewind(table.path, "a", 0, 1).batches == (1,)
    assert rows_of(table.path) == [("a", 0)]


def test_rows_of_batches_after_a_rewind(tmp_path: Path) -> None:
    """Batches that were rewound have no rows, and the commit of the rewind is not a batch."""
    table, files = Writer(tmp_path / "t"), LocalTree(tmp_path / "ckpt")
    for number in range(6):
        table.batch("a", number)
    files.write("metadata", b'{"id":"a"}')
    files.write(JOB_FILE, JobRecord("job", sink=f"delta:{table.path}", mode="append").to_bytes())
    rewind(table.path, "a", 2, 5)
    table.batch("a", 3)
    rows, _ = rows_by_batch(files)
    assert rows is not None
    assert [rows(batch) for batch in range(5)] == [*([{"who": "a", "batch": batch}] for batch in range(4)), None]


def test_a_commit_that_claims_to_return_to_itself(written: Writer) -> None:
    """A corrupt record of a rewind ends the lineage, which would otherwise have no end."""
    rewind(written.path, "a", 2, LAST)
    path = written.path / commit_path(LAST + 1)
    path.write_text(path.read_text().replace('\\"base\\":2', f'\\"base\\":{LAST + 1}'))
    links = lineage(DeltaLog(LocalTree(written.path)), LAST + 1)
    assert [link.version for link in links] == [LAST + 1]
