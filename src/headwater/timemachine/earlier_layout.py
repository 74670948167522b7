"""How a rewind goes back before a migration that changed the sources or the stateful operators of a query.

Such a migration keeps the former offsets, source logs and operators under ``_headwater/migrated``. They return to their
places first, and the rewind then cuts what it finds there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    LOG_FOLDER,
    OFFSETS,
    SOURCES,
    SST_FOLDER,
    STATE,
    hadoop_crc_of,
    join,
    parent_and_name,
)
from headwater.checkpoint.migrated import FormerMetadata, former_path, layout_path
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Link, Move, Preview, Step, set_aside
from headwater.timemachine.newer_state import is_newer_state

FORMER_LAYOUT = (
    "batch {batch} changed the sources or stateful operators of the query; the rewind restores the earlier ones, so only "
    "code from before that batch can resume the stream"
)
_METADATA_FOLDERS = ("_metadata", "_stateSchema", "_headwater")


def history_before(history: History, next_batch: int) -> History:
    """Return the history as it was before the migrations that a rewind undoes; the same one if they kept the layout."""
    steps = steps_to_former_layout(history, next_batch, "preview")
    return History(Preview(history.files, steps)) if steps else history


def refuse_other_layout(history: History, next_batch: int, verb: str) -> None:
    """Raise ``ChangeRefused`` for a batch from before a migration that changed sources or operators."""
    crossed = history.logs.former.crossed(next_batch)
    if crossed:
        raise ChangeRefused(
            "other-layout",
            f"cannot {verb} batch {next_batch - 1}: a later migration changed the sources or operators of the query",
            evidence={"migrated in batch": crossed[0], "checkpoint": history.files.location},
            remedy=f"rewind first: headwater rewind {history.files.location} --to {next_batch - 1}",
        )


def steps_to_former_layout(history: History, next_batch: int, change_id: str) -> list[Step]:
    """Return the steps that bring back the files of earlier batches; none if no migration changed their places."""
    files, former = history.files, history.logs.former
    crossed = former.crossed(next_batch)
    if not crossed:
        return []
    undone = [number for number in former.paths if number >= next_batch]
    kept = [former_path(number, path) for number in undone for path in sorted(former.paths[number])]
    kept += [layout_path(number) for number in crossed]
    listing = _Listing(files)
    returning = dict(_returning(files, former, undone, listing))
    leaving = dict.fromkeys(path for path in _leaving(former, undone, listing) if listing.has(path))
    leaving |= dict.fromkeys(
        join(folder, name)
        for folder, names in history.logs.present_state.names.items()
        for name in names
        if is_newer_state(folder, name, next_batch)
    )
    leaving |= dict.fromkeys(_new_stores(history, next_batch))
    return [
        *(set_aside(change_id, "checkpoint", path) for path in leaving),
        *(Link("checkpoint", place, path) for path, place in returning.items()),
        *(set_aside(change_id, "checkpoint", path) for path in kept),
    ]


def with_cut(back: list[Step], cut: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps to the former layout and then a cut. What the cut would set aside again does not return."""
    restored = {step.target for step in back if isinstance(step, Link)}
    steps = list(cut)
    dropped = {
        step.source
        for step in steps
        if isinstance(step, Move) and step.root == "checkpoint" and step.source in restored
    }
    yield from (step for step in back if not (isinstance(step, Link) and step.target in dropped))
    yield from (
        step for step in steps if not (isinstance(step, Move) and step.root == "checkpoint" and step.source in dropped)
    )


def _returning(
    files: FileTree, former: FormerMetadata, undone: list[int], listing: _Listing
) -> Iterator[tuple[str, str]]:
    """Yield the files that come back, with the places where they are. Those of the oldest migration win."""
    seen: set[str] = set()
    for number in undone:
        for path in sorted(former.paths[number]):
            if path in seen:
                continue
            seen.add(path)
            place = former_path(number, path)
            # Spark may have removed old offsets since, together with their commits.
            is_gone = path.startswith(f"{OFFSETS}/") and not listing.has(_covered(path))
            is_metadata = any(part in _METADATA_FOLDERS for part in path.split("/"))
            if not is_gone and (not is_metadata or files.read(place)):
                yield path, place


def _leaving(former: FormerMetadata, undone: list[int], listing: _Listing) -> Iterator[str]:
    for number in undone:
        for path in sorted(former.paths[number]):
            yield path
            yield hadoop_crc_of(path)
        layout = former.layouts.get(number)
        if layout is not None and layout.sources:
            yield from listing.below(SOURCES)
        for operator in set(layout.after) - set(layout.before) if layout else ():
            yield from listing.below(f"{STATE}/{operator}")


def _new_stores(history: History, next_batch: int) -> Iterator[str]:
    """Yield the files of stores that had no version yet, with their tables: an empty folder would pass for a store."""
    state = history.logs.present_state
    for key, store in state.stores.items():
        if store.versions and min(store.versions) > next_batch:
            for folder in (key.folder, f"{key.folder}/{SST_FOLDER}", f"{key.folder}/{LOG_FOLDER}"):
                yield from (join(folder, name) for name in state.names.get(folder, ()))


def _covered(path: str) -> str:
    """Return the file that a checksum file belongs to, or the path itself."""
    folder, name = parent_and_name(path)
    return join(folder, name[1:-4]) if name.startswith(".") and name.endswith(".crc") else path


class _Listing:
    """The files of a checkpoint, listed folder by folder."""

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._names: dict[str, frozenset[str]] = {}

    def has(self, path: str) -> bool:
        folder, name = parent_and_name(path)
        if folder not in self._names:
            self._names[folder] = self._files.names(folder).files
        return name in self._names[folder]

    def below(self, folder: str) -> Iterator[str]:
        for place, names in self._files.tree(folder).items():
            yield from (join(place, name) for name in names)
