"""Which files make a version of a store.

In checkpoint format 2 the commit names the id in the file names of its own version; the changelog of that version names
those of the versions before it, back to a snapshot. Other files of the same versions are leftovers of failed tasks.
"""

from __future__ import annotations

from headwater.checkpoint.files import Files
from headwater.checkpoint.state_versions import Recipe, StoreFiles
from headwater.statefiles.codecs import decompress
from headwater.statefiles.records import changelog_header

_HEADER_BYTES = 1 << 17


def recipe_for(files: Files, folder: str, store: StoreFiles, version: int) -> Recipe | None:
    """What to read for a version, in order; None when it cannot be built."""
    if not store.has_unique_ids or version <= 0:
        return store.recipe(version)
    unique_id = store.unique_id_of(version)
    if unique_id is None:
        return store.recipe(version)
    return _by_lineage(files, folder, store, version, unique_id)


def _by_lineage(files: Files, folder: str, store: StoreFiles, version: int, unique_id: str) -> Recipe | None:
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
