"""Which versions of a state store its files can still build. Pure: names in, versions out.

A version is built from the newest snapshot not after it, or from nothing, and the changes of every version since. In
checkpoint format 2 file names carry an id, and the commits say which id is the true one; where a commit is gone, any
file of that version is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from headwater.checkpoint.layout import CHANGES_SUFFIXES, SNAPSHOT_SUFFIXES, Kind, StateFile, state_file

UniqueIdOf = Callable[[int], str | None]


def no_unique_ids(version: int) -> str | None:  # noqa: ARG001  the format-1 answer to every version
    return None


@dataclass(frozen=True)
class Recipe:
    """The files that build one version: a snapshot, or None to start empty, then the changes in order."""

    snapshot: str | None
    changes: tuple[str, ...]


class StoreFiles:
    """A store's files. Ask it what it can build, and from what.

    Names are looked up as long as that is enough, and taken apart only when it is not: folders can be large.
    """

    def __init__(self, names: Iterable[str] = (), unique_id_of: UniqueIdOf = no_unique_ids) -> None:
        self._names = frozenset(names)
        self._known: dict[int, bool] = {}
        self.unique_id_of = unique_id_of

    @classmethod
    def of(cls, names: Iterable[str], unique_id_of: UniqueIdOf = no_unique_ids) -> StoreFiles:
        return cls(names, unique_id_of)

    @cached_property
    def _by_kind(self) -> dict[str, dict[int, list[StateFile]]]:
        found: dict[str, dict[int, list[StateFile]]] = {"snapshot": {}, "changes": {}}
        for name in sorted(self._names):
            held = state_file(name)
            if held is not None:
                found[held.kind].setdefault(held.version, []).append(held)
        return found

    @property
    def snapshots(self) -> dict[int, list[StateFile]]:
        """Every snapshot by version; several for one version only in format 2."""
        return self._by_kind["snapshot"]

    @property
    def changes(self) -> dict[int, list[StateFile]]:
        """Every file of changes by version."""
        return self._by_kind["changes"]

    @cached_property
    def versions(self) -> list[int]:
        """Every version of which there is a file, whether it can be built or not."""
        return sorted(self.snapshots.keys() | self.changes.keys())

    @property
    def newest(self) -> int | None:
        return self.versions[-1] if self.versions else None

    @cached_property
    def has_unique_ids(self) -> bool:
        """Whether this store was written in checkpoint format 2."""
        return any("_" in name and (held := state_file(name)) and held.unique_id for name in self._names)

    def snapshot_at(self, version: int) -> StateFile | None:
        return self._true_one(version, SNAPSHOT_SUFFIXES, "snapshot")

    def changes_at(self, version: int) -> StateFile | None:
        return self._true_one(version, CHANGES_SUFFIXES, "changes")

    def _true_one(self, version: int, suffixes: tuple[str, str], kind: Kind) -> StateFile | None:
        wanted = self.unique_id_of(version) if self.has_unique_ids else None
        if self.has_unique_ids and wanted is None:
            candidates = self._by_kind[kind].get(version)
            return candidates[0] if candidates else None
        stem = str(version) if wanted is None else f"{version}_{wanted}"
        for suffix in suffixes:
            if stem + suffix in self._names:
                return StateFile(stem + suffix, version, kind, wanted)
        return None

    def can_build(self, version: int) -> bool:
        """Version 0 is the empty store, which is always to be had."""
        walked = []
        while version not in self._known:
            if version <= 0 or self.snapshot_at(version):
                self._known[version] = True
            elif not self.changes_at(version):
                self._known[version] = False
            else:
                walked.append(version)
                version -= 1
        for step in walked:
            self._known[step] = self._known[version]
        return self._known[version]

    def recipe(self, version: int) -> Recipe | None:
        """What to read, in order, to have a version; None when it cannot be built."""
        if not self.can_build(version):
            return None
        changes: list[str] = []
        while version > 0:
            snapshot = self.snapshot_at(version)
            if snapshot:
                return Recipe(snapshot.name, tuple(reversed(changes)))
            change = self.changes_at(version)
            assert change is not None
            changes.append(change.name)
            version -= 1
        return Recipe(None, tuple(reversed(changes)))

    def what_lacks(self, version: int) -> int | None:
        """The version whose file is missing when ``version`` cannot be built, None when it can."""
        while not self.can_build(version):
            if not self.changes_at(version):
                return version
            version -= 1
        return None

    def nearest_buildable(self, upto: int) -> int | None:
        """The newest version not after ``upto``, above 0, that can be built."""
        return next((held for held in reversed(self.versions) if held <= upto and self.can_build(held)), None)


def buildable_versions(names: Iterable[str], unique_id_of: UniqueIdOf = no_unique_ids) -> frozenset[int]:
    """Every version above 0 that a store with these file names can build."""
    store = StoreFiles.of(names, unique_id_of)
    return frozenset(version for version in store.versions if store.can_build(version))
