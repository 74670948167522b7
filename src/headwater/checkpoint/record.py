"""What a run records under ``_headwater/``: the job (``job.json``) and the progress of each batch (``progress.jsonl``).

``headwater.attach`` records the same for queries of other programs, with the Java classes in ``headwater.streaming``.

Spark does not use these files. If a batch ran again, its last line in ``progress.jsonl`` is valid. Lines of rewound
batches remain until the file is replaced, and readers ignore batches that are not in the logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, JOB_FILE
from headwater.checkpoint.locate import absolute_path, open_files
from headwater.checkpoint.logtext import json_object
from headwater.core.errors import CheckpointUnreadable

FILES = "files:"


@dataclass(frozen=True)
class JobRecord:
    """The job that runs on a checkpoint. Every part may be missing: another program may have created the checkpoint."""

    job: str | None = None
    source: str | None = None
    sink: str | None = None
    mode: str | None = None
    reference: str | None = None
    """How to load the job: a gallery name, ``module:NAME`` or ``file.py:NAME``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    table_folder: str | None = None
    """The folder of a table sink, which cannot be derived from the table's name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The URIs of the sources by name, if the job names them; ``source`` is then missing.

    Several sources of an attached query have numbers, unless the program named them.
    """
    statics: Mapping[str, str] = field(default_factory=dict)
    """The URIs of the static tables by name."""
    has_state_view: bool = False
    """Whether the job has a ``state_view``, so that readers need not load the job to know."""
    source_order: tuple[str, ...] = ()
    """The names of several sources in the order of their offsets. One that the job uses twice occurs twice."""
    attached: bool = False
    """Whether the query is of a program with ``headwater.attach``, not a Headwater job; ``job`` is then its name."""

    def to_bytes(self) -> bytes:
        """Return the contents of ``job.json``."""
        return json.dumps(asdict(self), indent=1, default=str).encode()

    @property
    def inputs(self) -> dict[str, str]:
        """The URIs of sources and static tables by name; the name of a job's only source may be empty."""
        return {**({"": self.source} if self.source else {}), **self.sources, **self.statics}

    @property
    def source_kind(self) -> str | None:
        """The scheme of the source's URI, such as ``kafka``."""
        return uri_kind(self.source)

    @property
    def sink_folder(self) -> str | None:
        """The folder that a file sink or a table sink writes to."""
        return folder_of(self.sink) if self.sink and self.sink.startswith(FILES) else self.table_folder


def uri_kind(uri: str | None) -> str | None:
    """Return the scheme of a URI, such as ``kafka``."""
    return (uri or "").partition(":")[0] or None


def rows_per_second(uri: str | None) -> int | None:
    """Return the rate of a rate source, if it is constant."""
    if uri_kind(uri) != "rate":
        return None
    options = {name.lower(): value for name, value in parse_qsl((uri or "").partition("?")[2])}
    speed = options.get("rowspersecond", "1")
    return int(speed) if speed.isascii() and speed.isdigit() and "rampuptime" not in options else None


def sink_of(files: FileTree, given: str | None = None) -> FileTree | None:
    """Return the output folder of the checkpoint's file sink: as given, or as it was recorded."""
    if given is None:
        folder = read_job_record(files).sink_folder
    else:
        folder = folder_of(given) if given.startswith(FILES) or ":" not in given else None
    if folder is None:
        return None
    return open_files(folder if "://" in folder else absolute_path(folder.removeprefix("file:")))


def files_uri(folder: str) -> str:
    """Return the URI of a folder, from which ``folder_of`` returns the folder again."""
    return FILES + escaped_path(folder)


def escaped_path(path: str) -> str:
    """Return a path as it has to be in a URI with options."""
    return path.replace("%", "%25").replace("?", "%3F")


def folder_of(uri: str) -> str:
    """Return the path in ``files:PATH?options``; a plain path or URL is returned as it is."""
    path = uri.removeprefix(FILES).partition("?")[0]
    return unquote(path) if uri.startswith(FILES) else path


def read_job_record(files: FileTree) -> JobRecord:
    """Return the recorded job, or an empty record if there is none or it is corrupt, which ``fsck`` reports.

    A flow of a declarative pipeline has no record; what is known about it is returned in the form of one.
    """
    try:
        return parse_job_record(files.read(JOB_FILE))
    except (OSError, CheckpointUnreadable):
        from headwater.checkpoint.flow_record import flow_record  # noqa: PLC0415  it returns a record

        return flow_record(files) or JobRecord()


