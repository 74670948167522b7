"""At most one batch is planned and not committed."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    done = -1 if scene.last_committed is None else scene.last_committed
    waiting = [number for number in scene.logs.offsets.ids if number > done]
    if len(waiting) > 1:
        first, last = waiting[0], waiting[-1]
        message = (
            f"batches {first} to {last} are planned and not committed; "
            f"Spark would run {last} alone and skip the others' input"
        )
        yield Finding("error", "several-uncommitted", scene.logs.offsets.path(last), message)
    elif waiting:
        message = (
            f"batch {waiting[0]} is planned and not committed; Spark will run it, again if need be, at its next start"
        )
        yield Finding("info", "uncommitted", scene.logs.offsets.path(waiting[0]), message)
