"""A tree of files in memory, for tests and for checkpoints that are only planned."""

from __future__ import annotations

from headwater.checkpoint.filetree import Entry, FileTree, names_by_folder


class MemoryTree(FileTree):
    """The in-memory implementation of ``FileTree``. It behaves like an object store."""

    location = "memory:"
    can_create = True

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = dict(contents or {})

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:  # noqa: ARG002  there is one scheme only
        return f"{self.location}/{path}".rstrip("/")

    def read(self, path: str) -> bytes:
        try:
            return self.contents[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def size(self, path: str) -> int:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return len(self.contents[path])

    def exists(self, path: str) -> bool:
        return path in self.contents or any(known.startswith(f"{path}/") for known in self.contents)

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        below = {path[len(prefix) :]: data for path, data in self.contents.items() if path.startswith(prefix)}
        folders = {path.partition("/")[0] for path in below if "/" in path}
        listed = [Entry(name, True, 0, None) for name in folders]
        listed += [Entry(path, False, len(data), 0) for path, data in below.items() if "/" not in path]
        return sorted(listed, key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return names_by_folder(path for path in self.contents if not folder or path.startswith(f"{folder}/"))

    def write(self, path: str, data: bytes) -> None:
        self.contents[path] = data

    def create(self, path: str, data: bytes) -> None:
        if path in self.contents:
            raise FileExistsError(path)
        self.contents[path] = data

    def replace(self, path: str, data: bytes, expected: bytes) -> None:
        if self.contents.get(path) != expected:
            raise FileExistsError(path)
        self.write(path, data)

    def move(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)
        del self.contents[source]

    def copy(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)

    def remove(self, path: str) -> None:
        self.read(path)
        del self.contents[path]

    def remove_folder(self, folder: str) -> None:
        for path in [path for path in self.contents if path.startswith(f"{folder}/")]:
            del self.contents[path]
