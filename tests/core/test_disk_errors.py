"""Errors of the disk are shown as such."""

from __future__ import annotations

import errno
import os

import pytest

from headwater.core.errors import disk_error


@pytest.mark.parametrize(
    ("number", "code", "problem"),
    [
        (errno.ENOSPC, "disk-full", "the disk is full"),
        (errno.EROFS, "read-only", "the file system is read-only"),
        (errno.EACCES, "no-permission", "permission denied"),
    ],
)
def test_disk_error_has_a_code_and_a_remedy(number: int, code: str, problem: str) -> None:
    """A full disk, a read-only file system and denied permission have codes of their own, the file and a remedy."""
    found = disk_error(OSError(number, os.strerror(number), "/data/checkpoint/offsets/7"))
    assert found is not None
    assert (found.code, found.problem, found.exit_status) == (code, problem, 11)
    assert found.evidence == {"file": "/data/checkpoint/offsets/7", "reason": os.strerror(number)}
    assert found.remedy


def test_other_errors_are_not_the_disk() -> None:
    """A missing file may be a bug, so it is not shown as an error of the disk."""
    assert disk_error(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None
