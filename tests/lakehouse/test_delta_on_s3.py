"""A Delta table in an object store: commits are created by conditional requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.tables import open_table
from lakehouse.delta_support import Writer, query, rows_of
from s3_support import S3


def test_rewind_on_s3(s3: S3, tmp_path: Path) -> None:
    """A table on S3 is rewound by a commit that is created only if no other program has created one."""
    writer = Writer(tmp_path / "table")
    for number in range(4):
        writer.batch("a", number)
    s3.upload(writer.path, "lake/table")
    uri = f"delta:{s3.url('lake/table')}"
    table = open_table(uri)
    assert table is not None
    action = dict(table.plan_rewind(query(3), 1, change_id="x").action or {})
    table.apply(action)
    table.apply(action)
    assert rows_of(s3.download("lake/table", tmp_path / "after")) == [("a", 0), ("a", 1)]

    again = open_table(uri)
    assert again is not None
    undo = dict(again.plan_undo(query(1), action, change_id="y").action or {})
    open_files(s3.url("lake/table")).create("_delta_log/00000000000000000005.json", b'{"commitInfo":{}}\n')
    with pytest.raises(ChangeRefused, match="another program has committed"):
        again.apply(undo)


def test_create_never_replaces_an_object(s3: S3) -> None:
    """An object that exists stays as it is."""
    files = open_files(s3.url("created"))
    files.create("one", b"first")
    with pytest.raises(FileExistsError):
        files.create("one", b"second")
    with pytest.raises(FileExistsError):  # without the check before it: the condition of the request
        files._system.pipe_file(files._full("one"), b"second", mode="create")  # type: ignore[attr-defined]
    assert files.read("one") == b"first"
