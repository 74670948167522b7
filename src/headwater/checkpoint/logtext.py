"""What all of Spark's text logs share: UTF-8 lines, a version line first, JSON after it.

Whatever cannot be read is refused with a ``CheckpointUnreadable`` whose code says how it is broken; the same codes are
what ``fsck`` reports.
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


def broken(code: str, path: str, problem: str) -> CheckpointUnreadable:
    """A refusal about one file; ``problem`` is a clause that follows the file's name."""
    return CheckpointUnreadable(
        code, f"{path} {problem}", evidence={"file": path}, remedy="run `headwater fsck` on the checkpoint"
    )


@dataclass(frozen=True)
class LogText:
    """A log file as its lines. Joining them gives back the very bytes that were read."""

    lines: tuple[str, ...]

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> LogText:
        if not data:
            raise broken("empty-file", path, "is empty")
        if not data.strip(b"\0"):
            raise broken("torn-file", path, "holds only zero bytes, as after a power cut")
        try:
            return cls(tuple(data.decode("utf-8").split("\n")))
        except UnicodeDecodeError as error:
            raise broken("not-text", path, f"is not UTF-8 text (byte {error.start})") from None

    def to_bytes(self) -> bytes:
        return "\n".join(self.lines).encode("utf-8")

    @property
    def body(self) -> tuple[str, ...]:
        """The lines after the version, as Spark reads them: a line break at the very end starts no new line."""
        kept = self.lines[1:-1] if len(self.lines) > 1 and not self.lines[-1] else self.lines[1:]
        return tuple(line.removesuffix("\r") for line in kept)

    def version(self, path: str, *, newest: int) -> int:
        """The number in the first line, which must be one that is known here."""
        first = self.lines[0].strip()
        matched = _VERSION.fullmatch(first)
        if not matched or int(matched[1]) < 1:
            raise broken("bad-version", path, f"starts with {_shortened(first)!r} where a version such as v1 belongs")
        version = int(matched[1])
        if version > newest:
            raise broken("newer-version", path, f"has version {version}; versions up to {newest} are known here")
        return version


def read_bytes(files: FileTree, path: str) -> bytes:
    """A file's bytes; one that is missing or may not be read is a refusal and not an ``OSError``."""
    try:
        return files.read(path)
    except FileNotFoundError:
        raise broken("missing-file", path, "is not there") from None
    except OSError as error:
        raise broken("unreadable-file", path, f"cannot be read: {error.strerror or error}") from None


def entries_of(files: FileTree, folder: str) -> list[Entry]:
    """A folder's entries; one that may not be looked into is a refusal."""
    try:
        return files.entries(folder)
    except OSError as error:
        raise broken("unreadable-file", folder or ".", f"cannot be listed: {error.strerror or error}") from None


def tree_of(files: FileTree, folder: str) -> dict[str, list[str]]:
    """The names in every folder below one; what may not be looked into is a refusal."""
    try:
        return files.tree(folder)
    except OSError as error:
        where = error.filename or folder or "."
        raise broken("unreadable-file", str(where), f"cannot be listed: {error.strerror or error}") from None


def json_value(text: str, path: str) -> Any:
    """One JSON value. A text that stops in the middle is told apart from one that is wrong."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise broken("torn-file", path, "ends in the middle of its JSON") from None
        raise broken("bad-json", path, f"holds no valid JSON (at character {error.pos}: {error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise broken("bad-json", path, f"holds JSON that cannot be taken in ({type(error).__name__})") from None
    if _LONE_SURROGATE.search(text):
        _refuse_lone_surrogates(value, path)
    return value


def json_object(text: str, path: str) -> dict[str, Any]:
    value = json_value(text, path)
    if not isinstance(value, dict):
        raise broken("bad-json", path, f"holds {_shortened(text)!r} where a JSON object belongs")
    return value


def whole_number(holder: dict[str, Any], name: str, path: str, *, default: int | None = None) -> int:
    value = holder.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise broken("bad-json", path, f"has {_shortened(repr(value))} for {name}, where a whole number belongs")
    return value


def string(holder: dict[str, Any], name: str, path: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise broken("bad-json", path, f"has {_shortened(repr(value))} for {name}, where a text belongs")
    return value


def _refuse_lone_surrogates(value: Any, path: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise broken("bad-json", path, "holds a broken Unicode escape") from None


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
