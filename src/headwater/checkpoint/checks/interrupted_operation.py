"""No change of ours to this checkpoint was cut short."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import PENDING_FILE
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    if scene.files.exists(PENDING_FILE):
        message = "says that a change to this checkpoint was begun and not ended; do not start the query before it is"
        yield Finding("error", "interrupted-operation", PENDING_FILE, message, repairable=True)
