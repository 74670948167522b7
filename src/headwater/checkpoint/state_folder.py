"""The ``state`` folder from one listing of names: its stores, the versions that can be built, the batches to rewind to.

Pure: names in, versions and reasons out. A version is built from the newest snapshot not after it, or from nothing, and
the changes of every version since. In checkpoint format 2, file names carry an id and the commits say which id is valid;
where a commit is missing, any file of that version is accepted.
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


UniqueIds = Callable[[StoreKey, int], str | None]


@dataclass(frozen=True)
class StateTree:
    """The names below ``state/``, and what they say of every store."""

    names: Mapping[str, list[str]]
    unique_ids: UniqueIds
    _expected: dict[int | None, tuple[StoreKey, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def stores(self) -> dict[StoreKey, StoreFiles]:
        """Every store that has a folder on disk, in order."""
        found = {}
        for folder, names in self.names.items():
            key = store_at(folder, names)
            if key is not None:
                found[key] = self._files_of(key, names)
        return dict(sorted(found.items()))

    def _files_of(self, key: StoreKey, names: list[str]) -> StoreFiles:
        return StoreFiles.of(names, lambda version: self.unique_ids(key, version))

    @cached_property
    def operators(self) -> tuple[int, ...]:
        return tuple(sorted({key.operator_id for key in self.stores}))

    @cached_property
    def partitions(self) -> dict[int, frozenset[int]]:
        """The partitions that an operator has folders for."""
        return {
            operator: frozenset(key.partition_id for key in self.stores if key.operator_id == operator)
            for operator in self.operators
        }

    @cached_property
    def store_names(self) -> dict[int, tuple[str, ...]]:
        """The stores that an operator has in any partition."""
        return {
            operator: tuple(sorted({key.store_name for key in self.stores if key.operator_id == operator}))
            for operator in self.operators
        }

    def expected(self, shuffle_partitions: int | None) -> tuple[StoreKey, ...]:
        """The stores that a batch has to have, by the number of partitions that its configuration names.

        An operator with partition 0 alone is one that Spark does not spread (a total without a key, a limit).
        """
        if shuffle_partitions not in self._expected:
            self._expected[shuffle_partitions] = tuple(self._wanted(shuffle_partitions))
        return self._expected[shuffle_partitions]

    def _wanted(self, shuffle_partitions: int | None) -> Iterator[StoreKey]:
        for operator in self.operators:
            found = self.partitions[operator]
            spread = shuffle_partitions is not None and found != {0} and shuffle_partitions <= MOST_PARTITIONS
            for number in range(shuffle_partitions or 0) if spread else sorted(found):
                yield from (StoreKey(operator, number, name) for name in self.store_names[operator])

    def store(self, key: StoreKey) -> StoreFiles:
        """A store's files, none where it has no folder."""
        return self.stores.get(key) or StoreFiles()


def store_at(folder: str, names: list[str]) -> StoreKey | None:
    """The store whose files lie in a folder. A partition's own folder is a store only if it holds state files."""
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


MOST_PARTITIONS = 100_000


def missing_logs(kept: BatchId, offsets: Collection[int], commits: Collection[int], *, stateful: bool) -> str | None:
    """Which log file is lacking to go on after ``kept``, as a sentence; None when all are there."""
    if kept not in commits:
        return f"commits/{kept} is not there" if kept in offsets else f"batch {kept} is not in the logs"
    if kept not in offsets:
        return f"offsets/{kept} is not there"
    if kept == 0 or kept + 1 in offsets or kept - 1 in offsets:
        return None
    # Asynchronous progress tracking leaves gaps on purpose, in stateless queries only: any older neighbour will do.
    if not stateful and min(offsets) < kept:
        return None
    return f"neither offsets/{kept - 1} nor offsets/{kept + 1} is there, and Spark starts from two neighbours"


def missing_state(
    kept: BatchId, tree: StateTree, shuffle_partitions: int | None, *, most: int | None = None
) -> list[tuple[StoreKey, int]]:
    """The stores that cannot give the state as of ``kept``, each with the version whose file it lacks."""
    version = version_written_by(kept)
    lacking = []
    for key in tree.expected(shuffle_partitions):
        missing = tree.store(key).what_lacks(version)
        if missing is not None:
            lacking.append((key, missing))
            if most is not None and len(lacking) >= most:
                break
    return lacking


def state_obstacle(kept: BatchId, lacking: list[tuple[StoreKey, int]]) -> str | None:
    """The first lacking store as a sentence."""
    if not lacking:
        return None
    key, missing = lacking[0]
    version = version_written_by(kept)
    reason = f"state version {version} of {described(key)} cannot be rebuilt"
    if missing != version:
        reason += f": version {missing} is gone"
    others = len(lacking) - 1
    return f"{reason}, nor that of {others} other {'store' if others == 1 else 'stores'}" if others else reason


def described(key: StoreKey) -> str:
    return f"operator {key.operator_id}, store {key.store_name}, partition {key.partition_id}"
