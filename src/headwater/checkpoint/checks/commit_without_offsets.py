"""Every committed batch was planned: its offsets are there."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    planned = scene.logs.offsets.ids
    for number in scene.logs.commits.ids:
        if number in scene.logs.offsets.entries:
            continue
        path = scene.logs.commits.path(number)
        if planned and number < planned[0]:
            message = (
                f"has no offsets: the log of offsets begins at {planned[0]}; a purge was cut short, which is harmless"
            )
            yield Finding("info", "commit-without-offsets", path, message)
        else:
            message = f"says that batch {number} is done, and offsets/{number} is not there"
            yield Finding("error", "commit-without-offsets", path, message)
