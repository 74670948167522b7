"""A tree of files in memory, for tests and previews."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.checkpoint.filetree import Entry, tree_of


class MemoryTree:
    """A tree held in a dictionary: what tests hand to code that wants ``Files``."""

    is_local = False
    location = "memory:"

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = dict(contents or {})

    def read(self, path: str) -> bytes:
        try:
            return self.contents[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def exists(self, path: str) -> bool:
        return path in self.contents or any(held.startswith(f"{path}/") for held in self.contents)

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        below = {held[len(prefix) :]: data for held, data in self.contents.items() if held.startswith(prefix)}
        folders = {held.partition("/")[0] for held in below if "/" in held}
        listed = [Entry(name, True, 0, None) for name in folders]
        listed += [Entry(held, False, len(data), 0) for held, data in below.items() if "/" not in held]
        return sorted(listed, key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return tree_of(path for path in self.contents if not folder or path.startswith(f"{folder}/"))

    def write(self, path: str, data: bytes) -> None:
        self.contents[path] = data

    def move(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)
        del self.contents[source]

    def copy(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)

    def remove(self, path: str) -> None:
        self.read(path)
        del self.contents[path]

    def remove_folder(self, folder: str) -> None:
        for held in [path for path in self.contents if path.startswith(f"{folder}/")]:
            del self.contents[held]

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Objects are durable once they are written."""

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        """There are no folders here."""
