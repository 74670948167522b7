"""What a run records under ``_headwater/``: the job (``job.json``) and the progress of each batch (``progress.jsonl``).

Nothing in Spark depends on these files. A batch that ran again has a later line in ``progress.jsonl``, and that line
counts; lines of batches that were rewound remain until the file is replaced, and readers ignore batches that the logs
do not have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import JOB_FILE, OURS
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.logtext import json_object
from headwater.core.errors import CheckpointUnreadable

FILES = "files:"


@dataclass(frozen=True)
class JobRecord:
    """All of it may be missing: most checkpoints are Spark's alone."""

    job: str | None = None
    source: str | None = None
    sink: str | None = None
    mode: str | None = None
    reference: str | None = None
    """How the job was named on the command line: a gallery name, ``module:NAME`` or ``file.py:NAME``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    table_folder: str | None = None
    """Where the files of a table sink are: its name does not say."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1, default=str).encode()

    @property
    def source_kind(self) -> str | None:
        kind = (self.source or "").partition(":")[0]
        return kind or None

    @property
    def rows_per_second(self) -> int | None:
        """A rate source's speed, where it is steady."""
        if self.source_kind != "rate":
            return None
        options = {name.lower(): value for name, value in parse_qsl((self.source or "").partition("?")[2])}
        speed = options.get("rowspersecond", "1")
        return int(speed) if speed.isascii() and speed.isdigit() and "rampuptime" not in options else None

    @property
    def sink_folder(self) -> str | None:
        """Where a file sink, or a table's, writes."""
        return folder_of(self.sink) if self.sink and self.sink.startswith(FILES) else self.table_folder


def sink_of(files: FileTree, given: str | None = None) -> FileTree | None:
    """The folder of the checkpoint's file sink: as given, or as ``headwater run`` wrote it down."""
    if given is None:
        folder = read_job_record(files).sink_folder
    else:
        folder = folder_of(given) if given.startswith(FILES) or ":" not in given else None
    if folder is None:
        return None
    return open_files(folder if "://" in folder else str(Path(folder.removeprefix("file:")).absolute()))


def folder_of(uri: str) -> str:
    """The place in ``files:PATH?options``; a bare path or URL is itself."""
    path = uri.removeprefix(FILES).partition("?")[0]
    return unquote(path) if uri.startswith(FILES) else path


def read_job_record(files: FileTree) -> JobRecord:
    """Never fails: a record that cannot be read counts as none, and fsck says so."""
    try:
        return parse_job_record(files.read(JOB_FILE))
    except (OSError, CheckpointUnreadable):
        return JobRecord()


def parse_job_record(data: bytes) -> JobRecord:
    value = json_object(data.decode("utf-8", "replace"), JOB_FILE)
    job, source, sink, mode, reference, folder = (
        _text(value.get(name)) for name in ("job", "source", "sink", "mode", "reference", "table_folder")
    )
    settings = value.get("settings")
    return JobRecord(job, source, sink, mode, reference, settings if isinstance(settings, dict) else {}, folder)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


PROGRESS_FILE = f"{OURS}/progress.jsonl"
OLDER_FILE = f"{OURS}/progress.older.jsonl"
MOST_LINES = 10_000
REMOTE_LINES, REMOTE_SECONDS = 500, 5.0


@dataclass(frozen=True)
class ProgressRecord:
    """One batch as Spark reported it. Times are epoch milliseconds, rates are rows a second."""

    batch_id: int
    at_ms: int
    input_rows: int = 0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    duration_ms: int = 0
    watermark_ms: int | None = None
    event_time_min_ms: int | None = None
    event_time_max_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    dropped: int = 0
    malformed: int = 0
    lag_rows: int | None = None
    durations_ms: dict[str, int] = field(default_factory=dict)

    def ran_at(self, moment_ms: int, slack_ms: int = 0) -> bool:
        """Whether a moment lies in the batch that this tells of. A number that was rewound has had other batches before."""
        return self.at_ms <= moment_ms <= self.at_ms + self.duration_ms + slack_ms

    def to_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


_NAMES = {one.name for one in fields(ProgressRecord)}


def parse_line(line: str) -> ProgressRecord | None:
    """None for a line that was cut short or that another version wrote."""
    try:
        held = json.loads(line)
        return ProgressRecord(**{name: value for name, value in held.items() if name in _NAMES})
    except (ValueError, TypeError, AttributeError):
        return None


def read_progress(files: FileTree) -> dict[int, ProgressRecord]:
    """The newest record of each batch; empty where the query never ran under ``headwater run``."""
    found: dict[int, ProgressRecord] = {}
    for path in (OLDER_FILE, PROGRESS_FILE):
        with suppress(OSError):
            records = map(parse_line, files.read(path).decode("utf-8", "replace").splitlines())
            found |= {record.batch_id: record for record in records if record}
    return found


class ProgressTail:
    """Reads a growing file again and again, on a disk only what was added since."""

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._found: dict[int, ProgressRecord] = {}
        self._file: tuple[int, int] | None = None
        self._read_bytes = 0

    def records(self) -> dict[int, ProgressRecord]:
        """The newest record of each batch."""
        if not isinstance(self._files, LocalTree):
            return read_progress(self._files)
        try:
            with self._files.path_of(PROGRESS_FILE).open("rb") as held:
                info = os.fstat(held.fileno())
                if (info.st_dev, info.st_ino) != self._file or info.st_size < self._read_bytes:
                    self._file, self._read_bytes = (info.st_dev, info.st_ino), 0
                    self._found = read_progress(self._files)
                held.seek(self._read_bytes)
                data = held.read()
        except OSError:
            return self._found
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        records = map(parse_line, whole.decode("utf-8", "replace").splitlines())
        self._found |= {record.batch_id: record for record in records if record}
        return dict(self._found)


class ProgressWriter:
    """Adds lines, and starts a new file when there are ``MOST_LINES``. A line that cannot be written is given up."""

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._lines = self._present()
        self._kept: list[str] = []
        self._written_at = 0.0

    def add(self, record: ProgressRecord) -> None:
        with suppress(Exception):  # a full disk or a lost bucket must not stop the stream
            if isinstance(self._files, LocalTree):
                self._append(self._files, record.to_line())
            else:
                self._replace(record.to_line())

    def _append(self, files: LocalTree, line: str) -> None:
        path = files.path_of(PROGRESS_FILE)
        if self._lines >= MOST_LINES:
            path.replace(files.path_of(OLDER_FILE))
            self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as out:
            out.write(line)
        self._lines += 1

    def _replace(self, line: str) -> None:
        """Objects cannot grow: the last few hundred lines are written whole, every few seconds."""
        self._kept = [*self._kept, line][-REMOTE_LINES:]
        if time.monotonic() - self._written_at >= REMOTE_SECONDS:
            self._files.write(PROGRESS_FILE, "".join(self._kept).encode())
            self._written_at = time.monotonic()

    def _present(self) -> int:
        if isinstance(self._files, LocalTree):
            with suppress(OSError):
                return self._files.read(PROGRESS_FILE).count(b"\n")
        return 0
