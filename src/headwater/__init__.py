"""Headwater: build, test, inspect and rewind stateful Spark streams."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported on first use, so that reading a checkpoint does not import Spark.
_MODULES = {
    "Checkpoint": "headwater.api",
    "Job": "headwater.jobs.job",
    "Kafka": "headwater.jobs.endpoints",
    "Files": "headwater.jobs.endpoints",
    "Socket": "headwater.jobs.endpoints",
    "Static": "headwater.jobs.endpoints",
    "Rate": "headwater.jobs.endpoints",
    "Table": "headwater.jobs.endpoints",
    "Delta": "headwater.jobs.endpoints",
    "Iceberg": "headwater.jobs.endpoints",
    "Console": "headwater.jobs.endpoints",
    "Memory": "headwater.jobs.endpoints",
    "Postgres": "headwater.jobs.endpoints",
    "RunningJob": "headwater.spark.running",
    "attach": "headwater.spark.attach",
    "seed": "headwater.api",
}

__all__ = [
    "Checkpoint",
    "Console",
    "Delta",
    "Files",
    "Iceberg",
    "Job",
    "Kafka",
    "Memory",
    "Postgres",
    "Rate",
    "RunningJob",
    "Socket",
    "Static",
    "Table",
    "__version__",
    "attach",
    "seed",
]

if TYPE_CHECKING:
    from headwater.api import Checkpoint, seed
    from headwater.jobs.endpoints import (
        Console,
        Delta,
        Files,
        Iceberg,
        Kafka,
        Memory,
        Postgres,
        Rate,
        Socket,
        Static,
        Table,
    )
    from headwater.jobs.job import Job
    from headwater.spark.attach import attach
    from headwater.spark.running import RunningJob


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
