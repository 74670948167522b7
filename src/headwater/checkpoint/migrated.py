"""Metadata of state as it was before migrations replaced it: ``_headwater/migrated/<batch>/<path>``.

Spark keeps one schema file for all versions of a store. A migration replaces it in the batch that it adds, and earlier
batches can only be read, forked and rewound to with the former file. A former file without contents stands for a path
at which there was none.

A migration that adds, removes or moves sources or stateful operators also has ``layout.json`` there. It keeps the former
offsets and source logs, and the state of removed operators, because Spark lists the folders of all operators.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, STATE, batch_id, join, parent_and_name
from headwater.checkpoint.logtext import json_object, list_tree, read_bytes, unreadable_file

FOLDER = f"{HEADWATER_FOLDER}/migrated"
_LAYOUT = "layout.json"


def former_path(batch: int, path: str) -> str:
    """Return where the former contents of a file are kept that the migration in a batch replaced."""
    return f"{FOLDER}/{batch}/{path}"


@dataclass(frozen=True)
class LayoutChange:
    """What a migration changed about where things are: the ids of the operators before and after it, and the sources."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    sources: bool = False

    @property
    def removed(self) -> tuple[int, ...]:
        """The operators whose folders are kept with the former metadata."""
        return tuple(one for one in self.before if one not in self.after)

    def to_bytes(self) -> bytes:
        """Return the contents of ``layout.json``."""
        return json.dumps({"before": self.before, "after": self.after, "sources": self.sources}).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> LayoutChange:
        """Return the parsed file; raise ``CheckpointUnreadable`` if it is corrupt."""
        value = json_object(data.decode("utf-8", "replace"), path)
        try:
            before, after = (tuple(int(one) for one in value[name]) for name in ("before", "after"))
        except (KeyError, TypeError, ValueError):
            raise unreadable_file("bad-json", path, "does not list the operators of a migration") from None
        return cls(before, after, value.get("sources") is True)


def layout_path(batch: int) -> str:
    """Return where the migration in a batch records what it changed about operators and sources."""
    return f"{FOLDER}/{batch}/{_LAYOUT}"


@dataclass(frozen=True)
class FormerMetadata:
    """The paths that migrations replaced, and what they changed about operators and sources, by the batch of each."""

    paths: Mapping[int, frozenset[str]] = field(default_factory=dict)
    layouts: Mapping[int, LayoutChange] = field(default_factory=dict)

    @classmethod
    def of(cls, files: FileTree) -> FormerMetadata:
        """List the former metadata of a checkpoint."""
        found: dict[int, set[str]] = {}
        layouts: dict[int, LayoutChange] = {}
        for folder, names in list_tree(files, FOLDER).items():
            number, _, place = folder.removeprefix(f"{FOLDER}/").partition("/")
            batch = batch_id(number)
            if batch is not None and place and names:
                found.setdefault(batch, set()).update(join(place, name) for name in names)
            elif batch is not None and _LAYOUT in names:
                path = layout_path(batch)
                layouts[batch] = LayoutChange.parse(read_bytes(files, path), path)
        return cls({batch: frozenset(found[batch]) for batch in sorted(found)}, dict(sorted(layouts.items())))

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

    def operators(self, batch: int) -> tuple[int, ...] | None:
        """Return the ids of the operators as of a batch; None if no migration changed them."""
        later = min((number for number in self.layouts if number > batch), default=None)
        if later is not None:
            return self.layouts[later].before
        return self.layouts[max(self.layouts)].after if self.layouts else None

    @property
    def sources_since(self) -> int:
        """The migration since which the sources have their present places; 0 if none changed them."""
        return max((number for number, one in self.layouts.items() if one.sources), default=0)

    def crossed(self, next_batch: int) -> list[int]:
        """Return the migrations from a batch on that changed operators or sources, oldest first."""
        return [number for number in self.layouts if number >= next_batch]

    def moved_state(self) -> Iterator[tuple[str, str]]:
        """Yield the files of operators that migrations removed or replaced: the path that each had, and where it is."""
        for number in self.layouts:
            for path in self.paths.get(number, ()):
                if path.startswith(f"{STATE}/"):
                    yield path, former_path(number, path)

    def names(self, folder: str, batch: int) -> Iterator[str]:
        """Yield the names of the files that a folder had as of a batch and that later migrations replaced."""
        for number in self.layouts:
            if number > batch:
                places = map(parent_and_name, self.paths.get(number, ()))
                yield from (name for place, name in places if place == folder)

    def period(self, batch: int) -> int:
        """Return how many migrations the state of a batch has behind it. Within a period, schemas are the same."""
        return sum(number <= batch for number in self.paths)
