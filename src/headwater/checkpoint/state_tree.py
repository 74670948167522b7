"""The state folder as operators, partitions and stores, from one listing of names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.checkpoint.layout import LOG_FOLDER, SST_FOLDER, STATE, state_file
from headwater.checkpoint.state_versions import StoreFiles
from headwater.core.ids import DEFAULT_STORE, StoreKey

UniqueIds = Callable[[StoreKey, int], str | None]


@dataclass(frozen=True)
class StateTree:
    """The names below ``state/``, and what they say of every store."""

    names: Mapping[str, list[str]]
    unique_ids: UniqueIds
    _expected: dict[int | None, tuple[StoreKey, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def stores(self) -> dict[StoreKey, StoreFiles]:
        """Every store that has a folder on disk, in order."""
        found = {}
        for folder, names in self.names.items():
            key = store_at(folder, names)
            if key is not None:
                found[key] = self._files_of(key, names)
        return dict(sorted(found.items()))

    def _files_of(self, key: StoreKey, names: list[str]) -> StoreFiles:
        return StoreFiles.of(names, lambda version: self.unique_ids(key, version))

    @cached_property
    def operators(self) -> tuple[int, ...]:
        return tuple(sorted({key.operator_id for key in self.stores}))

    @cached_property
    def partitions(self) -> dict[int, frozenset[int]]:
        """The partitions that an operator has folders for."""
        return {
            operator: frozenset(key.partition_id for key in self.stores if key.operator_id == operator)
            for operator in self.operators
        }

    @cached_property
    def store_names(self) -> dict[int, tuple[str, ...]]:
        """The stores that an operator has in any partition."""
        return {
            operator: tuple(sorted({key.store_name for key in self.stores if key.operator_id == operator}))
            for operator in self.operators
        }

    def expected(self, shuffle_partitions: int | None) -> tuple[StoreKey, ...]:
        """The stores that a batch has to have, by the number of partitions that its configuration names.

        An operator with partition 0 alone is one that Spark does not spread (a total without a key, a limit).
        """
        if shuffle_partitions not in self._expected:
            self._expected[shuffle_partitions] = tuple(self._wanted(shuffle_partitions))
        return self._expected[shuffle_partitions]

    def _wanted(self, shuffle_partitions: int | None) -> Iterator[StoreKey]:
        for operator in self.operators:
            found = self.partitions[operator]
            spread = shuffle_partitions is not None and found != {0} and shuffle_partitions <= MOST_PARTITIONS
            for number in range(shuffle_partitions or 0) if spread else sorted(found):
                yield from (StoreKey(operator, number, name) for name in self.store_names[operator])

    def store(self, key: StoreKey) -> StoreFiles:
        """A store's files, none where it has no folder."""
        return self.stores.get(key) or StoreFiles()


def store_at(folder: str, names: list[str]) -> StoreKey | None:
    """The store whose files lie in a folder. A partition's own folder is a store only if it holds state files."""
    parts = folder.split("/")
    if len(parts) not in (3, 4) or parts[0] != STATE or not (_number(parts[1]) and _number(parts[2])):
        return None
    if len(parts) == 4:
        name = parts[3]
        if name in (SST_FOLDER, LOG_FOLDER) or name.startswith(("_", ".")):
            return None
        return StoreKey(int(parts[1]), int(parts[2]), name)
    if any(state_file(name) for name in names):
        return StoreKey(int(parts[1]), int(parts[2]), DEFAULT_STORE)
    return None


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


MOST_PARTITIONS = 100_000
