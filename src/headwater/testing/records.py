"""What a test feeds to a job: records, raw lines, files, and crashes among them."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from headwater.jobs.endpoints import Decoding
from headwater.testing.kafka_feed import feeds_records, record_line


class Crash(Enum):
    """The moment at which the job crashes while it processes the feed."""

    BEFORE_BATCH = "after the batch was planned, before it ran"
    AFTER_OUTPUT = "after the output was written, before the batch was committed"
    AFTER_COMMIT = "after the batch was committed"


Fed = Mapping[str, Any] | str | bytes | Path


def as_lines(items: Sequence[Fed], decoding: Decoding, columns: Sequence[str]) -> list[str]:
    """Return the lines of a feed. Rows are encoded in the source's format; strings are raw lines; paths are files of lines.

    Bytes are the value of a single record.
    """
    lines: list[str] = []
    for item in items:
        match item:
            case Path():
                lines += as_lines(item.read_text(encoding="utf-8").splitlines(), decoding, columns)
            case _ if feeds_records(decoding):
                lines.append(record_line(item, decoding, lambda row: _encode(row, decoding, columns)))
            case bytes():
                lines.append(item.decode())
            case str():
                lines.append(item)
            case _:
                lines.append(_encode(item, decoding, columns))
    return lines


def _encode(row: Mapping[str, Any], decoding: Decoding, columns: Sequence[str]) -> str:
    match decoding.format:
        case "csv":
            out = io.StringIO()
            csv.writer(out, lineterminator="").writerow([_plain(row.get(name)) for name in columns])
            return out.getvalue()
        case "text":
            return str(next(iter(row.values())))
        case _:
            return json.dumps(row, default=_json_text, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date | datetime) else value


def _json_text(value: Any) -> str:
    """Return the text that stands for a value in JSON: Spark reads times, decimals and bytes from text."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    text = _plain(value)
    if text is value:
        raise TypeError(f"a row with a value of the type {type(value).__name__} cannot be fed as JSON")
    return str(text)


class Inbox:
    """The folder that the job reads as one of its sources. Each feed is one file and so becomes one micro-batch."""

    def __init__(self, folder: Path, source: str = "") -> None:
        self.folder = folder / (f"inbox-{source}" if source else "inbox")
        self._draft = folder / "next"
        self.folder.mkdir(parents=True)
        self.lines: list[list[str]] = []

    def put(self, lines: Sequence[str]) -> None:
        """Add a file atomically. Each is a second newer than the previous one, because Spark reads the oldest first."""
        number = len(self.lines)
        self._draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(self._draft, (1_000_000_000 + number, 1_000_000_000 + number))
        self._draft.rename(self.folder / f"{number:06d}.txt")
        self.lines.append(list(lines))
