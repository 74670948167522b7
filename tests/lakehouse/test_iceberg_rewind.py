"""Plans of rewinds of Iceberg tables, and the cases in which they are refused. PyIceberg writes the tables and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyiceberg.utils.config import Config

from headwater.core.errors import ChangeRefused, ServiceUnreachable, UsageProblem
from headwater.lakehouse.iceberg_catalog import catalog_settings
from headwater.lakehouse.iceberg_metadata import TableMetadata
from headwater.lakehouse.iceberg_pyiceberg import database_url, pyiceberg_settings
from headwater.lakehouse.iceberg_table import own_data_path
from headwater.lakehouse.tables import TableUri, open_table, parse_table_uri
from lakehouse.iceberg_support import Kind, Lake, query

LAST = 5
KINDS: list[Kind] = ["hadoop", "jdbc"]


@pytest.fixture(params=["hadoop", pytest.param("jdbc", marks=pytest.mark.slow)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table with six batches of query ``a``. Catalogs differ in how a commit is made, which ``any_lake`` is for."""
    return _with_batches(Lake(tmp_path, request.param))


@pytest.fixture(params=KINDS)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """The same in each kind of catalog."""
    return _with_batches(Lake(tmp_path, request.param))


@pytest.fixture
def hadoop(tmp_path: Path) -> Lake:
    return _with_batches(Lake(tmp_path))


def _with_batches(lake: Lake) -> Lake:
    for number in range(LAST + 1):
        lake.batch("a", number)
    return lake


def _refusal(action: Callable[[], Any]) -> ChangeRefused:
    with pytest.raises(ChangeRefused) as refusal:
        action()
    return refusal.value


def _batches(*numbers: int) -> list[tuple[str, int]]:
    return [("a", number) for number in numbers]


def test_rewind_and_undo(any_lake: Lake) -> None:
    """The main branch returns to the snapshot of the batch, a tag keeps the old one, and undo returns to it."""
    lake = any_lake
    snapshots = lake.snapshots()
    plan = lake.rewind(2, LAST)
    assert (plan.now, plan.returns_to, plan.batches) == (snapshots[5], snapshots[2], (3, 4, 5))
    assert (plan.leaving.files, plan.leaving.rows, plan.returning.files) == (3, 3, 0)
    assert lake.rows == _batches(0, 1, 2)
    assert list(lake.tags.values()) == [snapshots[5]]
    lake.batch("a", 3)
    undone = lake.undo(plan, 3)
    assert (undone.batches, undone.returns_to) == ((3,), snapshots[5])
    assert (undone.leaving.files, undone.returning.files) == (1, 3)
    assert lake.rows == _batches(0, 1, 2, 3, 4, 5)
    assert len(lake.tags) == 1, "the tag of the rewind is dropped, and one keeps what undo has replaced"
    assert "write.data.path" not in lake.table.properties


def test_before_the_first_batch(lake: Lake) -> None:
    """A rewind to the start leaves an empty table, which accepts all batches again; undo brings the rows back."""
    plan = lake.rewind(-1, LAST)
    assert plan.returns_to == -1
    assert lake.head is None
    assert lake.rows == []
    lake.batch("a", 0)
    assert lake.rows == _batches(0)
    lake.undo(plan, 0)
    assert lake.rows == _batches(0, 1, 2, 3, 4, 5)


def test_a_re_run_writes_to_a_folder_of_its_own(lake: Lake) -> None:
    """Iceberg names files by query, batch and task, so a batch that runs again could replace files that undo needs."""
    lake.rewind(2, LAST)
    first = lake.table.properties["write.data.path"]
    assert first.startswith(f"{lake.folder}/data/headwater-test-")
    lake.batch("a", 3)
    assert any(Path(first).rglob("*.parquet"))
    lake.rewind(2, 3)
    second = lake.table.properties["write.data.path"]
    assert second != first
    assert Path(second).parent == Path(first).parent


def test_a_table_that_has_none_of_the_batches_stays_as_it_is(lake: Lake) -> None:
    """No commit is made if the table has no batch after the target."""
    head = lake.head
    assert lake.rewind(LAST, LAST).action is None
    assert lake.head == head
    assert lake.tags == {}


def test_a_second_rewind_follows_the_lineage(lake: Lake) -> None:
    """Batches that a rewind or an undo has removed from the table do not count in the next plan."""
    lake.rewind(2, LAST)
    lake.batch("a", 3)
    again = lake.rewind(1, 3)
    assert again.batches == (2, 3)
    lake.undo(again, 1)
    assert lake.rows == _batches(0, 1, 2, 3)
    lake.rewind(2, 3)
    assert lake.rows == _batches(0, 1, 2)


