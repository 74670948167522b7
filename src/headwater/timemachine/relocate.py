"""Rewrite the absolute paths in the files of a checkpoint and of a file sink. Pure: contents in, contents out.

Spark records absolute paths in the logs of file sources and file sinks, percent-encoded, and in the metadata of operators
with custom state, as plain text. Headwater records them in the job's record, in the journal and in restore points. Files
that changes have set aside or that restore points keep are rewritten in the same way, so that these still work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, JOB_FILE, SINK_LOG, SOURCES, log_id
from headwater.checkpoint.object_tree import S3_SCHEMES
from headwater.checkpoint.operator_metadata import is_operator_metadata, with_schemas_in
from headwater.checkpoint.record import OLDER_FILE, PROGRESS_FILE, escaped_path
from headwater.checkpoint.restore_points import DESCRIPTION
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.core.errors import CheckpointUnreadable
from headwater.timemachine.journal import FOLDER as JOURNAL

_URI_SAFE = frozenset("/_-!.~'()*,;:$&+=@")
_DESCRIBED = re.compile(r"(FileStreamSource|DeltaSource)\[([^\]]*)\]")
_SET_ASIDE = re.compile(rf"(?:{HEADWATER_FOLDER}/(?:quarantine/[^/]+|kept/[^/]+/[^/]+|migrated/[^/]+)/)+")
ModifiedMs = Callable[[str], int | None]
"""Returns when a file was modified, given its new URI as it is recorded; None if that is unknown."""


@dataclass(frozen=True)
class Place:
    """A folder, independent of how its store is spelled: ``file:/a``, ``file:///a`` and ``/a`` are the same."""

    store: str
    parts: tuple[str, ...]

    @classmethod
    def of(cls, location: str, *, encoded: bool = False) -> Place:
        """Return the place of a path or URI."""
        store, path = _split(location)
        parts = [part for part in path.split("/") if part]
        return cls(store, tuple(unquote(part) for part in parts) if encoded else tuple(parts))

    def contains(self, other: Place) -> bool:
        """Return whether a place is this one or below it."""
        return self.store == other.store and other.parts[: len(self.parts)] == self.parts

    def __str__(self) -> str:
        path = "/".join(self.parts)
        return f"/{path}" if self.store == "file" else f"{'s3a' if self.store == 's3' else self.store}://{path}"


def _split(location: str) -> tuple[str, str]:
    scheme, separator, rest = location.partition("://")
    if location.startswith("file:") or not separator:
        return "file", normpath("/" + location.removeprefix("file:").lstrip("/"))
    return ("s3" if scheme in S3_SCHEMES else scheme), rest


@dataclass(frozen=True)
class Relocation:
    """What moves where. ``checkpoint`` is the new location of the checkpoint; ``folders`` are pairs of old and new."""

    checkpoint: FileTree
    folders: tuple[tuple[Place, FileTree], ...]

    def new_uri(self, uri: str, *, encoded: bool) -> str | None:
        """Return the new URI of a file or folder in the form in which Spark records it; None if it stays."""
        place = Place.of(uri, encoded=encoded)
        found = [(old, new) for old, new in self.folders if old.contains(place)]
        if not found:
            return None
        old, new = max(found, key=lambda pair: len(pair[0].parts))
        rest = [part for part in _split(uri)[1].split("/") if part][len(old.parts) :]
        root = new.spark_uri(like=uri)
        store, path = _split(root)
        if encoded:
            path = java_quote(path)
        if store == "file":
            # Spark records files of a local folder as file:///, and the schemas of custom state as file:/.
            has_authority = uri.startswith("file://") or (not uri.startswith("file:") and encoded)
            is_plain = not uri.startswith("file:") and "://" not in uri
            base = path if is_plain else ("file://" if has_authority else "file:") + path
        else:
            base = f"{root.partition('://')[0]}://{path}"
        return "/".join([base.rstrip("/"), *rest])

    def new_endpoint(self, uri: str) -> str | None:
        """Return the new form of ``files:PATH?options``, ``delta:PATH`` or a plain location; None if it stays."""
        kind, colon, rest = uri.partition(":")
        if not colon or kind not in ("files", "delta"):
            return self.new_location(uri)
        path, mark, options = rest.partition("?")
        moved = self.new_location(unquote(path)) or self.new_location(path)
        if moved is None:
            return None
        return f"{kind}:{escaped_path(moved)}{mark}{options}"

    def new_location(self, location: str) -> str | None:
        """Return the new location of a folder as Headwater records it: a path, or a URL of Spark."""
        moved = self.new_uri(location, encoded=False)
        return None if moved is None else moved.removeprefix("file:") if _split(moved)[0] == "file" else moved


def java_quote(path: str) -> str:
    """Return a path percent-encoded as ``java.net.URI`` does, which leaves letters of all languages as they are."""
    return "".join(
        character
        if character in _URI_SAFE or (character.isascii() and character.isalnum()) or _is_other(character)
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in path
    )


