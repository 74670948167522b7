"""Triggers: when a job's batches run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headwater.core.errors import UsageProblem

INTERVAL = re.compile(r"\d+\s*(millisecond|second|minute|hour|day)s?", re.IGNORECASE)


@dataclass(frozen=True)
class Trigger:
    """A trigger. ``asap`` starts a batch as soon as there is data; two kinds have an ``interval``."""

    kind: Literal["asap", "once", "available-now", "interval", "real-time"]
    interval: str | None = None

    @property
    def ends_by_itself(self) -> bool:
        return self.kind in {"once", "available-now"}

    def spark_arguments(self) -> dict[str, str | bool]:
        """Return the keyword arguments of ``DataStreamWriter.trigger``; none for Spark's default."""
        match self.kind:
            case "asap":
                return {}
            case "once":
                return {"once": True}
            case "available-now":
                return {"availableNow": True}
            case "interval":
                return {"processingTime": self.interval or ""}
            case "real-time":
                return {"realTime": self.interval or ""}


def parse_trigger(text: str | None) -> Trigger:
    """Parse ``once``, ``available-now``, ``10 seconds`` or ``real-time 5 seconds``; None means as soon as possible."""
    if not text:
        return Trigger("asap")
    stripped = text.strip()
    if stripped == "once":
        return Trigger("once")
    if stripped == "available-now":
        return Trigger("available-now")
    real_time, interval = stripped.startswith("real-time"), stripped.removeprefix("real-time").strip()
    if not INTERVAL.fullmatch(interval):
        raise UsageProblem(
            "bad-trigger",
            f"{text!r} is not a valid trigger",
            remedy='use one of: once, available-now, "10 seconds", "real-time 5 seconds"',
        )
    return Trigger("real-time" if real_time else "interval", interval)
