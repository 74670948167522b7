"""A tree of files in an object store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from glob import has_magic
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar

from headwater.checkpoint.filetree import Entry, FileTree, names_by_folder
from headwater.core.errors import HeadwaterError, ServiceUnreachable

BLOCK_BYTES = 8 << 20
S3_SCHEMES = ("s3", "s3a", "s3n")
CONDITION_FAILED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "pre-conditions")


Params = ParamSpec("Params")
Result = TypeVar("Result")


@contextmanager
def _access(files: FileTree) -> Iterator[None]:
    """Turn the errors of a store's client that are not errors of files into ``ServiceUnreachable``."""
    try:
        yield
    except (HeadwaterError, OSError):
        raise
    except Exception as error:
        raise unreachable(files, error) from error


def _accessing(
    method: Callable[Concatenate[ObjectTree, Params], Result],
) -> Callable[Concatenate[ObjectTree, Params], Result]:
    @functools.wraps(method)
    def called(self: ObjectTree, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        with _access(self):
            return method(self, *args, **kwargs)

    return called


class ObjectTree(FileTree):
    """A prefix in any store that fsspec supports. Writes are atomic; a move is a copy followed by a removal."""

    def __init__(self, url: str) -> None:
        import fsspec  # noqa: PLC0415  not needed for local checkpoints

        self._url = url
        self._scheme, _, rest = url.partition("://")
        self._system: Any = fsspec.filesystem("s3" if self._is_s3 else self._scheme, use_listings_cache=False)
        self._root = rest.rstrip("/")

    @property
    def location(self) -> str:
        return self._url

    @property
    def _is_s3(self) -> bool:
        return self._scheme in S3_SCHEMES

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        scheme = (like or "").partition("://")[0]
        if not (scheme.startswith(self._scheme) or (self._is_s3 and scheme in S3_SCHEMES)):
            scheme = "s3a" if self._is_s3 else self._scheme
        return f"{scheme}://{self._full(path)}"

    def subtree(self, folder: str) -> ObjectTree:
        return ObjectTree(f"{self._url.rstrip('/')}/{folder}")

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @_accessing
    def read(self, path: str) -> bytes:
        data: bytes = self._system.cat_file(self._full(path))
        return data

    def read_blocks(self, path: str) -> Iterator[bytes]:
        with _access(self), self._system.open(self._full(path), "rb", cache_type="none") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    @_accessing
    def read_range(self, path: str, start: int, size: int) -> bytes:
        try:
            data: bytes = self._system.cat_file(self._full(path), start=start, end=start + size)
        except OSError as error:
            if "InvalidRange" not in str(error) and "requested range" not in str(error).lower():
                raise
            return b""  # nothing begins there: the file ends before
        return data

    @_accessing
    def size(self, path: str) -> int:
        return int(self._system.size(self._full(path)))

    @_accessing
    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._full(path)))

    @_accessing
    def entries(self, folder: str) -> list[Entry]:
        try:
            listed = self._system.ls(self._full(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        base = self._full(folder)
        found = [_entry_of(item) for item in listed if item["name"].rstrip("/") != base]
        return sorted((entry for entry in found if entry.name), key=lambda entry: entry.name)

    @_accessing
    def tree(self, folder: str) -> dict[str, list[str]]:
        paths = (str(path)[len(self._root) + 1 :] for path in self._system.find(self._full(folder)))
        return names_by_folder(path for path in paths if not path.endswith("/"))  # s3a's placeholders for folders

    @_accessing
    def write(self, path: str, data: bytes) -> None:
        self._system.pipe_file(self._full(path), data)

    @_accessing
    def write_blocks(self, path: str, blocks: Iterable[bytes], modified_ms: int | None = None) -> None:  # noqa: ARG002
        """Write an object in parts, unless it is small. It appears when the last part has been written."""
        waiting = iter(blocks)
        first = next(waiting, b"")
        second = next(waiting, None)
        if second is None:
            self.write(path, first)
            return
        file = self._system.open(self._full(path), "wb", block_size=BLOCK_BYTES)
        try:
            for block in chain((first, second), waiting):
                file.write(block)
        except BaseException:
            file.discard()
            raise
        file.close()

    @property
    def can_create(self) -> bool:
        return self._is_s3

    @_accessing
    def create(self, path: str, data: bytes) -> None:
        if self.exists(path):  # some stores ignore the condition of the request
            raise FileExistsError(path)
        with _as_existing(path):
            self._system.pipe_file(self._full(path), data, mode="create")

    @_accessing
    def replace(self, path: str, data: bytes, expected: bytes) -> None:
        try:
            tag = self._system.info(self._full(path))["ETag"]
            found = self.read(path)
        except FileNotFoundError:
            raise FileExistsError(path) from None
        if found != expected:
            raise FileExistsError(path)
        with _as_existing(path):
            self._system.pipe_file(self._full(path), data, IfMatch=tag)

    @_accessing
    def move(self, source: str, target: str) -> None:
        if has_magic(self._full(source)):  # fsspec takes such a path for a pattern
            self.copy(source, target)
            self.remove(source)
        else:
            self._system.mv(self._full(source), self._full(target))

    @_accessing
    def copy(self, source: str, target: str) -> None:
        self._system.cp_file(self._full(source), self._full(target))

    @_accessing
    def remove(self, path: str) -> None:
        self._system.rm_file(self._full(path))

    @_accessing
    def remove_folder(self, folder: str) -> None:
        if has_magic(self._full(folder)):
            for path in self._system.find(self._full(folder)):
                self._system.rm_file(path)
            return
        try:
            self._system.rm(self._full(folder), recursive=True)
        except FileNotFoundError:
            return

    @_accessing
    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        """Remove the empty objects that s3a keeps as placeholders for folders without files."""
        for top in sorted({folder.split("/")[0] for folder in folders if "/" in folder}):
            objects = [str(path) for path in self._system.find(self._full(top))]
            in_use = {place for path in objects if not path.endswith("/") for place in _folders_above(path)}
            for path in objects:
                if path.endswith("/") and path.rstrip("/") not in {*in_use, self._full(top)}:
                    self._system.rm_file(path)


@contextmanager
def _as_existing(path: str) -> Iterator[None]:
    """Raise ``FileExistsError`` if the store refuses a write because of its condition."""
    try:
        yield
    except OSError as error:
        response = getattr(error.__cause__, "response", None) or {}
        code = str(response.get("Error", {}).get("Code") or error)
        if isinstance(error, FileExistsError) or any(one in code for one in CONDITION_FAILED):
            raise FileExistsError(path) from None
        raise


def _folders_above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _entry_of(item: dict[str, Any]) -> Entry:
    modified = item.get("LastModified") or item.get("mtime") or item.get("created")
    stamp = modified.timestamp() if isinstance(modified, datetime) else modified
    name = str(item["name"]).rstrip("/").rpartition("/")[2]
    return Entry(name, item["type"] == "directory", int(item.get("size") or 0), int(stamp * 1000) if stamp else None)


def unreachable(files: FileTree, error: Exception | str) -> ServiceUnreachable:
    """Return the error for a store that does not respond or denies access."""
    return ServiceUnreachable(
        "store-unreachable",
        f"cannot access {files.location}",
        evidence={"reason": first_line(error)},
        remedy="check the address and the credentials (for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_PROFILE)",
    )


def first_line(error: Exception | str) -> str:
    """Return what an error says, without details on further lines."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
