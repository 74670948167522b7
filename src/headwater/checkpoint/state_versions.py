"""Which versions of a state store its files can still build. Pure: names in, versions out.

A version is built from the newest snapshot not after it, or from nothing, and the changes of every version since. In
checkpoint format 2 file names carry an id, and the commits say which id is the true one; where a commit is gone, any
file of that version is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headwater.checkpoint.layout import StateFile, state_file

UniqueIdOf = Callable[[int], str | None]


def no_unique_ids(version: int) -> str | None:  # noqa: ARG001  the format-1 answer to every version
    return None


@dataclass(frozen=True)
class Recipe:
    """The files that build one version: a snapshot, or None to start empty, then the changes in order."""

    snapshot: str | None
    changes: tuple[str, ...]


@dataclass
class StoreFiles:
    """A store's files by version. Ask it what it can build, and from what."""

    snapshots: dict[int, list[StateFile]] = field(default_factory=dict)
    changes: dict[int, list[StateFile]] = field(default_factory=dict)
    unique_id_of: UniqueIdOf = no_unique_ids
    _known: dict[int, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], unique_id_of: UniqueIdOf = no_unique_ids) -> StoreFiles:
        found = cls(unique_id_of=unique_id_of)
        for name in names:
            if name[:1] == "." or name[-4:] == ".crc":
                continue
            held = state_file(name)
            if held is not None:
                by_version = found.snapshots if held.kind == "snapshot" else found.changes
                by_version.setdefault(held.version, []).append(held)
        return found

    @property
    def versions(self) -> list[int]:
        """Every version of which there is a file, whether it can be built or not."""
        return sorted(self.snapshots.keys() | self.changes.keys())

    @property
    def newest(self) -> int | None:
        return max(self.snapshots.keys() | self.changes.keys(), default=None)

    @property
    def has_unique_ids(self) -> bool:
        """Whether this store was written in checkpoint format 2."""
        return any(
            held.unique_id is not None
            for by_version in (self.snapshots, self.changes)
            for versions in by_version.values()
            for held in versions
        )

    def snapshot_at(self, version: int) -> StateFile | None:
        return self._true_one(self.snapshots.get(version), version)

    def changes_at(self, version: int) -> StateFile | None:
        return self._true_one(self.changes.get(version), version)

    def _true_one(self, candidates: list[StateFile] | None, version: int) -> StateFile | None:
        if not candidates:
            return None
        if len(candidates) == 1 and candidates[0].unique_id is None:
            return candidates[0]
        wanted = self.unique_id_of(version)
        if wanted is None:
            return candidates[0]
        return next((held for held in candidates if held.unique_id == wanted), None)

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
