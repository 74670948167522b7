"""What all of Spark's text logs share: UTF-8 lines, a version in the first line, JSON after it.

A file that cannot be read raises ``CheckpointUnreadable`` with a code for the kind of damage. ``fsck`` reports the same
codes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.core.errors import CheckpointUnreadable

_VERSION = re.compile(r"v([0-9]{1,9})")
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def unreadable_file(code: str, path: str, problem: str) -> CheckpointUnreadable:
    """Return the error for one file; ``problem`` is a clause that follows its path."""
    return CheckpointUnreadable(
        code, f"{path} {problem}", evidence={"file": path}, remedy="run `headwater fsck` on the checkpoint"
    )


@dataclass(frozen=True)
class LogText:
    """The lines of a log file. Joined, they are exactly the bytes that were read."""

    lines: tuple[str, ...]

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> LogText:
        if not data:
            raise unreadable_file("empty-file", path, "is empty")
        if not data.strip(b"\0"):
            raise unreadable_file("torn-file", path, "contains only zero bytes, as after a power failure")
        try:
            return cls(tuple(data.decode("utf-8").split("\n")))
        except UnicodeDecodeError as error:
            raise unreadable_file("not-text", path, f"is not UTF-8 text (byte {error.start})") from None

    def to_bytes(self) -> bytes:
        return "\n".join(self.lines).encode("utf-8")

    @property
    def body(self) -> tuple[str, ...]:
        """The lines after the version, as Spark reads them: a final line break does not start another line."""
        kept = self.lines[1:-1] if len(self.lines) > 1 and not self.lines[-1] else self.lines[1:]
        return tuple(line.removesuffix("\r") for line in kept)

    def version(self, path: str, *, newest: int) -> int:
        """Return the version in the first line, which must not be newer than ``newest``."""
        first = self.lines[0].strip()
        matched = _VERSION.fullmatch(first)
        if not matched or int(matched[1]) < 1:
            raise unreadable_file(
                "bad-version", path, f"starts with {_shortened(first)!r} instead of a version such as v1"
            )
        version = int(matched[1])
        if version > newest:
            raise unreadable_file(
                "newer-version", path, f"has version {version}; this release reads versions up to {newest}"
            )
        return version


def read_bytes(files: FileTree, path: str) -> bytes:
    """Return the contents of a file; raise ``CheckpointUnreadable`` instead of ``OSError``."""
    try:
        return files.read(path)
    except FileNotFoundError:
        raise unreadable_file("missing-file", path, "does not exist") from None
    except OSError as error:
        raise unreadable_file("unreadable-file", path, f"cannot be read: {error.strerror or error}") from None


def list_entries(files: FileTree, folder: str) -> list[Entry]:
    """Return the entries of a folder; raise ``CheckpointUnreadable`` instead of ``OSError``."""
    try:
        return files.entries(folder)
    except OSError as error:
        raise unreadable_file(
            "unreadable-file", folder or ".", f"cannot be listed: {error.strerror or error}"
        ) from None


def list_tree(files: FileTree, folder: str) -> dict[str, list[str]]:
    """Return the file names in every folder below one; raise ``CheckpointUnreadable`` instead of ``OSError``."""
    try:
        return files.tree(folder)
    except OSError as error:
        where = str(error.filename or folder or ".")
        raise unreadable_file("unreadable-file", where, f"cannot be listed: {error.strerror or error}") from None


def json_value(text: str, path: str) -> Any:
    """Return a JSON value; truncated text and invalid text raise errors with different codes."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise unreadable_file("torn-file", path, "ends in the middle of its JSON") from None
        raise unreadable_file(
            "bad-json", path, f"contains invalid JSON (at character {error.pos}: {error.msg})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise unreadable_file(
            "bad-json", path, f"contains JSON that cannot be parsed ({type(error).__name__})"
        ) from None
    if _LONE_SURROGATE.search(text):
        _refuse_lone_surrogates(value, path)
    return value


def json_object(text: str, path: str) -> dict[str, Any]:
    """Return a JSON object; any other value is an error."""
    value = json_value(text, path)
    if not isinstance(value, dict):
        raise unreadable_file("bad-json", path, f"contains {_shortened(text)!r} instead of a JSON object")
    return value


def integer_field(value: dict[str, Any], name: str, path: str, *, default: int | None = None) -> int:
    """Return an integer field of a JSON object; a missing one is an error unless there is a default."""
    found = value.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool):
        raise unreadable_file("bad-json", path, f"has {_shortened(repr(found))} for {name} instead of an integer")
    return found


def string_field(value: dict[str, Any], name: str, path: str) -> str:
    """Return a string field of a JSON object; a missing one is an error."""
    found = value.get(name)
    if not isinstance(found, str):
        raise unreadable_file("bad-json", path, f"has {_shortened(repr(found))} for {name} instead of a string")
    return found


def _refuse_lone_surrogates(value: Any, path: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise unreadable_file("bad-json", path, "contains an invalid Unicode escape") from None


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
