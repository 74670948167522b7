"""Collect records and write them in groups of a fixed size, as files or commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from headwater.core.errors import HeadwaterError


class BufferedWriter(ABC):
    """Writes a group as soon as it is full. As a context manager, it writes the rest unless writing itself has failed."""

    def __init__(self, group_size: int) -> None:
        self.sent = 0
        self._group_size = group_size
        self._buffer: list[bytes] = []

    def send_values(self, values: Sequence[bytes]) -> None:
        """Add records, and write every group that is full."""
        self._buffer += values
        self.sent += len(values)
        while len(self._buffer) >= self._group_size:
            self._write_group(self._buffer[: self._group_size])
            del self._buffer[: self._group_size]

    def flush(self) -> None:
        """Write the remaining records as a smaller group."""
        if self._buffer:
            self._write_group(self._buffer)
            self._buffer = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, HeadwaterError):
            self.flush()

    @abstractmethod
    def _write_group(self, records: Sequence[bytes]) -> None:
        """Write records, which are never none."""
