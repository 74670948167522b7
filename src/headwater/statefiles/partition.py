"""Read the records of one partition of a store: which files make up a version, and what they say about a target.

In checkpoint format 2, the commit records the id in the file names of its own version, and the changelog of that version
records the ids of the versions before it, back to a snapshot. Other files of these versions are left over from failed
tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.state_folder import Recipe, StoreFiles
from headwater.core.ids import BatchId, StoreKey, version_written_by
from headwater.statefiles.codecs import decompress
from headwater.statefiles.key_lookup import KeyFilter
from headwater.statefiles.live_rows import live_rows, live_rows_by_part
from headwater.statefiles.records import (
    DELETE_RANGE,
    Records,
    changelog_header,
    concat,
    detached,
    no_records,
    only_plain_records,
    parse_changelog,
    parse_plain,
    ranked,
    without_row_checksums,
)
from headwater.statefiles.refusals import UnknownFormat, corrupt_state, removed_state, unknown_format
from headwater.statefiles.stores import StateTarget

if TYPE_CHECKING:
    from headwater.statefiles.reader import StateReader


def recipe_for(files: FileTree, folder: str, store: StoreFiles, version: int) -> Recipe | None:
    """Return the files to read for a version of a store, in order; None if it cannot be rebuilt."""
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
        if any(file.name == snapshot for file in store.snapshots.get(version, ())):
            return Recipe(snapshot, tuple(reversed(changes)))
        change = f"{version}_{ids[version]}.changelog"
        if not any(file.name == change for file in store.changes.get(version, ())):
            return None
        changes.append(change)
        version -= 1
        if version > 0 and version not in ids:
            path = f"{folder}/{change}"
            try:
                lineage = changelog_header(decompress(files.read(path), path), path).lineage
            except FileNotFoundError:
                raise removed_state(path) from None
            ids |= {number: file_id for number, file_id in lineage if number not in ids}
    return Recipe(None, tuple(reversed(changes)))


class PartitionReader:
    """Reads a target's records from one store, undecoded. Keys do not include the id of the column family."""

    def __init__(self, reader: StateReader, target: StateTarget, key: StoreKey) -> None:
        self.reader, self.target, self.key = reader, target, key

    def rows(self, batch: int, keys: KeyFilter | None = None) -> Records:
        """Return the live rows as of a batch, of all keys or of those that a filter selects."""
        return live_rows(concat(self._parts(batch, keys)))

    def rows_in_parts(self, batch: int) -> list[Records]:
        """Return the live rows of all keys in parts, without copying large files into one buffer."""
        return live_rows_by_part(self._parts(batch, None))

    def _parts(self, batch: int, keys: KeyFilter | None) -> list[Records]:
        recipe = self.reader.recipe(self.key, batch)
        names = [name for name in (recipe.snapshot, *recipe.changes) if name is not None]
        return ranked([self._file_parts(name, batch, keys) for name in names])

    def changes(self, batch: int, keys: KeyFilter | None = None) -> Records | None:
        """Return the records that a batch itself wrote; None if the store has no delta or changelog for it."""
        version = version_written_by(BatchId(batch))
        file = self.reader.logs.state.store(self.key).changes_at(version)
        return None if file is None else concat(self._file_parts(file.name, batch, keys))

    def tables(self, batch: int) -> frozenset[str] | None:
        """Return the RocksDB tables of a batch's version; None unless that version is exactly a snapshot."""
        from headwater.statefiles.rocksdb_snapshot import snapshot_tables  # noqa: PLC0415  not every store has one

        recipe = self.reader.recipe(self.key, batch)
        if recipe.changes or recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            return None
        return snapshot_tables(self.reader.files, f"{self.key.folder}/{recipe.snapshot}")

    def table_records(self, paths: Iterable[str], batch: int) -> Records:
        """Return the records about this target in some RocksDB tables."""
        return concat([part for path in paths for part in self._read(path, batch, None)])

    def _file_parts(self, name: str, batch: int, keys: KeyFilter | None) -> list[Records]:
        """Return the records about this target in a file: one part per table of a snapshot, otherwise one part."""
        path = f"{self.key.folder}/{name}"
        if keys is None or not name.endswith(".zip"):
            return self._read(path, batch, keys)
        from headwater.statefiles.rocksdb_snapshot import snapshot_tables  # noqa: PLC0415  not every store has one

        try:
            tables = sorted(snapshot_tables(self.reader.files, path))
            return [part for table in tables for part in self._read(table, batch, keys)]
        except UnknownFormat:
            return self._read(path, batch, keys)

    def _read(self, path: str, batch: int, keys: KeyFilter | None) -> list[Records]:
        if keys is None:
            return [self._about_target(part, path, batch) for part in self._parsed(path, batch)]
        if path not in keys.selected:
            parts = [self._about_target(part, path, batch) for part in self._parsed(path, batch, keys)]
            keys.selected[path] = detached(concat([keys.select(part) for part in parts]))
        return [keys.selected[path]]

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
                from headwater.statefiles.rocksdb_snapshot import read_snapshot  # noqa: PLC0415  not every store has one
                from headwater.statefiles.sst import read_tables  # noqa: PLC0415

                only = None if exact is None else [self.key_prefix(batch) + key for key in exact]
                return read_snapshot(files, path) if path.endswith(".zip") else read_tables(files, [path], only)
            space = decompress(files.read(path), path)
            if keys and keys.needle and only_plain_records(space, path) and not space.holds(keys.needle):
                return []
            return [parse_changelog(space, path) if path.endswith(".changelog") else parse_plain(space, path)]
        except FileNotFoundError:
            raise removed_state(path) from None
        except (ValueError, IndexError) as error:
            raise corrupt_state(path, f"is corrupt: {error}") from None

    def key_prefix(self, batch: int) -> bytes:
        """Return the id of the column family that precedes the target's keys; nothing if there are no families."""
        number = None if self.target.family is None else self.family_id(batch)
        return b"" if number is None else number.to_bytes(2, "little", signed=True)

    def family_id(self, batch: int) -> int | None:
        """Return the id that precedes the keys of the target's column family; None if the store has no such family.

        Snapshots contain these ids, and Spark writes a snapshot whenever a family is new.
        """
        snapshots = self.reader.logs.state.store(self.key).snapshots
        version = version_written_by(BatchId(batch))
        for candidate in sorted(snapshots, key=lambda candidate: (candidate > version, abs(candidate - version))):
            for file in snapshots[candidate]:
                number = self._families(file.name).get(self.target.family or "")
                if number is not None:
                    return number
        if not snapshots:
            raise unknown_format(
                self.key.folder, "has no snapshot, and only a snapshot contains the ids of its column families"
            )
        return None

    def _families(self, name: str) -> Mapping[str, int]:
        from headwater.statefiles.rocksdb_snapshot import snapshot_families  # noqa: PLC0415  few stores have families

        path = f"{self.key.folder}/{name}"
        if path not in self.reader.families:
            self.reader.families[path] = snapshot_families(self.reader.files, path)
        return self.reader.families[path]


def in_family(records: Records, number: int) -> Records:
    """Return the records of a column family, without the id (int16 little-endian) before their keys."""
    chosen = records.take(records.keys.gather("<i2", records.key_start) == number)
    in_end_key = np.where(chosen.operation == DELETE_RANGE, 2, 0)
    return replace(
        chosen,
        key_start=chosen.key_start + 2,
        key_length=chosen.key_length - 2,
        value_start=chosen.value_start + in_end_key,
        value_length=chosen.value_length - in_end_key,
    )
