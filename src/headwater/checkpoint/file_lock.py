"""Exclusive POSIX locks on files. The operating system releases a lock when its process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

HELD = (errno.EACCES, errno.EAGAIN)

# A POSIX lock belongs to the process: other threads can acquire it too, and it is released as soon as any thread
# closes the file. This registry keeps threads from doing either.
_locked_here: set[Path] = set()
_registry = threading.Lock()


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Hold the lock on a file, which is created if missing; yield False if another thread or process holds it."""
    known = path.resolve()
    with _registry:
        handle = None if known in _locked_here else _acquire(path)
        if handle is not None:
            _locked_here.add(known)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with _registry:
                handle.close()
                _locked_here.discard(known)


def is_locked(path: Path) -> bool:
    """Return whether any thread or process holds the lock on a file."""
    with _registry:
        if path.resolve() in _locked_here:
            return True
        try:
            with path.open("r+b") as handle:
                return not _try_lock(handle)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False


def has_locks(path: Path) -> bool:
    """Return whether the file system of a lock file knows locks: some network file systems refuse them."""
    with _registry:
        if path.resolve() in _locked_here:
            return True
        try:
            with path.open("r+b") as handle:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return True
        except OSError as error:
            return error.errno in HELD
        return True


def _acquire(path: Path) -> BinaryIO | None:
    handle = path.open("a+b")
    if _try_lock(handle):
        return handle
    handle.close()
    return None


def _try_lock(handle: BinaryIO) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
