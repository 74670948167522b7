"""The logs that a file source (``sources/N``) and a file sink (``_spark_metadata``) keep.

One file for each id; now and then a ``.compact`` file repeats everything up to its id, and older files may then go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from headwater.checkpoint.layout import COMPACT, log_id


@dataclass(frozen=True)
class LogNames:
    """The names in such a log's folder, by id. Pure: made from a listing."""

    by_id: dict[int, str]
    duplicates: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> LogNames:
        by_id: dict[int, str] = {}
        duplicates = []
        for name in sorted(names):
            number = log_id(name)
            if number is None:
                continue
            if number in by_id:
                duplicates.append(name)
            if number not in by_id or name.endswith(COMPACT):
                by_id[number] = name
        return cls(by_id, tuple(duplicates))

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.by_id))

    @cached_property
    def compact_ids(self) -> tuple[int, ...]:
        return tuple(number for number in self.ids if self.is_compact(number))

    @property
    def latest(self) -> int | None:
        return self.ids[-1] if self.ids else None

    def is_compact(self, number: int) -> bool:
        return self.by_id[number].endswith(COMPACT)

    def _start_for(self, number: int) -> int:
        return max((compact for compact in self.compact_ids if compact <= number), default=0)

    def needed_for(self, number: int) -> tuple[int, ...]:
        """The ids on disk that together hold everything up to ``number``: the last compact one and all after it."""
        start = self._start_for(number)
        return tuple(held for held in self.ids if start <= held <= number)

    def missing_for(self, number: int) -> tuple[int, ...]:
        """The first few ids that belong among them and are not on disk."""
        held = set(self.needed_for(number))
        lacking: list[int] = []
        for candidate in range(self._start_for(number), number + 1):
            if len(held) + len(lacking) > number - self._start_for(number) or len(lacking) == MOST_REPORTED:
                break
            if candidate not in held:
                lacking.append(candidate)
        return tuple(lacking)

    def holder_of(self, number: int) -> str | None:
        """The name of a file with the entries of one id: its own, or the next compact one after it."""
        if number in self.by_id:
            return self.by_id[number]
        later = next((compact for compact in self.compact_ids if compact > number), None)
        return None if later is None else self.by_id[later]


MOST_REPORTED = 20
