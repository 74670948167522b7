"""Restore points on an object store, which has no hard links: through the S3 client that commands use."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_support import run_here
from corpus_support import load
from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.restore_points import find_point, restore_points
from headwater.statefiles.reader import state_rows
from s3_support import S3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aggregation-rocksdb", "custom-format2"])
def test_keep_rewind_and_undo_on_s3(s3: S3, tmp_path: Path, name: str) -> None:
    """A batch is kept by copies, survives the removal of its files, and can be rewound to and undone."""
    prefix = f"kept/{name}"
    url = s3.upload(load(name, tmp_path).path, prefix)
    files = open_files(url)
    kept = run_here("keep", url, "early", "--at", "4")
    assert kept.returncode == 0, kept.stderr
    state, newest = list(state_rows(files, 4)), list(state_rows(files, 9))
    assert '"name":"early"' in run_here("kept", url, "--json").stdout.replace(" ", "")
    for batch in range(5):
        for folder in ("offsets", "commits"):
            files.remove(f"{folder}/{batch}")
    point = find_point(files, "early")
    assert point is not None and point.batch_id == 4
    done = run_here("rewind", url, "--to", "early", "--yes", "--allow-missing-input")
    assert done.returncode == 0, done.stderr
    assert History(files).last_committed == 4
    assert list(state_rows(files)) == state
    assert run_here("fsck", url).returncode == 0
    undone = run_here("undo", url, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert list(state_rows(files, 9)) == newest
    assert run_here("keep", url, "--drop", "early").returncode == 0
    assert restore_points(files) == []
    assert not [path for path in s3.objects(prefix) if path.startswith("_headwater/kept/")]
