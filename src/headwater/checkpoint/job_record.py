"""``_headwater/job.json``: what ``headwater run`` wrote down about the job that this checkpoint belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from headwater.checkpoint.files import Files
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.logtext import json_object
from headwater.checkpoint.places import open_files
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


def sink_of(files: Files, given: str | None = None) -> Files | None:
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


def read_job_record(files: Files) -> JobRecord:
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
