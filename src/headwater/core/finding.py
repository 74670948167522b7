"""What a check has to say about a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One sentence about one path. Checks yield these and never raise on bad data."""

    severity: Severity
    code: str
    path: str
    message: str
    repairable: bool = False

    def as_dict(self) -> dict[str, object]:
        return {
            "severity": self.severity,
            "code": self.code,
            "path": self.path,
            "message": self.message,
            "repairable": self.repairable,
        }
