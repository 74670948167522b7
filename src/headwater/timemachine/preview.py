"""A tree as a change would leave it, to be looked at before anything moves. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.layout import join, parent_and_name
from headwater.timemachine.change import Move, Root, Step


class Preview:
    """``FileTree`` with some steps done in thought."""

    def __init__(self, files: FileTree, steps: Iterable[Step], root: Root = "checkpoint") -> None:
        self._files = files
        self._listed: dict[str, dict[str, Entry]] = {}
        self._now: dict[str, str | bytes | None] = {}
        """By path: where its bytes are read from, the bytes themselves, or None where it has gone."""
        for step in steps:
            if step.root != root:
                continue
            if isinstance(step, Move):
                self._now[step.target] = self._now.get(step.source, step.source)
                self._now[step.source] = None
            else:
                self._now[step.path] = step.data

    @property
    def location(self) -> str:
        return self._files.location

    @property
    def is_local(self) -> bool:
        return self._files.is_local

    def read(self, path: str) -> bytes:
        held = self._now.get(path, path)
        if held is None:
            raise FileNotFoundError(path)
        return held if isinstance(held, bytes) else self._files.read(held)

    def exists(self, path: str) -> bool:
        if path in self._now:
            return self._now[path] is not None
        return self._files.exists(path)

    def entries(self, folder: str) -> list[Entry]:
        found = {
            entry.name: entry for entry in self._files.entries(folder) if join(folder, entry.name) not in self._now
        }
        for path, held in self._now.items():
            place, name = parent_and_name(path)
            if held is None:
                continue
            if place == folder:
                found[name] = self._entry(name, held)
            elif place.startswith(f"{folder}/") or not folder:
                below = place[len(folder) + 1 if folder else 0 :].partition("/")[0]
                found.setdefault(below, Entry(below, True, 0, None))
        return sorted(found.values(), key=lambda entry: entry.name)

    def _entry(self, name: str, held: str | bytes) -> Entry:
        if isinstance(held, bytes):
            return Entry(name, False, len(held), None)
        return replace(self._entries_of(parent_and_name(held)[0])[parent_and_name(held)[1]], name=name)

    def _entries_of(self, folder: str) -> dict[str, Entry]:
        if folder not in self._listed:
            self._listed[folder] = {entry.name: entry for entry in self._files.entries(folder)}
        return self._listed[folder]

    def tree(self, folder: str) -> dict[str, list[str]]:
        found = {place: set(names) for place, names in self._files.tree(folder).items()}
        for path, held in self._now.items():
            place, name = parent_and_name(path)
            if folder and place != folder and not place.startswith(f"{folder}/"):
                continue
            if held is None:
                found.get(place, set()).discard(name)
            else:
                found.setdefault(place, set()).add(name)
        return {place: sorted(names) for place, names in found.items()}

    def write(self, path: str, data: bytes) -> NoReturn:
        raise _read_only(path, data)

    def move(self, source: str, target: str) -> NoReturn:
        raise _read_only(source, target)

    def copy(self, source: str, target: str) -> NoReturn:
        raise _read_only(source, target)

    def remove(self, path: str) -> NoReturn:
        raise _read_only(path)

    def remove_folder(self, folder: str) -> NoReturn:
        raise _read_only(folder)

    def sync_folders(self, folders: Iterable[str]) -> NoReturn:
        raise _read_only(folders)

    def drop_empty_folders(self, folders: Iterable[str]) -> NoReturn:
        raise _read_only(folders)


def _read_only(*_: object) -> ValueError:
    return ValueError("a preview can only be read")
