"""Which files make a version of a store.

In checkpoint format 2 the commit names the id in the file names of its own version; the changelog of that version names
those of the versions before it, back to a snapshot. Other files of the same versions are leftovers of failed tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.state_folder import Recipe, StoreFiles
from headwater.core.ids import BatchId, StoreKey, version_written_by
from headwater.statefiles.codecs import decompress
from headwater.statefiles.keyfilter import KeyFilter
from headwater.statefiles.latest import surviving, surviving_parts
from headwater.statefiles.records import (
    DELETE_RANGE,
    Records,
    changelog_header,
    detached,
    no_records,
    only_plain_records,
    parse_changelog,
    parse_plain,
    ranked,
    together,
    without_row_checksums,
)
from headwater.statefiles.refusals import FormatUnknown, broken_state, unknown_format
from headwater.statefiles.stores import StateTarget

if TYPE_CHECKING:
    from headwater.statefiles.reader import StateReader


_HEADER_BYTES = 1 << 17


def recipe_for(files: FileTree, folder: str, store: StoreFiles, version: int) -> Recipe | None:
    """What to read for a version, in order; None when it cannot be built."""
    if not store.has_unique_ids or version <= 0:
        return store.recipe(version)
    unique_id = store.unique_id_of(version)
    if unique_id is None:
        return store.recipe(version)
    return _by_lineage(files, folder, store, version, unique_id)


def _by_lineage(files: FileTree, folder: str, store: StoreFiles, version: int, unique_id: str) -> Recipe | None:
    ids = {version: unique_id}
    changes: list[str] = []
    while version > 0:
        if version not in ids:
            return None
        snapshot = f"{version}_{ids[version]}.zip"
        if any(held.name == snapshot for held in store.snapshots.get(version, ())):
            return Recipe(snapshot, tuple(reversed(changes)))
        change = f"{version}_{ids[version]}.changelog"
        if not any(held.name == change for held in store.changes.get(version, ())):
            return None
        changes.append(change)
        version -= 1
        if version > 0 and version not in ids:
            path = f"{folder}/{change}"
            space = decompress(files.read(path), path)
            header = changelog_header(space.text(0, min(space.size, _HEADER_BYTES)), path)
            ids |= {held: held_id for held, held_id in header.lineage if held not in ids}
    return Recipe(None, tuple(reversed(changes)))


class TargetStore:
    """Undecoded records and rows. Keys are without the column family's number."""

    def __init__(self, reader: StateReader, target: StateTarget, key: StoreKey) -> None:
        self.reader, self.target, self.key = reader, target, key

    def rows(self, batch: int, keys: KeyFilter | None = None) -> Records:
        """What stands as of a batch, of all keys or of some."""
        return surviving(together(self._parts(batch, keys)))

    def rows_in_parts(self, batch: int) -> list[Records]:
        """The same, all keys, without bringing large files together in memory."""
        return surviving_parts(self._parts(batch, None))

    def _parts(self, batch: int, keys: KeyFilter | None) -> list[Records]:
        recipe = self.reader.recipe(self.key, batch)
        names = [name for name in (recipe.snapshot, *recipe.changes) if name is not None]
        return ranked([self._file_parts(name, batch, keys) for name in names])

    def changes(self, batch: int, keys: KeyFilter | None = None) -> Records | None:
        """What a batch's own file of changes says; None where the store has no such file for it."""
        version = version_written_by(BatchId(batch))
        held = self.reader.logs.state.store(self.key).changes_at(version)
        return None if held is None else together(self._file_parts(held.name, batch, keys))

    def tables(self, batch: int) -> frozenset[str] | None:
        """The paths of the tables that make a batch's version; None unless it is a RocksDB snapshot and no more."""
        from headwater.statefiles.rocksdb_snapshot import snapshot_tables  # noqa: PLC0415  not all stores have one

        recipe = self.reader.recipe(self.key, batch)
        if recipe.changes or recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            return None
        return snapshot_tables(self.reader.files, f"{self.key.folder}/{recipe.snapshot}")

    def table_records(self, paths: Sequence[str], batch: int) -> Records:
        """What some tables say about this target."""
        return together([part for path in paths for part in self._read(path, batch, None)])

    def _file_parts(self, name: str, batch: int, keys: KeyFilter | None) -> list[Records]:
        """One file's records about this target: a part for each table of a snapshot, else one."""
        path = f"{self.key.folder}/{name}"
        if keys is None or not name.endswith(".zip"):
            return self._read(path, batch, keys)
        from headwater.statefiles.rocksdb_snapshot import snapshot_tables  # noqa: PLC0415  not all stores have one

        try:
            tables = sorted(snapshot_tables(self.reader.files, path))
            return [part for table in tables for part in self._read(table, batch, keys)]
        except FormatUnknown:
            return self._read(path, batch, keys)

    def _read(self, path: str, batch: int, keys: KeyFilter | None) -> list[Records]:
        if keys is None:
            return [self._about_target(part, path, batch) for part in self._parsed(path, batch)]
        if path not in keys.picked:
            parts = [self._about_target(part, path, batch) for part in self._parsed(path, batch, keys)]
            keys.picked[path] = detached(together([keys.pick(part) for part in parts]))
        return [keys.picked[path]]

    def _about_target(self, records: Records, path: str, batch: int) -> Records:
        if self.reader.settings(batch).row_checksums:
            records = without_row_checksums(
                records,
                hdfs=path.endswith((".delta", ".snapshot")),
                multi_valued=self.target.is_list,
                deletes_too=not path.endswith((".zip", ".sst")),
            )
        if self.target.family is not None:
            number = self.family_id(batch)
            records = no_records() if number is None else in_family(records, number)
        return records

    def _parsed(self, path: str, batch: int, keys: KeyFilter | None = None) -> list[Records]:
        files, exact = self.reader.files, keys.exact if keys else None
        try:
            if path.endswith((".zip", ".sst")):
                from headwater.statefiles.rocksdb_snapshot import read_snapshot  # noqa: PLC0415  not all have one
                from headwater.statefiles.sst import read_tables  # noqa: PLC0415

                only = None if exact is None else [self._prefix(batch) + key for key in exact]
                return read_snapshot(files, path) if path.endswith(".zip") else read_tables(files, [path], only)
            space = decompress(files.read(path), path)
            if keys and keys.needle and only_plain_records(space, path) and not space.holds(keys.needle):
                return []
            return [parse_changelog(space, path) if path.endswith(".changelog") else parse_plain(space, path)]
        except FileNotFoundError:
            raise broken_state(path, "is not there any more; a running query may have removed it") from None
        except (ValueError, IndexError) as error:
            raise broken_state(path, f"cannot be read: {error}") from None

    def _prefix(self, batch: int) -> bytes:
        number = None if self.target.family is None else self.family_id(batch)
        return b"" if number is None else number.to_bytes(2, "little", signed=True)

    def family_id(self, batch: int) -> int | None:
        """The number before the keys of a column family; None when the store has no such family (yet).

        Snapshots say it, and Spark writes one whenever a family is new.
        """
        snapshots, version = self._snapshots, version_written_by(BatchId(batch))
        nearest = sorted(snapshots, key=lambda held: (held > version, abs(held - version)))
        for held in nearest:
            for name in snapshots[held]:
                number = self._families(name).get(self.target.family or "")
                if number is not None:
                    return number
        if not snapshots:
            raise unknown_format(self.key.folder, "has no snapshot, which alone would name its column families")
        return None

    @cached_property
    def _snapshots(self) -> dict[int, list[str]]:
        found = self.reader.logs.state.store(self.key).snapshots
        return {version: [held.name for held in files] for version, files in found.items()}

    def _families(self, name: str) -> Mapping[str, int]:
        from headwater.statefiles.rocksdb_snapshot import snapshot_families  # noqa: PLC0415  few stores have families

        path = f"{self.key.folder}/{name}"
        if path not in self.reader.families:
            self.reader.families[path] = snapshot_families(self.reader.files, path)
        return self.reader.families[path]


def in_family(records: Records, number: int) -> Records:
    """A column family's records, without the number (int16 little-endian) before their keys."""
    chosen = records.take(records.keys.gather("<i2", records.key_start) == number)
    in_end_key = np.where(chosen.operation == DELETE_RANGE, 2, 0)
    return replace(
        chosen,
        key_start=chosen.key_start + 2,
        key_length=chosen.key_length - 2,
        value_start=chosen.value_start + in_end_key,
        value_length=chosen.value_length - in_end_key,
    )