def test_complete_mode_returns_to_the_rows_of_the_batch(tmp_path: Path) -> None:
    """A batch that replaced the table gets its files back."""
    lake = Lake(tmp_path)
    for number in range(4):
        lake.batch("a", number, mode="overwrite")
    plan = lake.rewind(1, 3)
    assert (plan.leaving.files, plan.returning.files) == (1, 1)
    assert lake.rows == _batches(1)


def test_changes_of_others_are_refused(lake: Lake) -> None:
    """Rows that another program inserted since are never lost. The remedy is the first batch after them."""
    lake.insert(7)
    foreign = lake.head
    lake.batch("a", 6)
    refusal = _refusal(lambda: lake.rewind(2, 6))
    assert refusal.code == "foreign-commits"
    assert f"{foreign} (append)" in str(refusal)
    assert refusal.remedy is not None
    assert "headwater rewind CKPT --redo 6 --sink 'iceberg:lake.shop.sales?catalog.type=" in refusal.remedy
    assert _refusal(lambda: lake.rewind(2, 6, keep_foreign=True)).code == "cannot-keep-foreign"
    lake.rewind(5, 6)
    assert lake.rows == [*_batches(0, 1, 2, 3, 4, 5), ("other", 7)]


def test_several_queries(lake: Lake) -> None:
    """The batches of another query are changes of another program."""
    lake.batch("b", 0)
    lake.batch("a", 6)
    assert _refusal(lambda: lake.rewind(4, 6)).code == "foreign-commits"
    assert lake.rewind(5, 6).batches == (6,)


def test_expired_snapshots_are_refused(hadoop: Lake) -> None:
    """A rewind is refused if the snapshot of the batch has expired; a later batch can still be reached."""
    snapshots = hadoop.snapshots()
    hadoop.expire(*(snapshots[number] for number in range(4)))
    refusal = _refusal(lambda: hadoop.rewind(2, LAST))
    assert refusal.code == "snapshot-expired"
    assert "of batch 2" in str(refusal)
    assert _refusal(lambda: hadoop.rewind(-1, LAST)).code == "snapshot-expired"
    hadoop.rewind(4, LAST)
    assert hadoop.rows == _batches(0, 1, 2, 3, 4)


def test_an_expired_head_cannot_be_undone(hadoop: Lake) -> None:
    """Undo is refused if the tag was dropped and the snapshot has expired."""
    plan = hadoop.rewind(2, LAST)
    hadoop.drop_tags()
    hadoop.expire(plan.now)
    refusal = _refusal(lambda: hadoop.undo(plan, 2))
    assert refusal.code == "snapshot-expired"


def test_missing_files_are_noticed_before_anything_changes(tmp_path: Path) -> None:
    """A rewind is refused if a data file or a manifest that has to return is gone."""
    lake = Lake(tmp_path)
    for number in range(3):
        lake.batch("a", number, mode="overwrite")
    lost = next(iter(lake.table.scan(snapshot_id=lake.snapshots()[1]).plan_files()))
    Path(lost.file.file_path).unlink()
    head = lake.head
    refusal = _refusal(lambda: lake.rewind(1, 2))
    assert refusal.code == "table-file-missing"
    assert refusal.evidence["first missing"].endswith(".parquet")
    assert lake.head == head
    manifests = {snapshot.snapshot_id: snapshot.manifest_list for snapshot in lake.table.metadata.snapshots}
    Path(manifests[lake.snapshots()[0]]).unlink()
    assert _refusal(lambda: lake.rewind(0, 2)).code == "table-file-missing"


def test_a_table_that_lost_batches_is_refused(lake: Lake) -> None:
    """A table that was rolled back by hand ends before the batch that would be kept."""
    lake.roll_back(lake.snapshots()[3])
    refusal = _refusal(lambda: lake.rewind(4, LAST))
    assert refusal.code == "table-behind"
    assert "--to 3" in str(refusal.remedy)
    assert lake.rewind(3, LAST).action is None


def test_the_table_of_another_query_is_refused(lake: Lake) -> None:
    """A table without a batch of the query is not its table."""
    refusal = _refusal(lambda: lake.rewind(2, LAST, "b"))
    assert refusal.code == "not-its-table"
    assert refusal.evidence["queries in the table"] == "a"


