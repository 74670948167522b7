"""The process of a command: what it does with freed memory, and how it ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from headwater.cli.main import main

# Parameters of glibc's mallopt, and more memory than one part of a large state takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30


def run() -> None:
    """Run the command of this process. If nothing of it is left to do, end without taking apart what was read.

    Python takes 45 ms to free everything that a read of a large state has loaded.
    """
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str) or "pyspark" in sys.modules or threading.active_count() > 1:
            raise
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            raise ended from None  # a closed pipe or a full disk, which Python reports as for any program
        os._exit(ended.code or 0)


def keep_freed_memory() -> None:
    """Reuse the memory of arrays that were read, instead of getting zeroed pages for each from the system again.

    This is for a command that ends after one read: a server would never give the memory back.
    """
    import ctypes

    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
