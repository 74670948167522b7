"""A Delta table that gets the rows of a fork, and the fork's table that catches up afterwards, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.delta_takeover import Fork, plan_delta_catch_up, plan_delta_takeover
from headwater.lakehouse.tables import Checkpointed
from timemachine.test_table_crash_safety import _commit as commit
from timemachine.test_table_crash_safety import table as batches

AT = 2
ORIGINAL, FORK = Checkpointed("/original", "q1", 4, 4), Checkpointed("/fork", "q2", 4, 4)


class Tables:
    """The table of a query after five batches, and a fork's table: a copy as of batch 2, and one that began empty."""

    def __init__(self, home: Path, *, copied: bool = True) -> None:
        self.out, self.new = LocalTree(home / "the table"), LocalTree(home / "new")
        self.write(self.out, batches("q1", 5))
        if copied:
            self.write(self.new, self.table.plan_copy(ORIGINAL, AT, query_id="q2", into=self.new).files)
            self.write(self.new, self.rows("q2", 1, 3))
        else:
            first = batches("q2", 4, first=3, version=-3)  # version 0 with batch 3
            name = "part-00000", "part-q2-3"
            renamed = {path.replace(*name): data.replace(*map(str.encode, name)) for path, data in first.items()}
            self.write(self.new, renamed)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.out, f"delta:{self.out.location}")

    @property
    def own(self) -> DeltaTable:
        return DeltaTable(self.new, f"delta:{self.new.location}")

    def write(self, files: LocalTree, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            files.write(path, data)

    def rows(self, query: str, version: int, batch: int) -> dict[str, bytes]:
        name = f"part-{query}-{batch}.parquet"
        add = {"path": name, "partitionValues": {}, "size": 4, "modificationTime": batch, "dataChange": True}
        txn = {"appId": query, "version": batch, "lastUpdated": batch}
        return {name: b"rows"} | commit(version, {"txn": txn}, {"add": add})

    def take_over(self) -> dict:
        found = plan_delta_takeover(self.table, ORIGINAL, Fork(self.own, FORK, AT), change_id="c")
        for path in found.files:
            self.new.share(path, self.out)
        self.table.apply(found.action)
        return dict(found.action)

    def names(self, files: LocalTree) -> set[str]:
        log = DeltaLog(files)
        assert not [path for path, _ in log.snapshot(log.head).files if path.startswith("/") and files is self.out]
        return {path.rpartition("/")[2] for path, _ in log.snapshot(log.head).files}


EARLIER = {f"part-{number:05d}.parquet" for number in range(AT + 1)}


@pytest.mark.parametrize("copied", [True, False])
def test_the_table_has_the_rows_of_the_fork(tmp_path: Path, copied: bool) -> None:
    """It has the original's rows up to the fork and the fork's since, and Delta knows the fork's last batch."""
    tables = Tables(tmp_path, copied=copied)
    before = tables.names(tables.out)
    theirs = {"part-q2-3.parquet"}
    action = tables.take_over()
    assert tables.names(tables.out) == EARLIER | theirs
    log = DeltaLog(tables.out)
    head = log.snapshot(log.head)
    assert (head.table_id, head.transactions) == ("t", {"q1": 4, "q2": 3})
    assert all(tables.out.exists(path) for path, _ in head.files)
    tables.write(tables.out, tables.rows("q2", log.head + 1, 4))
    caught = plan_delta_catch_up(tables.own, tables.table, FORK, tables.table.applied_at(action), change_id="u")
    assert caught.files == ("part-q2-4.parquet",)
    tables.out.share("part-q2-4.parquet", tables.new)
    tables.own.apply(caught.action)
    assert tables.names(tables.new) == (EARLIER if copied else set()) | theirs | {"part-q2-4.parquet"}
    again = plan_delta_catch_up(tables.own, tables.table, FORK, tables.table.applied_at(action), change_id="u")
    assert again.action is None
    back = tables.table.plan_undo(FORK, action, change_id="u")
    tables.table.apply(back.action)
    assert tables.names(tables.out) == before


FIRST = "_delta_log/00000000000000000000.json"


@pytest.mark.parametrize("since", ["a row", "before the next batch", "partitions", "row tracking"])
def test_what_would_lose_rows_is_refused(tmp_path: Path, since: str) -> None:
    """A change of another program since the fork, and tables that do not match, are refused by name."""
    tables = Tables(tmp_path)
    theirs = {"path": "theirs.parquet", "partitionValues": {}, "size": 1, "dataChange": True}
    expected = "other programs have changed the table"
    if since == "a row":
        tables.write(tables.out, commit(5, {"add": theirs}))
    elif since == "before the next batch":
        tables.write(tables.out, commit(3, {"add": theirs}))
    elif since == "partitions":
        data = tables.new.read(FIRST).replace(b'"partitionColumns":[]', b'"partitionColumns":["day"]')
        tables.new.write(FIRST, data)
        expected = "different partition columns"
    else:
        tables.write(tables.out, commit(5, {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}"}}))
        expected = "row tracking"
    with pytest.raises(ChangeRefused, match=expected):
        tables.take_over()