def parse_job_record(data: bytes) -> JobRecord:
    """Return the job in ``job.json``; fields of the wrong type are ignored."""
    value = json_object(data.decode("utf-8", "replace"), JOB_FILE)
    job, source, sink, mode, reference, folder = (
        _text(value.get(name)) for name in ("job", "source", "sink", "mode", "reference", "table_folder")
    )
    settings = value.get("settings")
    kept = settings if isinstance(settings, dict) else {}
    return JobRecord(
        job,
        source,
        sink,
        mode,
        reference,
        kept,
        folder,
        _texts(value.get("sources")),
        _texts(value.get("statics")),
        value.get("has_state_view") is True,
        _names(value.get("source_order")),
        value.get("attached") is True,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> dict[str, str]:
    return {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def _names(value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return tuple(value) if is_list else ()


PROGRESS_FILE = f"{HEADWATER_FOLDER}/progress.jsonl"
OLDER_FILE = f"{HEADWATER_FOLDER}/progress.older.jsonl"
_LINE_BYTES = 800
"""About the length of a line, with one source."""


@dataclass(frozen=True)
class SourceProgress:
    """What a batch read from one source.

    ``id`` is the source's name in the offset log, ``name`` the one that the job gives it. Either is None if unknown.
    """

    id: str | None = None
    name: str | None = None
    description: str | None = None
    records: int | None = None
    malformed: int | None = None
    lag_rows: int | None = None
    """How many records were in Kafka and not in the batch."""


@dataclass(frozen=True)
class OperatorWatermark:
    """A ``withWatermark`` of the query: its column and delay, and the newest event time since the query started.

    ``source`` is the name in the offset log of the source that it reads; None if it reads several.
    """

    source: str | None
    column: str
    delay_ms: int
    max_event_time_ms: int | None = None

    @property
    def watermark_ms(self) -> int | None:
        """The watermark that the query would have without its other operators."""
        return None if self.max_event_time_ms is None else self.max_event_time_ms - self.delay_ms


@dataclass(frozen=True)
class ProgressRecord:
    """A batch as Spark reported it. Times are in epoch milliseconds, rates in rows per second."""

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
    sources: tuple[SourceProgress, ...] = ()
    """Each source; empty in records of older versions."""
    watermarks: tuple[OperatorWatermark, ...] = ()
    """Each ``withWatermark`` of a query with several sources; empty if unknown."""

    def ran_at(self, moment_ms: int, slack_ms: int = 0) -> bool:
        """Return whether a time lies within this run of the batch. A rewound batch may have run more than once."""
        return self.at_ms <= moment_ms <= self.at_ms + self.duration_ms + slack_ms

    def to_line(self) -> str:
        """Return the record as a line of ``progress.jsonl``."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


Part = TypeVar("Part", SourceProgress, OperatorWatermark)


def parse_line(line: str) -> ProgressRecord | None:
    """Return the record in a line; None if the line is truncated or not a record.

    Unknown fields and numbers that are none are ignored.
    """
    try:
        values = json.loads(line)
        known: dict[str, Any] = {
            name: value for name, value in values.items() if isinstance(value, _FIELDS.get(name, ()))
        }
        record = ProgressRecord(**known)
    except (ValueError, TypeError, AttributeError):
        return None
    return replace(
        record, sources=_parts(SourceProgress, record.sources), watermarks=_parts(OperatorWatermark, record.watermarks)
    )


_PARTS = ("sources", "watermarks")


def _parts(kind: type[Part], values: Any) -> tuple[Part, ...]:
    """Return the parts of a record; none of them if one is not as this version writes it."""
    types = {one.name: _types_of(str(one.type)) for one in fields(kind)}
    try:
        found = [{name: value for name, value in part.items() if name in types} for part in values]
        if all(isinstance(value, types[name]) for part in found for name, value in part.items()):
            return tuple(kind(**part) for part in found)
    except (TypeError, AttributeError):
        pass
    return ()


def _types_of(annotation: str) -> tuple[type, ...]:
    is_optional = annotation.endswith("None")
    return (*_TYPES[annotation.removesuffix(" | None")], *((type(None),) if is_optional else ()))


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "dict[str, int]": (dict,),
}
_FIELDS = {
    one.name: _types_of(str(one.type)) if one.name not in _PARTS else (object,) for one in fields(ProgressRecord)
}


def read_progress(files: FileTree) -> dict[int, ProgressRecord]:
    """Return the latest record of each batch; empty if Headwater never recorded the query."""
    found: dict[int, ProgressRecord] = {}
    for path in (OLDER_FILE, PROGRESS_FILE):
        with suppress(OSError):
            records = map(parse_line, files.read(path).decode("utf-8", "replace").split("\n"))
            found |= {record.batch_id: record for record in records if record}
    return found


def newest_progress(files: FileTree, most: int) -> dict[int, ProgressRecord]:
    """Return the latest records of about ``most`` batches, by batch; on a local disk, only the end of the file is read."""
    found: dict[int, ProgressRecord] = {}
    for path in (PROGRESS_FILE, OLDER_FILE):
        lines = _last_lines(files, path, most - len(found))
        records = {record.batch_id: record for record in map(parse_line, lines) if record}
        found = records | found
        if len(found) >= most:
            break
    return dict(sorted(found.items()))


def _last_lines(files: FileTree, path: str, most: int) -> list[str]:
    local = files.local_path(path)
    try:
        if local is None:
            return files.read(path).decode("utf-8", "replace").removesuffix("\n").split("\n")[-most:]
        with local.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            length = _LINE_BYTES * most
            while True:
                start = max(0, size - length)
                file.seek(start)
                lines = file.read().split(b"\n")
                if start == 0 or len(lines) > most + 1:
                    return [line.decode("utf-8", "replace") for line in lines[-most - 1 :] if line]
                length *= 2
    except OSError:
        return []
