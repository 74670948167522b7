"""What a restore point of a batch consists of: everything that a rewind to the batch needs, if Spark had removed all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.layout import (
    COMMITS,
    COMPACT,
    JOB_FILE,
    LOG_FOLDER,
    METADATA,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    SST_FOLDER,
    is_temporary,
    join,
    log_id,
    parent_and_name,
    state_file,
)
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.migrated import former_path, layout_path
from headwater.checkpoint.rocksdb_zip import open_snapshot_zip
from headwater.checkpoint.state_folder import Recipe
from headwater.core.ids import BatchId, version_written_by
from headwater.timemachine.compacted_log import LogCut, with_crc
from headwater.timemachine.cuts import cut_sink, cut_sources, cut_state, metadata_before
from headwater.timemachine.fork import connector_paths
from headwater.timemachine.newer_state import bare_name
from headwater.timemachine.seed_record import SEED_FILE


@dataclass(frozen=True)
class Needed:
    """What a restore point of a batch consists of: files to link, and log files that have to be rebuilt."""

    linked: tuple[str, ...]
    written: dict[str, bytes] = field(default_factory=dict)
    sink: dict[str, bytes] = field(default_factory=dict)
    """The log of the file sink, by paths in the sink."""


class Raced(Exception):
    """The checkpoint changed while a point was made."""


def needed_files(history: History, batch: Batch, sink: FileTree | None = None) -> Needed:
    """Return what a rewind to a batch needs, if Spark had removed all of it."""
    number = batch.batch_id
    # The logs were listed before the state: what they commit is on disk.
    recipes = dict(_recipes(history, batch))
    has_next = number + 1 in history.logs.offsets.entries
    cuts = cut_sources(history, BatchId(number + 1), replan=not has_next)
    linked = [
        *_batch_logs(history, number, recipes),
        *_state_files(history, number, recipes),
        *_source_files(history, cuts),
        *(path for path in (METADATA, JOB_FILE, PLANS_FILE, SEED_FILE) if history.files.exists(path)),
        *(former_path(one, path) for one, path in history.logs.former.since(0) if one <= number),
        *(layout_path(one) for one in history.logs.former.layouts if one <= number),
    ]
    written = metadata_before(history, number + 1)
    # Copied: nobody knows whether a connector replaces its files or writes into them.
    written |= {
        path: read_bytes(history.files, path)
        for path in connector_paths(history.files)
        if not is_temporary(parent_and_name(path)[1])
    }
    written |= {f"{SOURCES}/{name}/{file}": data for name, cut in cuts.items() for file, data in cut.written.items()}
    return Needed(tuple(dict.fromkeys(linked)), written, {} if sink is None else _sink_log(history, sink, number))


def _recipes(history: History, batch: Batch) -> Iterator[tuple[str, Recipe]]:
    """Yield the files that rebuild each store, by the store's folder."""
    tree, version = history.logs.state, version_written_by(batch.batch_id)
    for key in history.logs.expected_stores(batch.batch_id):
        recipe = tree.store(key).recipe(version)
        if recipe is None:
            raise Raced(f"state version {version} of {key} cannot be rebuilt")
        yield key.folder, recipe


def _batch_logs(history: History, number: int, recipes: dict[str, Recipe]) -> Iterator[str]:
    """Yield the offsets of the batch, the ones before and after it, and the commits that name its state files."""
    offsets, commits = history.logs.offsets, history.logs.commits
    before = [one for one in offsets.ids if one < number][-1:]
    wanted = {OFFSETS: [*before, number, number + 1], COMMITS: [number - 1, number]}
    if history.logs.is_format_two:
        versions = [file.version for one in recipes.values() for name in _names(one) if (file := state_file(name))]
        wanted[COMMITS] = [*range(min(versions, default=number + 1) - 1, number + 1)]
        wanted[OFFSETS] = list(dict.fromkeys([*before, *wanted[COMMITS], number + 1]))  # they describe the state
    for log in (offsets, commits):
        names = [log.entries[one].name for one in wanted[log.folder] if one in log.entries]
        present = {entry.name for entry in history.files.entries(log.folder)}
        yield from (f"{log.folder}/{name}" for name in with_crc(names, present))


def _names(recipe: Recipe) -> tuple[str, ...]:
    return (*((recipe.snapshot,) if recipe.snapshot else ()), *recipe.changes)


def _state_files(history: History, number: int, recipes: dict[str, Recipe]) -> Iterator[str]:
    """Yield the state files of the recipes with their checksums, shared table files, and all metadata and schemas."""
    newer = set(cut_state(history, number + 1))
    outside = dict(_files_of_snapshots(history, recipes))
    for folder, names in history.logs.present_state.names.items():
        parent, last = parent_and_name(folder)
        is_store = folder in recipes
        is_shared = last in (SST_FOLDER, LOG_FOLDER) and parent in recipes
        wanted = set(_names(recipes[folder])) if is_store else outside.get(folder, set()) if is_shared else None
        if wanted is None and any(state_file(name) for name in names):
            continue  # a store that the batch does not have
        for name in names:
            path = join(folder, name)
            if wanted is None:
                if path not in newer and not is_temporary(name):
                    yield path
            elif bare_name(name) in wanted:
                yield path
        missing = next(iter((wanted or set()) - set(names)), None)
        if missing is not None:
            raise Raced(f"{join(folder, missing)} is missing")


def _files_of_snapshots(history: History, recipes: dict[str, Recipe]) -> Iterator[tuple[str, set[str]]]:
    """Yield the names of the table and log files that RocksDB snapshots share, by their folders."""
    found: dict[str, set[str]] = {}
    for folder, recipe in recipes.items():
        if recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            continue
        path = f"{folder}/{recipe.snapshot}"
        for file in open_snapshot_zip(read_bytes(history.files, path), path).files:
            place, name = parent_and_name(f"{folder}/{file.path}")
            found.setdefault(place, set()).add(name)
    missing = next((place for place in found if place not in history.logs.state.names), None)
    if missing is not None:
        raise Raced(f"{missing} is missing")
    yield from found.items()


def _source_files(history: History, cuts: dict[str, LogCut]) -> Iterator[str]:
    for folder in history.files.entries(SOURCES):
        place = f"{SOURCES}/{folder.name}"
        names = [entry.name for entry in history.files.entries(place) if not entry.is_folder]
        cut = cuts.get(folder.name)
        wanted = names if cut is None else with_crc(_kept_log_names(names, cut), names)
        yield from (f"{place}/{name}" for name in wanted if not is_temporary(name))


def _kept_log_names(names: list[str], cut: LogCut) -> list[str]:
    """Return the files of a cut log without those that the last two compacted files repeat.

    Spark derives the compaction interval from two of them.
    """
    staying = [name for name in names if log_id(name) is not None and name not in cut.aside and name not in cut.written]
    compacted = sorted(number for name in staying if name.endswith(COMPACT) and (number := log_id(name)) is not None)
    first = compacted[-2] if len(compacted) > 1 else compacted[0] if compacted else 0
    return [name for name in staying if (log_id(name) or 0) >= first]


def _sink_log(history: History, sink: FileTree, number: int) -> dict[str, bytes]:
    cut = cut_sink(history, sink, number + 1).log
    names = [entry.name for entry in sink.entries(SINK_LOG) if not entry.is_folder]
    kept = {f"{SINK_LOG}/{name}": sink.read(f"{SINK_LOG}/{name}") for name in _kept_log_names(names, cut)}
    return kept | {f"{SINK_LOG}/{name}": data for name, data in cut.written.items()}
