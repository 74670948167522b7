"""File sources: input files that vanished, that changed after they were read, or that Spark ignores because of their age.

Spark knows a file by its path, so a file that changes is not read again. It ignores a new file whose modification time is
more than ``maxFileAge`` before that of the newest file that it has seen, unless it reads the latest files first in
batches of a limited size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.file_logs import FileEntry
from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.layout import SINK_LOG
from headwater.checkpoint.locate import open_files
from headwater.core.errors import HeadwaterError
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.guards.report import SourceReport
from headwater.views.formatting import format_duration

# Some stores and file systems keep whole seconds only.
ROUNDING_MS = 1000
DEFAULT_MAX_AGE = "7d"
_GLOB = frozenset("*?[{")
_AGE = re.compile(r"(-?[0-9]+)\s*(us|ms|s|m|min|h|d)?")
_AGE_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class FileNeeds:
    """What a stream has read from a file source and has yet to read, according to its checkpoint."""

    label: str
    read: tuple[FileEntry, ...]
    """The files of committed batches, as far as the source's log lists them."""
    waiting: tuple[FileEntry, ...] = ()
    """Files in the source's log that no committed batch has read."""
    folder: str | None = None
    options: Mapping[str, str] | None = field(default_factory=dict)
    """The options of the source in lower case; None if they are unknown."""

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        return (*self.read, *self.waiting)


@dataclass(frozen=True)
class FoundFiles:
    """Modification times by path: of the files in the source's log that exist, and of others in its folder."""

    logged: Mapping[str, int | None]
    others: Mapping[str, int | None] = field(default_factory=dict)


def report_on(needs: FileNeeds, found: FoundFiles) -> SourceReport:
    """Return the findings on a file source."""
    vanished = [entry for entry in needs.entries if entry.path not in found.logged]
    changed = [
        entry
        for entry in needs.entries
        if (modified := found.logged.get(entry.path)) is not None and abs(modified - entry.timestamp_ms) >= ROUNDING_MS
    ]
    too_old = _too_old(needs, found)
    findings = [*_vanished(needs, vanished), *_changed(needs, changed), *_ignored(needs, too_old)]
    if not any(finding.severity == "error" for finding in findings):
        findings.append(
            Finding("info", "source-checked", _path(needs), f"{count(len(needs.entries), 'input file')} checked")
        )
    numbers = {"vanished": len(vanished), "changed": len(changed), "too-old": len(too_old)}
    return SourceReport(tuple(findings), files=numbers)


def _vanished(needs: FileNeeds, vanished: list[FileEntry]) -> Iterator[Finding]:
    waiting = set(needs.waiting)
    unread, read = [entry for entry in vanished if entry in waiting], [one for one in vanished if one not in waiting]
    if unread:
        message = (
            f"{count(len(unread), 'file')} of the next batch vanished; the first is "
            f"{unread[0].path}; Spark fails, or skips them with spark.sql.files.ignoreMissingFiles"
        )
        yield Finding("error", "file-vanished", _path(needs), message)
    if read and (needs.options or {}).get("cleansource", "off").lower() == "off":
        message = (
            f"{len(read)} of {count(len(needs.read), 'input file')} of committed batches do not exist any more; the first is "
            f"{read[0].path}; a rewind cannot read them again"
        )
        if needs.options is None:
            message += "; this is normal if the source has the option cleanSource, which is not recorded"
            yield Finding("info", "file-vanished", _path(needs), message)
        else:
            yield Finding("warning", "file-vanished", _path(needs), message)


def _changed(needs: FileNeeds, changed: list[FileEntry]) -> Iterator[Finding]:
    if changed:
        message = (
            f"{count(len(changed), 'input file')} changed after Spark saw them; the first is {changed[0].path}; Spark "
            "knows files by their paths and does not read them again, and a rewind reads the new contents"
        )
        yield Finding("warning", "file-changed", _path(needs), message)


def _ignored(needs: FileNeeds, too_old: list[str]) -> Iterator[Finding]:
    if too_old:
        limit = format_duration(int(_limit_ms(needs) or 0))
        message = (
            f"{count(len(too_old), 'file')} will never be read, because they are more than maxFileAge ({limit}) older than the "
            f"newest file; the first is {too_old[0]}; give them a new modification time, or raise maxFileAge"
        )
        yield Finding("warning", "file-too-old", _path(needs), message)


