"""Every restore point is complete: its description can be read, and its files have the recorded sizes."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import walk
from headwater.checkpoint.layout import parent_and_name
from headwater.checkpoint.restore_points import DESCRIPTION, FOLDER, find_point, is_name, listed_files
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    files = context.files
    names = [entry.name for entry in files.entries(FOLDER) if entry.is_folder and is_name(entry.name)]
    for name in names:
        path = f"{FOLDER}/{name}/{DESCRIPTION}"
        try:
            point = find_point(files, name)
            listed = listed_files(files, point) if point else {}
        except CheckpointUnreadable as error:
            yield Finding(
                "warning", "restore-point", path, f"belongs to a restore point that is unusable: {error.problem}"
            )
            continue
        if point is None:
            yield Finding(
                "info", "restore-point", path, "is missing: the restore point is being made, or was interrupted"
            )
            continue
        start = len(parent_and_name(point.place)[0]) + 1
        places = (point.place, point.sink_place)
        present = {path[start:]: entry.size for place in places for path, entry in walk(files, place)}
        wrong = sorted(path for path, size in listed.items() if present.get(path) != size)
        if wrong:
            state = "has another size than recorded" if wrong[0] in present else "is missing"
            message = f"{state}: the restore point {name} is unusable"
            yield Finding("warning", "restore-point", f"{FOLDER}/{name}/{wrong[0]}", message)
