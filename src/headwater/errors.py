"""The exceptions that Headwater raises, for programs that catch them.

Every exception is a ``HeadwaterError`` with the attributes ``code``, ``problem``, ``evidence``, ``remedy`` and
``exit_status``. Its class corresponds to the exit status of the command line.
"""

from __future__ import annotations

from headwater.core.errors import (
    ChangeRefused,
    CheckpointBusy,
    CheckpointUnreadable,
    HeadwaterError,
    InternalError,
    JobFailed,
    JobRefused,
    ServiceUnreachable,
    SetupProblem,
    UsageProblem,
)

__all__ = [
    "ChangeRefused",
    "CheckpointBusy",
    "CheckpointUnreadable",
    "HeadwaterError",
    "InternalError",
    "JobFailed",
    "JobRefused",
    "ServiceUnreachable",
    "SetupProblem",
    "UsageProblem",
]