def _too_old(needs: FileNeeds, found: FoundFiles) -> list[str]:
    limit = _limit_ms(needs)
    newest = max((entry.timestamp_ms for entry in needs.entries), default=None)
    if limit is None or newest is None:
        return []
    return sorted(path for path, modified in found.others.items() if modified is not None and modified < newest - limit)


def _limit_ms(needs: FileNeeds) -> float | None:
    return None if needs.options is None else max_file_age_ms(needs.options)


def max_file_age_ms(options: Mapping[str, str]) -> float | None:
    """Return ``maxFileAge`` as Spark applies it; None if it does not apply or is not a duration. Names are in lower case."""
    latest_first = options.get("latestfirst", "false").lower() == "true"
    if latest_first and {"maxfilespertrigger", "maxbytespertrigger"} & options.keys():
        return None
    matched = _AGE.fullmatch(options.get("maxfileage", DEFAULT_MAX_AGE).strip().lower())
    return None if matched is None else int(matched[1]) * _AGE_MS[matched[2] or "ms"]


def _path(needs: FileNeeds) -> str:
    return f"files:{needs.folder}" if needs.folder else needs.label


def find_files(needs: FileNeeds) -> FoundFiles:
    """List the folders of the input files. Raises ``HeadwaterError`` or ``OSError`` if a folder cannot be listed."""
    by_folder: dict[str, dict[str, FileEntry]] = {}
    for entry in needs.entries:
        folder, _, name = unquoted(entry.path).rpartition("/")
        by_folder.setdefault(folder, {})[name] = entry
    logged: dict[str, int | None] = {}
    for folder, entries in by_folder.items():
        for present in _listed(open_files(folder or "/"), ""):
            if present.name in entries:
                logged[entries[present.name].path] = present.modified_ms
    return FoundFiles(logged, _others(needs, {unquoted(entry.path) for entry in needs.entries}))


def unquoted(path: str) -> str:
    """Return a path of the source's log as a plain path, or as a URL that ``open_files`` takes."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return unquote(parts.path)
    return f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


def _others(needs: FileNeeds, known: set[str]) -> dict[str, int | None]:
    """Return the files that the source would read and that its log does not list."""
    if needs.folder is None or needs.options is None or max_file_age_ms(needs.options) is None:
        return {}
    only = needs.options.get("pathglobfilter", "*")
    found: dict[str, int | None] = {}
    for root in _roots(needs.folder):
        tree = open_files(root)
        if any(entry.name == SINK_LOG for entry in _listed(tree, "")):
            continue  # Spark takes the files from the log of the sink that wrote them
        for path, modified in _walk(tree, "", recursive=needs.options.get("recursivefilelookup", "").lower() == "true"):
            full = f"{root.rstrip('/')}/{path}"
            if fnmatch(path.rpartition("/")[2], only) and full not in known:
                found[full] = modified
    return found


def _roots(folder: str) -> Iterable[str]:
    """Return the folders of a path that may be a pattern; none for a pattern on an object store."""
    if not _GLOB & set(folder):
        return [folder]
    if "://" in folder:
        return []
    pattern = re.sub(r"\*{2,}", "*", folder.lstrip("/"))  # to Hadoop, ** is the same as *
    return [str(path) for path in Path("/").glob(pattern) if path.is_dir()]


def _walk(tree: FileTree, folder: str, *, recursive: bool) -> Iterator[tuple[str, int | None]]:
    """Yield the files that Spark lists: also those in the folders of partitions (``day=1``), or in all of them."""
    for entry in _listed(tree, folder):
        path = f"{folder}/{entry.name}".lstrip("/")
        if entry.name.startswith((".", "_")):
            continue
        if not entry.is_folder:
            yield path, entry.modified_ms
        elif recursive or "=" in entry.name:
            yield from _walk(tree, path, recursive=recursive)


def _listed(tree: FileTree, folder: str) -> list[Entry]:
    try:
        return tree.entries(folder)
    except (HeadwaterError, OSError):
        raise
    except Exception as error:  # each object store raises exceptions of its own
        raise OSError(str(error) or type(error).__name__) from error