def test_unknown_formats_are_refused(hadoop: Lake) -> None:
    """A format version that Headwater does not know may have rules that a commit would break."""
    newest = max(
        (hadoop.folder / "metadata").glob("v*.metadata.json"), key=lambda file: int(file.name[1:].split(".")[0])
    )
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "format-version": 4}))
    assert _refusal(lambda: hadoop.rewind(2, LAST)).code == "table-feature"


def test_no_table(tmp_path: Path) -> None:
    """A table that does not exist is refused, by its name or by its folder."""
    for uri in (f"iceberg:lake.shop.none?catalog.type=hadoop&catalog.warehouse={tmp_path}", f"iceberg:{tmp_path}/none"):
        table = open_table(uri)
        assert table is not None
        assert not table.exists
        assert (
            _refusal(lambda table=table: table.plan_rewind(query(3), 2, change_id="x")).code == "not-an-iceberg-table"
        )


def test_a_catalog_that_nothing_describes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table whose catalog is unknown does not exist for a recorded job, and is refused if it is named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    table = open_table("iceberg:nowhere.shop.sales")
    assert table is not None
    assert not table.exists
    with pytest.raises(UsageProblem, match="nowhere is not configured"):
        table.plan_rewind(query(3), 2, change_id="x")


def test_the_folder_of_a_table_names_it(hadoop: Lake) -> None:
    """A table without a catalog of its own is named by its folder."""
    table = open_table(f"iceberg:{hadoop.folder}")
    assert table is not None
    assert table.plan_rewind(query(LAST), 2, change_id="x").batches == (3, 4, 5)


def test_a_table_in_a_configured_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PyIceberg's own configuration describes catalogs that a URI does not."""
    lake = _with_batches(Lake(tmp_path, "jdbc"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{lake.database}")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once in a process
    table = open_table(lake.uri)
    assert table is not None
    assert table.plan_rewind(query(LAST), 2, change_id="x").batches == (3, 4, 5)


def test_the_journal_names_the_table_by_its_id(lake: Lake, tmp_path: Path) -> None:
    """An action is refused on another table of the same name."""
    plan = lake.rewind(2, LAST)
    other = _with_batches(Lake(tmp_path / "other", lake.kind))
    with pytest.raises(ChangeRefused, match="not the one that the change was planned for"):
        other.opened().apply(dict(plan.action or {}))


def test_a_commit_in_between_is_never_overwritten(any_lake: Lake) -> None:
    """If another program commits after the plan was made, nothing changes, and nothing is taken back either."""
    lake = any_lake
    plan = lake.opened().plan_rewind(query(LAST), 2, change_id="x")
    lake.insert(7)
    rows = lake.rows
    assert _refusal(lambda: lake.opened().apply(dict(plan.action or {}))).code == "table-moved"
    assert _refusal(lambda: lake.opened().take_back(dict(plan.action or {}))).code == "table-moved"
    assert lake.rows == rows


def test_apply_and_take_back_can_be_repeated(lake: Lake) -> None:
    """Each of them is done once, however often it is called, and they can follow each other."""
    before = lake.head
    action = dict(lake.opened().plan_rewind(query(LAST), 2, change_id="x").action or {})
    lake.opened().take_back(action)
    assert lake.head == before
    for _ in range(2):
        for _ in range(2):
            lake.opened().apply(action)
        assert lake.rows == _batches(0, 1, 2)
        for _ in range(2):
            lake.opened().take_back(action)
        assert lake.rows == _batches(0, 1, 2, 3, 4, 5)
        assert lake.tags == {}
        assert "write.data.path" not in lake.table.properties


def test_a_restore_point_returns_to_its_snapshot(lake: Lake) -> None:
    """A batch that ran again since returns as it was when it was kept, and a snapshot that may expire is reported."""
    kept = lake.opened().version_of(query(LAST), 3)
    assert kept == lake.snapshots()[3]
    lake.rewind(2, LAST)
    lake.batch("a", 3)
    lake.batch("a", 4)
    assert lake.opened().version_of(query(4), 3) != kept
    plan = lake.rewind(3, 4, pinned=kept)
    assert (plan.returns_to, plan.batches) == (kept, (3, 4))
    assert lake.rows == _batches(0, 1, 2, 3)
    now = 10**13
    assert lake.opened().check_pinned(kept, now - 1000, now) is None
    lake.batch("a", 4)
    assert "may remove snapshot" in str(lake.opened().check_pinned(kept, 0, now))
    assert "has expired" in str(lake.opened().check_pinned(1, 0, now))


def test_metadata_that_is_compressed(tmp_path: Path) -> None:
    """A Hadoop table with compressed metadata gets compressed metadata."""
    import gzip

    lake = _with_batches(Lake(tmp_path))
    folder = lake.folder / "metadata"
    newest = max(folder.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].split(".")[0]))
    value = json.loads(newest.read_text())
    value["properties"]["write.metadata.compression-codec"] = "gzip"
    version = int(newest.name[1:].split(".")[0])
    for file in folder.glob("v*.metadata.json"):
        file.unlink()
    (folder / f"v{version}.gz.metadata.json").write_bytes(gzip.compress(json.dumps(value).encode()))
    plan = lake.opened().plan_rewind(query(LAST), 2, change_id="x")
    lake.opened().apply(dict(plan.action or {}))
    written = json.loads(gzip.decompress((folder / f"v{version + 1}.gz.metadata.json").read_bytes()))
    assert written["current-snapshot-id"] == plan.returns_to
    assert (folder / "version-hint.text").read_text() == str(version + 1)


