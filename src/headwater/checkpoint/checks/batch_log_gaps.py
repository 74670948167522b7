"""Batch ids follow one another, in ``offsets/`` and in ``commits/``, and each has one file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import COMMITS, OFFSETS, batch_id
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    yield from _gaps(OFFSETS, scene.logs.offsets.ids)
    yield from _gaps(COMMITS, scene.logs.commits.ids)
    for folder in (OFFSETS, COMMITS):
        yield from _duplicates(scene, folder)


def _gaps(folder: str, ids: tuple[int, ...]) -> Iterator[Finding]:
    for before, after in pairwise(ids):
        if after == before + 1:
            continue
        lost = f"batch {before + 1}" if after == before + 2 else f"batches {before + 1} to {after - 1}"
        stops = folder == OFFSETS and after == ids[-1]
        effect = (
            "Spark starts from the last two offsets and will not start"
            if stops
            else "one cannot rewind into the gap (queries with asynchronous progress tracking leave such gaps)"
        )
        path = f"{folder}/{before + 1}"
        message = f"{lost} missing between {before} and {after}: {effect}"
        yield Finding("error" if stops else "warning", f"{folder}-gap", path, message)


def _duplicates(scene: Scene, folder: str) -> Iterator[Finding]:
    first: dict[int, str] = {}
    for name in sorted(scene.tree.get(folder, ()), key=len):
        number = batch_id(name)
        if number is None:
            continue
        if number in first:
            message = f"is a second file for batch {number}, besides {folder}/{first[number]}"
            yield Finding("error", f"{folder}-duplicate", f"{folder}/{name}", message)
        first.setdefault(number, name)
