"""The rows of a Delta or Iceberg table that a job has not read yet."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from headwater.core.ids import BatchId
from headwater.lakehouse.delta_actions import commit_path
from headwater.views.page_summary import summary_figures
from headwater.web.table_lag import TableLag
from lakehouse.iceberg_support import Lake


def test_lag_of_a_table(tmp_path: Path) -> None:
    """The lag is the number of rows after the newest batch's offset, and the figure shows it."""
    table, checkpoint = LocalTree(tmp_path / "table"), LocalTree(tmp_path / "checkpoint")
    for version, rows in enumerate((5, 7, 11)):
        file = {"path": f"{version}.parquet", "dataChange": True, "stats": json.dumps({"numRecords": rows})}
        actions = [{"metaData": {"id": "t"}}, {"add": file}] if version == 0 else [{"add": file}]
        table.write(commit_path(version), "\n".join(map(json.dumps, actions)).encode())
    offset = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": 1, "index": -1, "isStartingVersion": False}
    checkpoint.write("metadata", b'{"id":"0ba3dd96-5016-4d52-8624-9efd500bc25a"}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n'
    checkpoint.write("offsets/0", (head + json.dumps(offset)).encode())
    checkpoint.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    batches = [History(checkpoint).batch(BatchId(0))]
    job, lag = JobRecord(source=f"delta:{tmp_path / 'table'}?maxFilesPerTrigger=1"), TableLag()
    deadline = time.monotonic() + 10
    while (found := lag.by_source(job, batches)) == {"source 0": None} and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == {"source 0": 18}
    shown = {figure.name: figure.value for figure in summary_figures(batches, {}, now_ms=0, lags=found)}
    assert shown["Lag"] == "18"


def test_lag_of_an_iceberg_table(tmp_path: Path) -> None:
    """The lag of an Iceberg source is the number of rows in the files after its position."""
    lake = Lake(tmp_path / "lake")
    for number in range(4):
        lake.batch("a", number)
    checkpoint = LocalTree(tmp_path / "checkpoint")
    checkpoint.write("metadata", b'{"id":"0ba3dd96-5016-4d52-8624-9efd500bc25a"}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n'
    offset = {"version": 1, "snapshot_id": lake.snapshots()[1], "position": 1, "scan_all_files": False}
    checkpoint.write("offsets/0", (head + json.dumps(offset)).encode())
    batches = [History(checkpoint).batch(BatchId(0))]
    job, lag = JobRecord(source=lake.sink), TableLag()
    deadline = time.monotonic() + 10
    while (found := lag.by_source(job, batches)) == {"source 0": None} and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == {"source 0": 2}


def test_lag_of_a_missing_table(tmp_path: Path) -> None:
    """A table that cannot be read has no lag."""
    lag = TableLag()
    assert lag.by_source(JobRecord(source=f"delta:{tmp_path}"), []) == {}
