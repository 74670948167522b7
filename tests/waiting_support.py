"""Wait for a condition instead of for a time: a busy machine delays a test, and does not fail it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 240.0
"""How long anything may take before a test gives up. Only a test that fails waits this long."""

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], what: str = "the condition") -> Found:
    """Return the value of the condition as soon as it is true; fail if it does not become true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.02)
    return found
