"""Records into a folder, as files that a file source can pick up: whole, in order, never seen half-written."""

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
    """Fills one file after the other; a file appears, by a rename, when it has its number of records.

    Names sort in the order of writing and modification times rise by at least a millisecond, which is what Spark's
    file source goes by. A folder that has files already is continued.
    """

    def __init__(
        self, folder: Path, *, stem: str, suffix: str, records_per_file: int, header: str | None = None
    ) -> None:
        self.folder = folder
        self.sent = 0
        self.files = 0
        self._stem, self._suffix, self._per_file = stem, suffix, records_per_file
        self._header = [] if header is None else [header.encode()]
        self._waiting: list[bytes] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left_behind in folder.glob(f".{stem}-*.writing"):
                left_behind.unlink()
            there = sorted(folder.glob(f"{stem}-*{suffix}"))
            self._newest_ns = max((file.stat().st_mtime_ns for file in there), default=0)
        except OSError as failure:
            raise self._refusal(failure) from None
        self._next = max((_number(file, stem) for file in there), default=-1) + 1

    def send_values(self, values: Sequence[bytes]) -> None:
        self._waiting += values
        self.sent += len(values)
        while len(self._waiting) >= self._per_file:
            self._land(self._waiting[: self._per_file])
            del self._waiting[: self._per_file]

    def flush(self) -> None:
        """Let what is waiting appear too, as a shorter file."""
        if self._waiting:
            self._land(self._waiting)
            self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, SetupProblem):
            self.flush()

    def _land(self, records: Sequence[bytes]) -> None:
        name = f"{self._stem}-{self._next:010d}{self._suffix}"
        # Spark's file source passes over names that start with a dot.
        writing = self.folder / f".{name}.writing"
        self._newest_ns = max(time.time_ns(), self._newest_ns + MILLISECOND_NS)
        try:
            writing.write_bytes(b"\n".join([*self._header, *records, b""]))
            os.utime(writing, ns=(self._newest_ns, self._newest_ns))
            writing.rename(self.folder / name)
        except OSError as failure:
            raise self._refusal(failure) from None
        self._next += 1
        self.files += 1

    def _refusal(self, failure: OSError) -> SetupProblem:
        return SetupProblem(
            "folder-unwritable",
            "cannot write files into the folder",
            evidence={"folder": self.folder, "reason": failure.strerror or failure},
            remedy="name a folder that can be written: --to files:data/in?format=json",
        )


def _number(file: Path, stem: str) -> int:
    digits = file.name.removeprefix(f"{stem}-").partition(".")[0]
    return int(digits) if digits.isdecimal() else -1