def test_settings_of_spark_catalogs() -> None:
    """Settings of a catalog in Spark are those of the same catalog in PyIceberg."""
    assert database_url("jdbc:sqlite:/data/a.db") == "sqlite:////data/a.db"
    assert database_url("jdbc:postgresql://h:1/d", "me", "pw") == "postgresql+psycopg://me:pw@h:1/d"
    assert pyiceberg_settings({"type": "rest", "uri": "http://h"}) == {"type": "rest", "uri": "http://h"}
    jdbc = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": "jdbc:sqlite:a.db", "warehouse": "w"}
    assert pyiceberg_settings(jdbc)["type"] == "sql"
    assert pyiceberg_settings({}) == {}


def test_a_catalog_that_does_not_answer(tmp_path: Path) -> None:
    """fsck reports a catalog that cannot be used, and a rewind is refused with the reason."""
    settings = f"catalog.type=jdbc&catalog.uri=jdbc:sqlite:{tmp_path}/none/catalog.db&catalog.warehouse={tmp_path}"
    table = open_table(f"iceberg:lake.shop.sales?{settings}")
    assert table is not None
    assert table.exists
    assert [finding.code for finding in table.compare(query(3))] == ["catalog-unreachable"]
    with pytest.raises(ServiceUnreachable, match="the Iceberg catalog lake cannot be used"):
        table.plan_rewind(query(3), 2, change_id="x")


def test_passwords_are_not_recorded() -> None:
    """The reference in the journal has no password, and one that was hidden in a record is not used."""
    hidden = TableUri("iceberg", "lake.shop.sales", {"catalog.type": "rest", "catalog.token": "***"})
    assert catalog_settings(hidden) == {"type": "rest"}
    table = open_table("iceberg:lake.shop.sales?catalog.type=rest&catalog.uri=http://h&catalog.token=abc")
    assert table is not None
    assert table.reference == "iceberg:lake.shop.sales?catalog.type=rest&catalog.uri=http://h"


@pytest.mark.parametrize("name", ["write.object-storage.path", "write.folder-storage.path"])
def test_data_stays_where_former_properties_put_it(name: str) -> None:
    """Iceberg uses them if the table has no ``write.data.path``."""
    properties = {name: "s3://fast/data", "write.object-storage.enabled": str("object" in name).lower()}
    value = {"format-version": 2, "location": "s3://slow/table", "properties": properties}
    table = TableMetadata(value, "s3://slow/table/metadata/v1.metadata.json")
    assert own_data_path(table, "X") == "s3://fast/data/headwater-X"


@pytest.mark.parametrize("uri", ["postgresql+psycopg2://ann:***@db/c", "jdbc:postgresql://db/c?user=ann&password=***"])
def test_a_recorded_catalog_without_its_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uri: str) -> None:
    """A table whose catalog needs a password that was not recorded is not taken for one that does not exist."""
    monkeypatch.setenv("HOME", str(tmp_path))
    given = f"iceberg:lake.shop.sales?catalog.uri={quote(uri.replace('***', 'abc'), safe='')}"
    table = open_table(given)
    assert table is not None
    assert "abc" not in table.reference
    assert "***" in table.reference
    recorded = open_table(table.reference)
    assert recorded is not None
    assert catalog_settings(parse_table_uri(table.reference) or TableUri("iceberg", "")) == {}
    assert recorded.exists
    with pytest.raises(UsageProblem, match="lake is not configured"):
        recorded.plan_rewind(query(3), 2, change_id="x")
