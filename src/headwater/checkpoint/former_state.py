"""The state of earlier batches after migrations that removed or moved stateful operators.

Spark lists the folders of all operators, so a migration takes the folder of a removed one away. Readers of earlier batches
still find its files at the paths that they had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.checkpoint.filetree import Entry, FileTree, ReadOnlyTree
from headwater.checkpoint.layout import parent_and_name
from headwater.checkpoint.operator_metadata import OperatorMetadata
from headwater.core.ids import StoreKey


def with_former_names(names: Mapping[str, list[str]], paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the file names by folder together with those of some paths."""
    found = {folder: set(present) for folder, present in names.items()}
    for path in paths:
        folder, name = parent_and_name(path)
        found.setdefault(folder, set()).add(name)
    return {folder: sorted(found[folder]) for folder in sorted(found)}


def recorded_stores(metadata: OperatorMetadata, partitions: int | None) -> Iterator[StoreKey]:
    """Yield the stores that an operator records. Its folder may contain those of one that was there before."""
    for store in metadata.stores:
        total = store.partitions if store.partitions == 1 or partitions is None else partitions
        yield from (StoreKey(metadata.operator_id, number, store.name) for number in range(total))


class WithFormer(ReadOnlyTree):
    """A read-only view of a checkpoint in which some former files are at the paths that they had."""

    def __init__(self, files: FileTree, places: Mapping[str, str]) -> None:
        self._files, self._places = files, places

    @property
    def location(self) -> str:
        return self._files.location

    @property
    def is_local(self) -> bool:
        return self._files.is_local

    def local_path(self, path: str = "") -> Path | None:
        return self._files.local_path(self._place(path))

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return self._files.spark_uri(path, like=like)

    def read(self, path: str) -> bytes:
        return self._files.read(self._place(path))

    def exists(self, path: str) -> bool:
        return self._files.exists(self._place(path))

    def entries(self, folder: str) -> list[Entry]:
        found = {entry.name: entry for entry in self._files.entries(folder)}
        places = [place for path, place in self._places.items() if parent_and_name(path)[0] == folder]
        for parent in {parent_and_name(place)[0] for place in places}:
            found = {entry.name: entry for entry in self._files.entries(parent)} | found
        return sorted(found.values(), key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return self._files.tree(folder)

    def _place(self, path: str) -> str:
        return self._places[path] if path in self._places and not self._files.exists(path) else path
