"""The ``state`` folder from one listing of names: its stores, and the versions that can be rebuilt.

A version is rebuilt from the newest snapshot up to it, or from an empty store, and the changes of every version since.
In checkpoint format 2, file names contain an id and the commits record which id is valid; without a commit, any file
of the version is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.checkpoint.layout import (
    CHANGES_SUFFIXES,
    LOG_FOLDER,
    SNAPSHOT_SUFFIXES,
    SST_FOLDER,
    STATE,
    Kind,
    StateFile,
    state_file,
)
from headwater.core.ids import DEFAULT_STORE, BatchId, StoreKey, version_written_by
from headwater.core.text import count

MOST_PARTITIONS = 100_000

UniqueIdOf = Callable[[int], str | None]
UniqueIds = Callable[[StoreKey, int], str | None]


def no_unique_ids(version: int) -> str | None:  # noqa: ARG001  format 1 has no ids
    """Return None for every version: file names contain no ids."""
    return None


@dataclass(frozen=True)
class Recipe:
    """The files that rebuild a version: a snapshot, or None to start empty, and the changes in order."""

    snapshot: str | None
    changes: tuple[str, ...]


class StoreFiles:
    """The files of a store, and the versions that they can rebuild.

    Folders can be large, so names are looked up where possible and parsed only where necessary.
    """

    def __init__(self, names: Iterable[str] = (), unique_id_of: UniqueIdOf = no_unique_ids) -> None:
        self._names = frozenset(names)
        self._known: dict[int, bool] = {}
        self.unique_id_of = unique_id_of

    @cached_property
    def _by_kind(self) -> dict[str, dict[int, list[StateFile]]]:
        found: dict[str, dict[int, list[StateFile]]] = {"snapshot": {}, "changes": {}}
        for name in sorted(self._names):
            file = state_file(name)
            if file is not None:
                found[file.kind].setdefault(file.version, []).append(file)
        return found

    @property
    def snapshots(self) -> dict[int, list[StateFile]]:
        """The snapshots by version. Only format 2 can have several for a version."""
        return self._by_kind["snapshot"]

    @property
    def changes(self) -> dict[int, list[StateFile]]:
        """The files of changes by version."""
        return self._by_kind["changes"]

    @cached_property
    def versions(self) -> list[int]:
        """Every version that has a file, whether it can be rebuilt or not."""
        return sorted(self.snapshots.keys() | self.changes.keys())

    @cached_property
    def has_unique_ids(self) -> bool:
        """Whether this store was written in checkpoint format 2."""
        return any("_" in name and (file := state_file(name)) and file.unique_id for name in self._names)

    def snapshot_at(self, version: int) -> StateFile | None:
        """Return the valid snapshot of a version."""
        return self._valid_file(version, SNAPSHOT_SUFFIXES, "snapshot")

    def changes_at(self, version: int) -> StateFile | None:
        """Return the valid file of changes of a version."""
        return self._valid_file(version, CHANGES_SUFFIXES, "changes")

    def _valid_file(self, version: int, suffixes: tuple[str, str], kind: Kind) -> StateFile | None:
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
        """Return whether a version can be rebuilt. Version 0 is the empty store and always can."""
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
        """Return the files that rebuild a version; None if it cannot be rebuilt."""
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

    def missing_version(self, version: int) -> int | None:
        """Return the version whose missing file prevents ``version`` from being rebuilt; None if it can be rebuilt."""
        while not self.can_build(version):
            if not self.changes_at(version):
                return version
            version -= 1
        return None

    def nearest_buildable(self, upto: int) -> int | None:
        """Return the newest version above 0 and up to ``upto`` that can be rebuilt; None if there is none."""
        return next(
            (version for version in reversed(self.versions) if version <= upto and self.can_build(version)), None
        )


@dataclass(frozen=True)
class StateTree:
    """The names below ``state/``, and the stores that they form."""

    names: Mapping[str, list[str]]
    unique_ids: UniqueIds
    _expected: dict[int | None, tuple[StoreKey, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def stores(self) -> dict[StoreKey, StoreFiles]:
        """Every store that has a folder, in order."""
        found = {}
        for folder, names in self.names.items():
            key = store_at(folder, names)
            if key is not None:
                found[key] = self._files_of(key, names)
        return dict(sorted(found.items()))

    def _files_of(self, key: StoreKey, names: list[str]) -> StoreFiles:
        return StoreFiles(names, lambda version: self.unique_ids(key, version))

    @cached_property
    def operators(self) -> tuple[int, ...]:
        return tuple(sorted({key.operator_id for key in self.stores}))

    @cached_property
    def partitions(self) -> dict[int, frozenset[int]]:
        """The partitions of each operator that have a folder."""
        return {
            operator: frozenset(key.partition_id for key in self.stores if key.operator_id == operator)
            for operator in self.operators
        }

    @cached_property
    def store_names(self) -> dict[int, tuple[str, ...]]:
        """The stores that each operator has in any partition."""
        return {
            operator: tuple(sorted({key.store_name for key in self.stores if key.operator_id == operator}))
            for operator in self.operators
        }

    def expected(self, shuffle_partitions: int | None) -> tuple[StoreKey, ...]:
        """Return the stores that a batch must have, given the number of partitions in its configuration.

        An operator that has only partition 0 is one that Spark never distributes: a total without a key, or a limit.
        """
        if shuffle_partitions not in self._expected:
            self._expected[shuffle_partitions] = tuple(self._expected_keys(shuffle_partitions))
        return self._expected[shuffle_partitions]

    def _expected_keys(self, shuffle_partitions: int | None) -> Iterator[StoreKey]:
        for operator in self.operators:
            found = self.partitions[operator]
            distributed = shuffle_partitions is not None and found != {0} and shuffle_partitions <= MOST_PARTITIONS
            for number in range(shuffle_partitions or 0) if distributed else sorted(found):
                yield from (StoreKey(operator, number, name) for name in self.store_names[operator])

    def store(self, key: StoreKey) -> StoreFiles:
        """Return the files of a store; none if it has no folder."""
        return self.stores.get(key) or StoreFiles()


def store_at(folder: str, names: list[str]) -> StoreKey | None:
    """Return the store in a folder. A partition's own folder is a store only if it contains state files."""
    parts = folder.split("/")
    if len(parts) not in (3, 4) or parts[0] != STATE or not (_number(parts[1]) and _number(parts[2])):
        return None
    if len(parts) == 4:
        name = parts[3]
        if name in (SST_FOLDER, LOG_FOLDER) or name.startswith(("_", ".")):
            return None
        return StoreKey(int(parts[1]), int(parts[2]), name)
    if any(state_file(name) for name in names):
        return StoreKey(int(parts[1]), int(parts[2]), DEFAULT_STORE)
    return None


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def missing_logs(kept: BatchId, offsets: Collection[int], commits: Collection[int], *, stateful: bool) -> str | None:
    """Return a clause about the missing log file that prevents resuming after ``kept``; None if none is missing."""
    if kept not in commits:
        return f"commits/{kept} is missing" if kept in offsets else f"batch {kept} is not in the logs"
    if kept not in offsets:
        return f"offsets/{kept} is missing"
    if kept == 0 or kept + 1 in offsets or kept - 1 in offsets:
        return None
    # Asynchronous progress tracking, which only stateless queries can use, leaves gaps: any older offsets suffice.
    if not stateful and min(offsets) < kept:
        return None
    return f"offsets/{kept - 1} and offsets/{kept + 1} are both missing, and Spark needs one of them to start"


def missing_state(kept: BatchId, tree: StateTree, expected: Iterable[StoreKey]) -> list[tuple[StoreKey, int]]:
    """Return the stores whose state as of ``kept`` cannot be rebuilt, each with the version whose file is missing."""
    version = version_written_by(kept)
    found = ((key, tree.store(key).missing_version(version)) for key in expected)
    return [(key, missing) for key, missing in found if missing is not None]


def state_obstacle(kept: BatchId, stores: list[tuple[StoreKey, int]]) -> str | None:
    """Return a clause about the first of the stores that ``missing_state`` found; None if it found none."""
    if not stores:
        return None
    key, missing = stores[0]
    version = version_written_by(kept)
    reason = f"state version {version} of {key} cannot be rebuilt"
    if missing != version:
        reason += f": version {missing} is missing"
    others = len(stores) - 1
    return f"{reason}; the same applies to {count(others, 'other store')}" if others else reason
