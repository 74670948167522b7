"""The checkpoint that a run of ``fsck`` checks, read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import HEADWATER_FOLDER, is_temporary, join, parent_and_name
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.logtext import list_entries, list_tree
from headwater.core.ids import StoreKey


@dataclass
class CheckContext:
    """The input of every check. ``sink`` is the output folder of a file sink, if known."""

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
        """The file names in every folder, without Headwater's own folder."""
        found = list_tree(self.files, "")
        return {
            folder: sorted(names) for folder, names in sorted(found.items()) if folder.split("/")[0] != HEADWATER_FOLDER
        }

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files that are not temporary."""
        for folder, names in self.tree.items():
            yield from (join(folder, name) for name in names if not is_temporary(name))

    def has(self, path: str) -> bool:
        """Return whether a file exists."""
        folder, name = parent_and_name(path)
        return name in self._name_sets.get(folder, ())

    @cached_property
    def _name_sets(self) -> dict[str, frozenset[str]]:
        return {folder: frozenset(names) for folder, names in self.tree.items()}

    def entry(self, path: str) -> Entry | None:
        """Return the size and time of a file; None if it does not exist. Each folder is listed once."""
        folder, name = parent_and_name(path)
        if folder not in self._entries:
            self._entries[folder] = {entry.name: entry for entry in list_entries(self.files, folder)}
        return self._entries[folder].get(name)

    @property
    def last_committed(self) -> int | None:
        return self.logs.commits.latest

    @property
    def last_planned(self) -> int | None:
        return self.logs.offsets.latest

    @property
    def newest(self) -> int:
        """The newest batch in either log; -1 if there is none."""
        return max((-1 if last is None else last) for last in (self.last_committed, self.last_planned))

    @property
    def committed(self) -> tuple[int, ...]:
        return self.logs.commits.ids

    def again(self) -> CheckContext:
        """Return the same checkpoint, to be listed again: newer batches of a running query may explain a difference."""
        return CheckContext(self.files, self.now_ms, self.sink)

    def has_moved_on(self) -> bool:
        """Return whether the query has planned or committed batches, or removed old ones, since the logs were listed."""
        now = self.again().logs
        return (now.offsets.ids, now.commits.ids) != (self.logs.offsets.ids, self.logs.commits.ids)

    def stores_of(self, batch: int) -> tuple[StoreKey, ...]:
        """Return the stores in which a batch must have written its state."""
        return self.logs.expected_stores(batch)
