"""From the name of a place (a path, a URL, or a job's name) to its tree of files."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import is_checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.core.errors import CheckpointUnreadable, HeadwaterError, ServiceUnreachable


def open_files(location: str) -> FileTree:
    """The tree at a path or URL. Spark's ``s3a`` and ``s3n`` are the object store's ``s3``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return LocalTree(Path(location.removeprefix("file:")))
    if scheme == "file":
        return LocalTree(Path(rest))
    return ObjectTree(location)


def subtree(files: FileTree, folder: str) -> FileTree:
    """A folder of a tree as a tree of its own."""
    if isinstance(files, LocalTree):
        return LocalTree(files.path_of(folder))
    return open_files(f"{files.location.rstrip('/')}/{folder}")


CHECKPOINTS = ".headwater/checkpoints"


def open_checkpoint(called: str) -> FileTree:
    """The files of a checkpoint that is there; ``CheckpointUnreadable`` with what was found instead otherwise."""
    for location in candidates(called):
        files = _opened(location)
        names = _names(files, "")
        if is_checkpoint(names):
            return files
    raise _nothing_at(called)


def candidates(called: str) -> list[str]:
    """Where a name may lead, in the order in which they are tried: the place itself, then a job of that name."""
    if "://" in called or called.startswith(("/", ".", "file:")):
        return [called]
    return [called, f"{CHECKPOINTS}/{called}"]


def known_names() -> list[str]:
    """The jobs that have a checkpoint in the usual place."""
    try:
        return [entry.name for entry in open_files(CHECKPOINTS).entries("") if entry.is_folder]
    except OSError:
        return []


def _opened(location: str) -> FileTree:
    try:
        return open_files(location)
    except HeadwaterError:
        raise
    except (ImportError, ValueError) as error:
        scheme = location.partition("://")[0]
        raise CheckpointUnreadable(
            "unknown-store",
            f"{scheme}:// cannot be reached from here",
            evidence={
                "location": location,
                "reason": str(error).splitlines()[0] if str(error) else type(error).__name__,
            },
            remedy="pip install 'headwater[s3]'" if scheme.startswith("s3") else "install the fsspec driver for it",
        ) from None


def _names(files: FileTree, folder: str) -> list[str]:
    try:
        return [entry.name for entry in files.entries(folder)]
    except PermissionError as error:
        if isinstance(files, LocalTree):
            raise CheckpointUnreadable(
                "no-permission", f"{files.location} may not be read", evidence={"reason": error.strerror}
            ) from None
        raise unreachable(files, error) from None
    except OSError as error:
        raise unreachable(files, error) from None
    except Exception as error:
        # Each store has exceptions of its own kind; none of them is a mistake of ours.
        if isinstance(files, ObjectTree):
            raise unreachable(files, error) from None
        raise


def unreachable(files: FileTree, error: Exception | str) -> ServiceUnreachable:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ServiceUnreachable(
        "store-unreachable",
        f"{files.location} cannot be reached",
        evidence={"reason": reason},
        remedy="check the address and the credentials (for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_PROFILE)",
    )


def _nothing_at(called: str) -> CheckpointUnreadable:
    known = known_names()
    for location in candidates(called):
        files = _opened(location)
        names = _names(files, "")
        if not names:
            continue
        inside = [name for name in names[:200] if is_checkpoint(_names(files, name))]
        return CheckpointUnreadable(
            "not-a-checkpoint",
            f"{location} is not a checkpoint: it has no offsets, commits or metadata",
            evidence={"found": _some(names)} | ({"checkpoints inside": _some(inside)} if inside else {}),
            remedy=f"headwater log {location.rstrip('/')}/{inside[0]}" if inside else _remedy(called, known),
        )
    return CheckpointUnreadable(
        "no-checkpoint",
        f"there is no checkpoint at {called}",
        evidence={"looked at": ", ".join(candidates(called))} | ({"known names": _some(known)} if known else {}),
        remedy=_remedy(called, known),
    )


def _remedy(called: str, known: list[str]) -> str:
    if not known:
        return "give the folder that the query has as its checkpointLocation"
    close = get_close_matches(called, known, n=1)
    return f"headwater log {close[0] if close else known[0]}"


def _some(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
