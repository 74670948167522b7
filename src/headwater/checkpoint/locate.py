"""Open a tree of files by path, URL or job name."""

from __future__ import annotations

import os
import re
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import is_checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.moved import follow_promotion
from headwater.checkpoint.object_tree import ObjectTree, first_line, unreachable
from headwater.core.errors import CheckpointUnreadable, HeadwaterError

CHECKPOINTS = ".headwater/checkpoints"
START_SUFFIX = re.compile(r"-([0-9]{8}-[0-9]{6})(?:-([0-9]+))?")


def open_files(location: str) -> FileTree:
    """Return the tree at a path or URL. It need not exist; ``s3a`` and ``s3n`` are the same as ``s3``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return LocalTree(Path(location.removeprefix("file:")))
    if scheme == "file":
        return LocalTree(Path(rest))
    try:
        return ObjectTree(location)
    except HeadwaterError:
        raise
    except (ImportError, ValueError, OSError) as error:  # the driver of HDFS also loads a Java library and connects
        raise CheckpointUnreadable(
            "unknown-store",
            f"cannot open {scheme}://: its driver is missing or does not work",
            evidence={"location": location, "reason": first_line(error)},
            remedy="pip install 'headwater[s3]'" if scheme.startswith("s3") else "install the fsspec driver for it",
        ) from None


def absolute_location(location: str) -> str:
    """Return a location in one form, so that two can be compared: without a slash at its end, S3 always as ``s3``."""
    scheme, separator, rest = location.rstrip("/").partition("://")
    if separator and scheme != "file":
        return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"
    return absolute_path(rest if separator else location.removeprefix("file:"))


def absolute_path(path: str) -> str:
    """Return a local path as Hadoop does: absolute, and without ``..``, whatever symbolic links there are."""
    return os.path.abspath(path)  # noqa: PTH100  Path.absolute keeps .. in a path


def open_checkpoint(name: str, *, follow: bool = True) -> FileTree:
    """Return the checkpoint with this path, URL or job name; ``CheckpointUnreadable`` shows what was found instead.

    ``PIPELINE:FLOW`` names a flow of a declarative pipeline, by the pipeline's storage folder or its spec.

    If a fork was promoted in its place, return the fork, unless ``follow`` is False.
    """
    for location in candidates(name):
        files = open_files(location)
        if is_checkpoint(_names(files, "")):
            return follow_promotion(files, open_files) if follow else files
    from headwater.checkpoint.pipelines import open_flow  # noqa: PLC0415  it opens files with this module

    flow = open_flow(name)
    if flow is not None:
        return flow
    raise _no_checkpoint(name)


def candidates(name: str) -> list[str]:
    """Return the locations that a name may refer to, in order.

    These are the location itself, the checkpoint of a job of that name, and the newest one of a job that gets a
    checkpoint at each start.
    """
    if "://" in name or name.startswith(("/", ".", "file:")):
        return [name]
    return [name, f"{CHECKPOINTS}/{name}", *(f"{CHECKPOINTS}/{start}" for start in _starts_of(name)[-1:])]


def new_start(job: str, at: datetime) -> str:
    """Return an unused checkpoint path for one start of a job: its name and the time, plus a number if that is taken."""
    name = f"{job}-{at:%Y%m%d-%H%M%S}"
    used, number = known_names(), 1
    while (name if number == 1 else f"{name}-{number}") in used:
        number += 1
    return f"{CHECKPOINTS}/{name}" + ("" if number == 1 else f"-{number}")


def _starts_of(job: str) -> list[str]:
    """Return the names of the checkpoints that ``new_start`` has given a job, oldest first."""
    found = {name: START_SUFFIX.fullmatch(name.removeprefix(job)) for name in known_names() if name.startswith(job)}
    starts = {name: (match[1], int(match[2] or 1)) for name, match in found.items() if match}
    return sorted(starts, key=starts.__getitem__)


def known_names() -> list[str]:
    """Return the names of the jobs that have a checkpoint in the default location."""
    try:
        return [entry.name for entry in open_files(CHECKPOINTS).entries("") if entry.is_folder]
    except OSError:
        return []


def _names(files: FileTree, folder: str) -> list[str]:
    try:
        return [entry.name for entry in files.entries(folder)]
    except HeadwaterError:
        raise
    except PermissionError as error:
        if not files.is_local:
            raise unreachable(files, error) from None
        raise CheckpointUnreadable(
            "no-permission",
            f"cannot read {files.location}: permission denied",
            evidence={"reason": error.strerror},
            remedy="change the permissions, or run as a user who has access",
        ) from None
    except OSError as error:
        raise unreachable(files, error) from None
    except Exception as error:
        # Each store raises exceptions of its own; on a local disk, others are bugs.
        if files.is_local:
            raise
        raise unreachable(files, error) from None


def _no_checkpoint(name: str) -> CheckpointUnreadable:
    from headwater.checkpoint.pipelines import open_pipeline  # noqa: PLC0415  it opens files with this module

    known = known_names()
    pipeline = open_pipeline(name)
    if pipeline is not None:
        return CheckpointUnreadable(
            "not-a-checkpoint",
            f"{name} is a pipeline of {len(pipeline.flows)} flows; this works on one of them",
            evidence={"flows": _some(list(pipeline.flows))},
            remedy=f"headwater log {name}:{next(iter(pipeline.flows))}",
        )
    for location in candidates(name):
        files = open_files(location)
        names = _names(files, "")
        if not names:
            continue
        inside = [name for name in names[:200] if _has_checkpoint(files, name)]
        return CheckpointUnreadable(
            "not-a-checkpoint",
            f"{location} is not a checkpoint: it has no offsets, commits or metadata",
            evidence={"contains": _some(names)} | ({"checkpoints inside": _some(inside)} if inside else {}),
            remedy=f"headwater log {location.rstrip('/')}/{inside[0]}" if inside else _remedy(name, known),
        )
    return CheckpointUnreadable(
        "no-checkpoint",
        f"there is no checkpoint at {name}",
        evidence={"searched": ", ".join(candidates(name))} | ({"known names": _some(known)} if known else {}),
        remedy=_remedy(name, known),
    )


def _has_checkpoint(files: FileTree, folder: str) -> bool:
    """Return whether a folder is a checkpoint; one that cannot be listed, such as ``lost+found``, is not."""
    try:
        return is_checkpoint(_names(files, folder))
    except CheckpointUnreadable:
        return False


def _remedy(name: str, known: list[str]) -> str:
    if not known:
        return "give the folder or URL that the query uses as its checkpointLocation"
    close = get_close_matches(name, known, n=1)
    return f"headwater log {close[0] if close else known[0]}"


def _some(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
