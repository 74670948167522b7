"""The data files that a Delta log names: where they are, and whether they still exist."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_files
from headwater.lakehouse.delta_actions import Action

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_LENGTH = 20


def missing_files(table: FileTree, actions: Iterable[Action]) -> list[str]:
    """Return the data files and deletion vectors of ``add`` actions that no longer exist, as VACUUM leaves them."""
    paths = dict.fromkeys(path for action in actions for path in _paths_of(action))
    return [path for path in paths if not _exists(table, path)]


def _paths_of(action: Action) -> list[str]:
    vector = vector_path(action)
    return [str(action["path"]), *([vector] if vector else [])]


def vector_path(action: Action) -> str | None:
    """Return the path of the file that holds an action's deletion vector; None if it has none, or holds it inline."""
    vector = action.get("deletionVector")
    if not vector or vector.get("storageType") == "i":
        return None
    text = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "p":
        return text
    folder, name = text[:-_UUID_LENGTH], _uuid_of(text[-_UUID_LENGTH:])
    return f"{folder}/deletion_vector_{name}.bin".removeprefix("/")


def _uuid_of(text: str) -> uuid.UUID:
    """Return a UUID in the base 85 of ZeroMQ, which deletion vectors use."""
    data = b""
    for start in range(0, len(text), 5):
        number = 0
        for letter in text[start : start + 5]:
            number = number * 85 + _Z85.index(letter)
        data += number.to_bytes(4, "big")
    return uuid.UUID(bytes=data)


def is_absolute(path: str) -> bool:
    """Return whether a path in the log is a URI or begins at the root, as in a shallow clone."""
    return bool(urlsplit(path).scheme) or path.startswith("/")


def absolute(table: FileTree, path: str) -> str:
    """Return a path of the log as a URI. Paths in the log are percent-encoded."""
    if is_absolute(path):
        return path
    root = table.spark_uri()
    if root.startswith("file:"):
        return f"file:{quote(root.removeprefix('file:'))}/{path}"
    return f"{root}/{path}"


def _exists(table: FileTree, path: str) -> bool:
    if not is_absolute(path):
        return table.exists(unquote(path))
    parts = urlsplit(path)
    if parts.scheme in {"", "file"}:
        return Path(unquote(parts.path)).exists()
    folder, _, name = unquote(f"{parts.scheme}://{parts.netloc}{parts.path}").rpartition("/")
    return open_files(folder).exists(name)
