"""Faults as data: they stand among the records that a test feeds."""

from __future__ import annotations

from enum import Enum


class Crash(Enum):
    """When the job dies while it works on what is being fed."""

    BEFORE_BATCH = "after the batch was planned, before it ran"
    AFTER_OUTPUT = "after the output was written, before the batch was committed"
    AFTER_COMMIT = "after the batch was committed"
