"""The schema files that custom state's metadata names are there."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.operator_metadata import schema_folder
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    last = scene.last_committed
    for operator in scene.logs.state.operators if last is not None else ():
        about = scene.logs.operator(operator, last or 0)
        for store in about.stores if about else ():
            folder = schema_folder(operator, store.name)
            for path in store.schema_paths:
                name = path.rpartition("/")[2]
                if not scene.has(f"{folder}/{name}"):
                    message = "is not there, and the operator's metadata names it: its state cannot be read"
                    yield Finding("error", "schema-missing", f"{folder}/{name}", message)
