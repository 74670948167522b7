"""Metadata of state as it was before migrations replaced it: ``_headwater/migrated/<batch>/<path>``.

Spark keeps one schema file for all versions of a store. A migration replaces it in the batch that it adds, and earlier
batches can only be read, forked and rewound to with the former file. A former file without contents stands for a path
at which there was none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, batch_id, join
from headwater.checkpoint.logtext import list_tree

FOLDER = f"{HEADWATER_FOLDER}/migrated"


def former_path(batch: int, path: str) -> str:
    """Return where the former contents of a file are kept that the migration in a batch replaced."""
    return f"{FOLDER}/{batch}/{path}"


@dataclass(frozen=True)
class FormerMetadata:
    """The paths that migrations replaced, by the batch that each migration added."""

    paths: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, files: FileTree) -> FormerMetadata:
        """List the former metadata of a checkpoint."""
        found: dict[int, set[str]] = {}
        for folder, names in list_tree(files, FOLDER).items():
            number, _, place = folder.removeprefix(f"{FOLDER}/").partition("/")
            batch = batch_id(number)
            if batch is not None and place:
                found.setdefault(batch, set()).update(join(place, name) for name in names)
        return cls({batch: frozenset(found[batch]) for batch in sorted(found)})

    def place(self, path: str, batch: int) -> str:
        """Return where the contents of a file as of a batch are: at its path, unless a later migration replaced it."""
        later = (number for number, paths in self.paths.items() if number > batch and path in paths)
        number = min(later, default=None)
        return path if number is None else former_path(number, path)

    def since(self, next_batch: int) -> Iterator[tuple[int, str]]:
        """Yield what migrations replaced from a batch on, oldest first: the batch and the path."""
        for number in sorted(self.paths):
            if number >= next_batch:
                yield from ((number, path) for path in sorted(self.paths[number]))

    def period(self, batch: int) -> int:
        """Return how many migrations the state of a batch has behind it. Within a period, schemas are the same."""
        return sum(number <= batch for number in self.paths)
