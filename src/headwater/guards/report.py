"""The result of checking the sources of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.core.finding import Finding


@dataclass(frozen=True)
class SourceReport:
    """Findings about sources, and the numbers behind them. A number is None where it is unknown or does not apply."""

    findings: tuple[Finding, ...] = ()
    unread: int | None = None
    """Records in Kafka that no batch has read."""
    overtaken_in_ms: Mapping[str, float] = field(default_factory=dict)
    """By topic, the time until retention removes records before they are read; infinite if the stream keeps ahead."""
    files: Mapping[str, int] = field(default_factory=dict)
    """The number of input files that are ``vanished``, ``changed`` or ``too-old``."""
    checked_at_ms: int = 0

    @property
    def soonest_ms(self) -> float | None:
        """The shortest time until retention overtakes the stream in any topic."""
        return min(self.overtaken_in_ms.values(), default=None)


def combine(reports: Iterable[SourceReport], checked_at_ms: int) -> SourceReport:
    """Return the report on all sources of a stream."""
    findings: list[Finding] = []
    unread: list[int | None] = []
    soonest: dict[str, float] = {}
    files: dict[str, int] = {}
    for report in reports:
        findings += report.findings
        if report.unread is not None:
            unread.append(report.unread)
        for topic, left in report.overtaken_in_ms.items():
            soonest[topic] = min(left, soonest.get(topic, left))
        for state, number in report.files.items():
            files[state] = files.get(state, 0) + number
    order = {"error": 0, "warning": 1, "info": 2}
    findings.sort(key=lambda finding: order[finding.severity])
    total = sum(number for number in unread if number is not None) if unread else None
    return SourceReport(tuple(findings), total, soonest, files, checked_at_ms)
