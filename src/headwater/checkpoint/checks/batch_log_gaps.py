"""Batch ids follow one another, in ``offsets/`` and in ``commits/``, and each has one file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import COMMITS, OFFSETS, batch_id
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    asynchronous = _looks_asynchronous(scene)
    for folder, ids in ((OFFSETS, scene.logs.offsets.ids), (COMMITS, scene.logs.commits.ids)):
        for before, after in pairwise(ids):
            if after != before + 1:
                yield _gap(folder, before, after, at_the_end=after == ids[-1], asynchronous=asynchronous)
        yield from _duplicates(scene, folder)


def _looks_asynchronous(scene: Scene) -> bool:
    """Asynchronous progress tracking, which only stateless queries have, leaves the same gaps in both logs."""
    done = scene.last_committed
    planned = [number for number in scene.logs.offsets.ids if done is not None and number <= done]
    return not scene.logs.state.stores and tuple(planned) == scene.logs.commits.ids


def _gap(folder: str, before: int, after: int, *, at_the_end: bool, asynchronous: bool) -> Finding:
    lost = f"batch {before + 1}" if after == before + 2 else f"batches {before + 1} to {after - 1}"
    message = f"{lost} missing between {before} and {after}: "
    path = f"{folder}/{before + 1}"
    if asynchronous:
        message += "so does asynchronous progress tracking leave it; the query has to go on with it"
        return Finding("info", f"{folder}-gap", path, message)
    if folder == OFFSETS and at_the_end:
        message += "Spark starts from the last two offsets and will not start"
        return Finding("error", f"{folder}-gap", path, message)
    return Finding("warning", f"{folder}-gap", path, message + "one cannot rewind into the gap")


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
