"""What a disk refuses is told as what it is."""

from __future__ import annotations

import errno
import os

import pytest

from headwater.core.errors import disk_trouble


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "disk-full"), (errno.EROFS, "read-only"), (errno.EACCES, "no-permission")]
)
def test_the_disk_is_named(number: int, code: str) -> None:
    """A full, a read-only and a forbidden disk each have their own words, with the file and a way out."""
    found = disk_trouble(OSError(number, os.strerror(number), "/data/checkpoint/offsets/7"))
    assert found is not None
    assert (found.code, found.exit_status) == (code, 11)
    assert found.evidence["file"] == "/data/checkpoint/offsets/7"
    assert found.remedy


def test_other_failures_are_not_the_disk() -> None:
    """A file that is not there may be a mistake of ours, and is told as one."""
    assert disk_trouble(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None
