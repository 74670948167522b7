"""Write records to a folder as files for Spark's file source: each appears complete, and in order."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.core.errors import SetupProblem

SUFFIXES = {"json": ".json", "csv": ".csv", "text": ".txt"}
MILLISECOND_NS = 1_000_000


class FolderWriter:
    """Writes files one after the other. A file appears, by a rename, when it has its number of records.

    File names sort in the order of writing, and modification times increase by at least a millisecond: Spark's file
    source orders files by them. In a folder that already has files, numbering continues.
    """

    def __init__(
        self, folder: Path, *, stem: str, suffix: str, records_per_file: int, header: str | None = None
    ) -> None:
        self.folder = folder
        self.sent = 0
        self.files = 0
        self._stem, self._suffix, self._per_file = stem, suffix, records_per_file
        self._header = [] if header is None else [header.encode()]
        self._buffer: list[bytes] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for unfinished in folder.glob(f".{stem}-*.writing"):
                unfinished.unlink()
            existing = sorted(folder.glob(f"{stem}-*{suffix}"))
            self._newest_ns = max((file.stat().st_mtime_ns for file in existing), default=0)
        except OSError as error:
            raise self._refusal(error) from None
        self._next = max((_number(file, stem) for file in existing), default=-1) + 1

    def send_values(self, values: Sequence[bytes]) -> None:
        """Add records, and write every file that is full."""
        self._buffer += values
        self.sent += len(values)
        while len(self._buffer) >= self._per_file:
            self._write_file(self._buffer[: self._per_file])
            del self._buffer[: self._per_file]

    def flush(self) -> None:
        """Write the remaining records as a shorter file."""
        if self._buffer:
            self._write_file(self._buffer)
            self._buffer = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, SetupProblem):
            self.flush()

    def _write_file(self, records: Sequence[bytes]) -> None:
        name = f"{self._stem}-{self._next:010d}{self._suffix}"
        # Spark's file source ignores names that start with a dot.
        draft = self.folder / f".{name}.writing"
        self._newest_ns = max(time.time_ns(), self._newest_ns + MILLISECOND_NS)
        try:
            draft.write_bytes(b"\n".join([*self._header, *records, b""]))
            os.utime(draft, ns=(self._newest_ns, self._newest_ns))
            draft.rename(self.folder / name)
        except OSError as error:
            raise self._refusal(error) from None
        self._next += 1
        self.files += 1

    def _refusal(self, error: OSError) -> SetupProblem:
        return SetupProblem(
            "folder-unwritable",
            "cannot write files to the folder",
            evidence={"folder": self.folder, "reason": error.strerror or error},
            remedy="choose another folder: --to files:data/in?format=json",
        )


def _number(file: Path, stem: str) -> int:
    digits = file.name.removeprefix(f"{stem}-").partition(".")[0]
    return int(digits) if digits.isdecimal() else -1
