"""What a check looks at: one checkpoint, read once, with a clock that tests can set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OURS, is_temporary, join
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.logtext import entries_of, tree_of
from headwater.core.ids import StoreKey


@dataclass
class Scene:
    """``sink`` is the folder of a file sink, where it is known."""

    files: FileTree
    now_ms: int
    sink: FileTree | None = None
    _entries: dict[str, dict[str, Entry]] = field(default_factory=dict)

    @cached_property
    def history(self) -> History:
        return History(self.files)

    @property
    def logs(self) -> CheckpointLogs:
        return self.history.logs

    @cached_property
    def tree(self) -> dict[str, list[str]]:
        """Every folder of Spark's with the names of its files; our own folder is left out."""
        found = tree_of(self.files, "")
        return {folder: sorted(names) for folder, names in sorted(found.items()) if folder.split("/")[0] != OURS}

    def paths(self) -> Iterator[str]:
        """Every finished file of Spark's."""
        for folder, names in self.tree.items():
            yield from (join(folder, name) for name in names if not is_temporary(name))

    def has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self._names(folder)

    def _names(self, folder: str) -> frozenset[str]:
        return self._name_sets.get(folder, frozenset())

    @cached_property
    def _name_sets(self) -> dict[str, frozenset[str]]:
        return {folder: frozenset(names) for folder, names in self.tree.items()}

    def entry(self, path: str) -> Entry | None:
        """A file's size and time; its folder is looked at once."""
        folder, _, name = path.rpartition("/")
        if folder not in self._entries:
            self._entries[folder] = {entry.name: entry for entry in entries_of(self.files, folder)}
        return self._entries[folder].get(name)

    @property
    def last_committed(self) -> int | None:
        return self.logs.commits.latest

    @property
    def last_planned(self) -> int | None:
        return self.logs.offsets.latest

    @property
    def committed(self) -> tuple[int, ...]:
        return self.logs.commits.ids

    def stores_of(self, batch: int) -> tuple[StoreKey, ...]:
        """The stores that a batch has to have left its state in."""
        entry = self.logs.offsets.get(batch)
        return self.logs.state.expected(entry.shuffle_partitions if entry else None)