def _is_other(character: str) -> bool:
    return not character.isascii() and not character.isspace() and character.isprintable()


def is_rewritten(path: str) -> bool:
    """Return whether a file of a checkpoint or a sink may contain absolute paths that have to change."""
    inner = inner_path(path)
    return _is_log(inner) or is_operator_metadata(inner) or inner == JOB_FILE or _is_own_record(path)


def inner_path(path: str) -> str:
    """Return the path of a file in the checkpoint or the sink if it is set aside, kept or replaced by a migration."""
    found = _SET_ASIDE.match(path)
    return path[found.end() :] if found else path


def _is_log(path: str) -> bool:
    parts = path.split("/")
    is_source = len(parts) == 3 and parts[0] == SOURCES
    return (is_source or (len(parts) == 2 and parts[0] == SINK_LOG)) and log_id(parts[-1]) is not None


def _is_own_record(path: str) -> bool:
    is_point = path.startswith(f"{KEPT}/") and path.endswith(f"/{DESCRIPTION}")
    return is_point or path in (PROGRESS_FILE, OLDER_FILE) or path.startswith(f"{JOURNAL}/")


def rewritten(path: str, data: bytes, moves: Relocation, modified_ms: ModifiedMs = lambda _: None) -> bytes:
    """Return the contents of a file with the new paths; the same contents if none of them changes.

    The times in the log of a file source become those of the new files. Spark forgets files that are much older than
    the newest one, so a file whose copy has a later time would be read again.
    """
    inner = inner_path(path)
    if _is_log(inner):
        return _log(data, moves, modified_ms if inner.startswith(f"{SOURCES}/") else lambda _: None)
    if is_operator_metadata(inner):
        return _operator_metadata(data, inner, moves)
    if inner == JOB_FILE:
        return _json_object(data, lambda value: _job_record(value, moves))
    if path in (PROGRESS_FILE, OLDER_FILE):
        return _progress(data, moves)
    if _is_own_record(path):
        return _json_object(data, lambda value: _own_record(value, moves))
    return data


def _log(data: bytes, moves: Relocation, modified_ms: ModifiedMs) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join([lines[0], *(_log_line(line, moves, modified_ms) for line in lines[1:])])


def _log_line(line: bytes, moves: Relocation, modified_ms: ModifiedMs) -> bytes:
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    path = entry.get("path") if isinstance(entry, dict) else None
    moved = moves.new_uri(path, encoded=True) if isinstance(path, str) else None
    if moved is None:
        return line
    entry["path"] = moved
    at = modified_ms(moved)
    if at is not None and "timestamp" in entry:
        entry["timestamp"] = at
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()


def _operator_metadata(data: bytes, path: str, moves: Relocation) -> bytes:
    """Return metadata that names the schema files at the new location; corrupt metadata stays as it is."""
    try:
        return with_schemas_in(data, path, moves.checkpoint)
    except CheckpointUnreadable:
        return data


def _json_object(data: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return data
    if not isinstance(value, dict):
        return data
    changed = change(value)
    return data if changed == value else json.dumps(changed, indent=1).encode()


def _job_record(value: dict[str, Any], moves: Relocation) -> dict[str, Any]:
    def endpoint(uri: Any) -> Any:
        return (moves.new_endpoint(uri) or uri) if isinstance(uri, str) else uri

    single: dict[str, Any] = {
        name: endpoint(value[name]) for name in ("source", "sink", "table_folder") if name in value
    }
    several = {
        name: {key: endpoint(uri) for key, uri in value[name].items()}
        for name in ("sources", "statics")
        if isinstance(value.get(name), Mapping)
    }
    return {**value, **single, **several}


def _own_record(value: dict[str, Any], moves: Relocation) -> dict[str, Any]:
    """Return an entry of the journal or a restore point that names the new sink and table."""
    changed = (
        {**value, "change": _own_record(value["change"], moves)} if isinstance(value.get("change"), dict) else value
    )
    named: dict[str, Any] = {
        name: moves.new_endpoint(changed[name]) or changed[name]
        for name in ("sink", "table")
        if isinstance(changed.get(name), str)
    }
    return {**changed, **named}


def _progress(data: bytes, moves: Relocation) -> bytes:
    """Return progress records whose descriptions name the new folders: sources are recognized by them."""

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}[{moves.new_uri(found[2], encoded=False) or found[2]}]"

    return _DESCRIBED.sub(renamed, data.decode("utf-8", "replace")).encode()


def folders_in_logs(logs: Sequence[bytes]) -> set[str]:
    """Return the folders of the files that the logs of file sources or sinks name."""
    found = set()
    for data in logs:
        for line in data.split(b"\n")[1:]:
            try:
                path = json.loads(line).get("path")
            except (ValueError, AttributeError):
                continue
            if isinstance(path, str):
                place = Place.of(path, encoded=True)
                found.add(str(Place(place.store, place.parts[:-1])))
    return found
