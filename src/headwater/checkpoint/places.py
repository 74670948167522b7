"""From the name of a place to the tree of files there."""

from __future__ import annotations

from pathlib import Path

from headwater.checkpoint.files import Files
from headwater.checkpoint.local_files import LocalFiles
from headwater.checkpoint.object_store import ObjectStoreFiles


def open_files(location: str) -> Files:
    """The tree at a path or URL. Spark's ``s3a`` and ``s3n`` are the object store's ``s3``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return LocalFiles(Path(location.removeprefix("file:")))
    if scheme == "file":
        return LocalFiles(Path(rest))
    return ObjectStoreFiles(location)


def subtree(files: Files, folder: str) -> Files:
    """A folder of a tree as a tree of its own."""
    if isinstance(files, LocalFiles):
        return LocalFiles(files.path_of(folder))
    return open_files(f"{files.location.rstrip('/')}/{folder}")
