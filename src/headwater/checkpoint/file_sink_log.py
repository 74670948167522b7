"""``_spark_metadata`` beside a file sink's output: which data files each batch added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.checkpoint.compactible_log import LogNames
from headwater.checkpoint.files import Files
from headwater.checkpoint.layout import SINK_LOG
from headwater.checkpoint.logtext import LogText, entries_of, json_object, read_bytes, string, whole_number

NEWEST_VERSION = 1
VERSION_LINE = "v1"


@dataclass(frozen=True)
class SinkFile:
    """One data file of a sink; ``path`` is an absolute, percent-encoded URI."""

    path: str
    size: int
    action: str
    line: str


@dataclass(frozen=True)
class FileSinkEntries:
    text: LogText
    entries: tuple[SinkFile, ...]

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()


def parse_file_sink_log(data: bytes, path: str) -> FileSinkEntries:
    text = LogText.from_bytes(data, path)
    text.version(path, newest=NEWEST_VERSION)
    return FileSinkEntries(text, tuple(_entry(line, path) for line in text.body))


def log_with(entries: Iterable[SinkFile]) -> bytes:
    """A log file that holds just these entries, each as Spark wrote it."""
    return "\n".join([VERSION_LINE, *(entry.line for entry in entries)]).encode("utf-8")


def _entry(line: str, path: str) -> SinkFile:
    value = json_object(line, path)
    return SinkFile(
        string(value, "path", path), whole_number(value, "size", path, default=0), str(value.get("action", "add")), line
    )


class FileSinkLog:
    """The log of the sink whose output folder is ``files``."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.names = LogNames.of(entry.name for entry in entries_of(files, SINK_LOG) if not entry.is_folder)

    def path_of(self, number: int) -> str:
        return f"{SINK_LOG}/{self.names.by_id[number]}"

    def read(self, number: int) -> FileSinkEntries:
        path = self.path_of(number)
        return parse_file_sink_log(read_bytes(self.files, path), path)
