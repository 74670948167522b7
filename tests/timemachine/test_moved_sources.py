"""Rewinds of a query that reads a Delta table which was rewound itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import commit_path
from headwater.timemachine.rewind import RewindPlan, plan_query_rewind
from headwater.timemachine.undo import plan_undo
from headwater.views.plans import rewind_text


def add(path: str, rows: int = 1) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": path, "partitionValues": {}, "modificationTime": 1, "dataChange": True, "stats": stats}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


GOOD = ([{"metaData": {"id": "t"}}, add("a")], [add("b")])
BAD = ([add("x")], [add("y")])
BACK = [{"commitInfo": {"operation": "RESTORE"}}, remove("x"), remove("y")]


class Lake:
    """A table and a query that reads it: batch 0 has read the good versions, batches 1 and 2 one bad version each."""

    def __init__(
        self,
        folder: Path,
        *after: list[dict[str, Any]],
        options: str = "",
        ends: Sequence[int] = (2, 3, 4),
    ) -> None:
        self.table, self.files = LocalTree(folder / "table"), LocalTree(folder / "checkpoint")
        for version, actions in enumerate([*GOOD, *BAD, *after]):
            self.table.write(commit_path(version), "\n".join(json.dumps(action) for action in actions).encode())
            for action in actions:
                if "add" in action:
                    self.table.write(action["add"]["path"], b"rows")
        self.files.write("metadata", b'{"id":"0ba3dd96-5016-4d52-8624-9efd500bc25a"}')
        self.files.write(JOB_FILE, JobRecord("totals", f"delta:{self.table.location}{options}", "console:").to_bytes())
        for batch, version in enumerate(ends):
            self.files.write(f"offsets/{batch}", offsets(version))
            self.files.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')

    def plan(self, to: int | None, **options: Any) -> RewindPlan:
        return plan_query_rewind(self.files, to=to, **options)


def offsets(version: int, index: int = -1, *, in_snapshot: bool = False) -> bytes:
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n'
    place = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    place["isStartingVersion"] = in_snapshot
    return (head + json.dumps(place, separators=(",", ":"))).encode()


def test_table_that_was_not_rewound(tmp_path: Path) -> None:
    """Without a rewind of the table, the query reads its versions again with the recorded offsets."""
    plan = Lake(tmp_path).plan(0)
    assert (plan.moved_sources, plan.replan) == ((), False)
    (reread,) = plan.rereads
    assert (reread.still_there, reread.files, reread.rows) == (True, 2, 2)


def test_query_continues_after_the_rewind_of_its_table(tmp_path: Path) -> None:
    """If the table returned to what the last kept batch has read, the query continues after that version."""
    lake = Lake(tmp_path, BACK, [add("c", 5)])
    plan = lake.plan(0)
    (moved,) = plan.moved_sources
    assert (str(moved.before), str(moved.after), moved.returned_at, moved.rows) == ("2", "5", 4, 5)
    assert (plan.rereads, plan.replan) == ((), True)
    facts = dict(rewind_text(plan).facts)
    assert facts["continues"].startswith(f"source 0 at version 5 of delta:{lake.table.location}, 5 rows: version 4")
    assert facts["rewritten"] == "offsets/0"
    plan.apply()
    assert lake.files.read("offsets/0") == offsets(5)
    assert not lake.files.exists("offsets/1")
    plan_undo(lake.files).apply()
    assert [lake.files.read(f"offsets/{batch}") for batch in range(3)] == [offsets(2), offsets(3), offsets(4)]


def test_batch_before_the_last_one(tmp_path: Path) -> None:
    """The offsets before the last kept batch move too: Spark asks the source for that batch when it starts."""
    lake = Lake(tmp_path, BACK, ends=(1, 2, 3, 4))
    lake.plan(1).apply()
    assert lake.files.read("offsets/0") == offsets(4, 0, in_snapshot=True)
    assert lake.files.read("offsets/1") == offsets(5)


@pytest.mark.parametrize("after", [BACK, [remove("x")]])
def test_query_that_has_read_less_than_the_table_has(tmp_path: Path, after: list[dict[str, Any]]) -> None:
    """A query continues with the rest of the table as it was after the last version that removed rows."""
    lake = Lake(tmp_path, after, ends=(1, 2, 3, 4))
    plan = lake.plan(0)
    (moved,) = plan.moved_sources
    assert (str(moved.after), moved.rows) == ("snapshot 4:0", 1 if after == BACK else 2)
    assert moved.sentence.startswith(f"source 0 with the rest of delta:{lake.table.location} as of version 4")
    plan.apply()
    assert lake.files.read("offsets/0") == offsets(4, 0, in_snapshot=True)


def test_query_that_has_read_no_rewound_row(tmp_path: Path) -> None:
    """A query whose last batch ended before the rows that left the table only continues elsewhere."""
    lake = Lake(tmp_path, BACK)
    lake.plan(0).apply()
    lake.table.write(commit_path(5), json.dumps(add("z")).encode())
    lake.table.write("z", b"rows")
    lake.table.write(commit_path(6), json.dumps(remove("z")).encode())
    plan = lake.plan(0)
    assert plan.undone == ()
    assert plan.sink == "nothing is written again"
    plan.apply()
    assert lake.files.read("offsets/0") == offsets(7)


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (1, [BACK]),  # batch 1 has read the version of x, which the table no longer has
        (0, [BACK, [add("c")], [remove("a")]]),  # a row that batch 0 has read has left the table since
    ],
)
def test_query_that_cannot_continue(tmp_path: Path, to: int, after: list[list[dict[str, Any]]]) -> None:
    """If the table lost rows that the query has read, the rewind is refused."""
    lake = Lake(tmp_path, *after)
    with pytest.raises(ChangeRefused, match="no longer has all the input") as refused:
        lake.plan(to).apply()
    assert "removes rows" in str(refused.value)
    assert "--redo 0 --replan" in str(refused.value)


def test_query_from_scratch(tmp_path: Path) -> None:
    """A query that is planned again from its start reads the table as it is, whatever happened to it."""
    plan = Lake(tmp_path, [remove("a")]).plan(None, replan=True)
    (reread,) = plan.rereads
    assert reread.still_there
    with pytest.raises(ChangeRefused, match="no longer has all the input"):
        Lake(tmp_path / "other", [remove("a")]).plan(None).apply()


def test_query_that_skips_changes(tmp_path: Path) -> None:
    """A query that skips changes reads the versions again as before."""
    plan = Lake(tmp_path, BACK, options="?skipChangeCommits=true").plan(0)
    assert plan.moved_sources == ()
    assert [reread.still_there for reread in plan.rereads] == [True]


def test_unknown_and_missing_tables(tmp_path: Path) -> None:
    """A table that is not recorded is asked for, and one that is gone is named."""
    lake = Lake(tmp_path)
    lake.files.remove(JOB_FILE)
    (reread,) = lake.plan(0).rereads
    assert (reread.still_there, reread.why) == (None, "the table is unknown; name it with --source delta:PATH")
    (reread,) = lake.plan(0, sources=[f"delta:{lake.table.location}"]).rereads
    assert reread.still_there
    (reread,) = lake.plan(0, sources=[f"delta:{tmp_path / 'nowhere'}"]).rereads
    assert (reread.still_there, "there is no Delta table" in str(reread.why)) == (False, True)
