"""Read the records of one partition of a store: which files make up a version, and what they say about a target.

In checkpoint format 2, the commit records the id in the file names of its own version, and the changelog of that version
records the ids of the versions before it, back to a snapshot. Other files of these versions are left over from failed
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
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
    parse_changelog,
    parse_plain,
    ranked,
    without_row_checksums,
)
from headwater.statefiles.refusals import UnknownFormat, corrupt_state, removed_state, unknown_format
from headwater.statefiles.stores import StateTarget

if TYPE_CHECKING:
    from headwater.statefiles.large_stores import NewerRecords, Part
    from headwater.statefiles.reader import StateReader
    from headwater.statefiles.sst_file import TableFile

# A store whose oldest file is larger is read in parts.
LARGE_BYTES = 4 << 20
BLOCKS_AT_ONCE = 4_000


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

    def large_parts(self, batch: int) -> Iterator[Part] | None:
        """Return functions that each return some of the live rows; None if the store is small, or has to be read at once.

        The functions can run in any order, and in threads.
        """
        from headwater.statefiles.large_stores import NewerRecords, only_puts_and_deletes  # noqa: PLC0415  large stores

        base, *newer = self._file_names(batch) or [""]
        if not base or self._size(base) < LARGE_BYTES:
            return None
        overlay = concat(ranked([self._file_parts(name, batch, None) for name in newer]))
        if not only_puts_and_deletes(overlay):
            return None
        hiding = NewerRecords(overlay)
        try:
            parts = self._base_parts(f"{self.key.folder}/{base}", batch, hiding)
        except UnknownFormat:
            return None
        return None if parts is None else chain(parts, [hiding.live])

    def _base_parts(self, path: str, batch: int, newer: NewerRecords) -> Iterator[Part] | None:
        from headwater.statefiles.flat_file import FlatFile  # noqa: PLC0415  large stores only
        from headwater.statefiles.large_stores import flat_parts, table_parts  # noqa: PLC0415

        def about_target(records: Records, path: str) -> Records:
            return self._about_target(records, path, batch)

        if not path.endswith(".zip"):
            return flat_parts(FlatFile(self.reader.files, path), newer, about_target)
        tables = self.reader.table_files(path)
        for table in tables:
            _ = table.index  # raises UnknownFormat here and not in a thread
        return table_parts(tables, newer, about_target)

    def _size(self, name: str) -> int:
        path = f"{self.key.folder}/{name}"
        try:
            if name.endswith(".zip"):
                return sum(table.size for table in self.reader.table_files(path))
            return self.reader.files.size(path)
        except FileNotFoundError:
            raise removed_state(path) from None

    def _file_names(self, batch: int) -> list[str]:
        recipe = self.reader.recipe(self.key, batch)
        return [name for name in (recipe.snapshot, *recipe.changes) if name is not None]

    def _parts(self, batch: int, keys: KeyFilter | None) -> list[Records]:
        return ranked([self._file_parts(name, batch, keys) for name in self._file_names(batch)])

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
        return concat([part for path in paths for part in self._read(path, batch)])

    def _file_parts(self, name: str, batch: int, keys: KeyFilter | None) -> list[Records]:
        """Return the records about this target in a file: one part per table of a snapshot, otherwise one part."""
        path = f"{self.key.folder}/{name}"
        if keys is None:
            return self._read(path, batch)
        if not name.endswith(".zip"):
            return [self._selected(path, batch, keys, lambda: self._flat_parts(path, keys, batch))]
        try:
            return [
                self._selected(table.path, batch, keys, lambda table=table: self._table_parts(table, keys, batch))  # type: ignore[misc]
                for table in self.reader.table_files(path)
            ]
        except UnknownFormat:
            return [self._selected(path, batch, keys, lambda: self._parsed(path))]

    def _read(self, path: str, batch: int) -> list[Records]:
        return [self._about_target(part, path, batch) for part in self._parsed(path)]

    def _selected(self, path: str, batch: int, keys: KeyFilter, parts: Callable[[], Iterable[Records]]) -> Records:
        """Return the records of a file that a filter selects, from the filter's cache if the file was read before."""
        if path not in keys.selected:
            with _errors_about(path):
                found = [detached(keys.select(self._about_target(part, path, batch))) for part in parts()]
            keys.selected[path] = detached(concat(found))
        return keys.selected[path]

    def _flat_parts(self, path: str, keys: KeyFilter, batch: int) -> Iterator[Records]:
        from headwater.statefiles.flat_file import FlatFile  # noqa: PLC0415  RocksDB snapshots need none

        file = FlatFile(self.reader.files, path)
        needle = keys.needle
        if needle and keys.exact and len(keys.exact) == 1 and not self.reader.settings(batch).row_checksums:
            return file.parts_with(needle, self.key_prefix(batch) + keys.exact[0])
        return file.parts_with(needle) if needle else file.parts()

    def _table_parts(self, table: TableFile, keys: KeyFilter, batch: int) -> Iterator[Records]:
        """Yield the records in the blocks that can contain the keys, some blocks at a time."""
        from headwater.statefiles.sst import read_blocks  # noqa: PLC0415  not every store has tables

        prefix = self.key_prefix(batch)
        if keys.exact is not None:
            blocks = table.blocks_with([prefix + key for key in keys.exact])
        elif keys.pattern is not None:
            known, mask = keys.pattern
            blocks = table.index.with_pattern(prefix + known, b"\xff" * len(prefix) + mask)
        else:
            blocks = np.arange(len(table.index))
        for first in range(0, len(blocks), BLOCKS_AT_ONCE):
            yield read_blocks(table, blocks[first : first + BLOCKS_AT_ONCE])

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

    def _parsed(self, path: str) -> list[Records]:
        files = self.reader.files
        with _errors_about(path):
            if path.endswith(".zip"):
                from headwater.statefiles.rocksdb_snapshot import read_snapshot  # noqa: PLC0415  not every store has one

                return read_snapshot(files, path)
            if path.endswith(".sst"):
                from headwater.statefiles.sst import read_tables  # noqa: PLC0415  not every store has tables

                return read_tables(files, [path])
            space = decompress(files.read(path), path)
            return [parse_changelog(space, path) if path.endswith(".changelog") else parse_plain(space, path)]

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


@contextmanager
def _errors_about(path: str) -> Iterator[None]:
    """Turn the failure to read a file into an error that names it."""
    try:
        yield
    except FileNotFoundError:
        raise removed_state(path) from None
    except (ValueError, IndexError) as error:
        raise corrupt_state(path, f"is corrupt: {error}") from None


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
