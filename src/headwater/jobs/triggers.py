"""When a job's batches run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headwater.core.errors import UsageProblem

INTERVAL = re.compile(r"\d+\s*(millisecond|second|minute|hour|day)s?", re.IGNORECASE)


@dataclass(frozen=True)
class Trigger:
    """``asap`` runs a batch as soon as there is data; ``interval`` is set for the two kinds that need one."""

    kind: Literal["asap", "once", "available-now", "interval", "real-time"]
    interval: str | None = None

    @property
    def ends_by_itself(self) -> bool:
        return self.kind in {"once", "available-now"}

    def spark_arguments(self) -> dict[str, str | bool]:
        """The keyword arguments of ``DataStreamWriter.trigger``; none for Spark's default."""
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
    """Understands ``once``, ``available-now``, ``10 seconds`` and ``real-time 5 seconds``; nothing means as soon as possible."""
    if not text:
        return Trigger("asap")
    words = text.strip()
    if words == "once":
        return Trigger("once")
    if words == "available-now":
        return Trigger("available-now")
    real_time, interval = words.startswith("real-time"), words.removeprefix("real-time").strip()
    if not INTERVAL.fullmatch(interval):
        raise UsageProblem(
            "bad-trigger",
            f"{text!r} is not a trigger",
            remedy='use --trigger once, available-now, "10 seconds" or "real-time 5 seconds"',
        )
    return Trigger("real-time" if real_time else "interval", interval)
