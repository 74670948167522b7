"""A finding that a check reports about a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """A statement about one path: ``message`` is a clause that follows the path. Checks yield findings and never raise."""

    severity: Severity
    code: str
    path: str
    message: str
    repairable: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the finding in the form of ``fsck --json``."""
        return {
            "severity": self.severity,
            "code": self.code,
            "path": self.path,
            "message": self.message,
            "repairable": self.repairable,
        }
