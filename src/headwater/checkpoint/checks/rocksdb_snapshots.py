"""Each RocksDB snapshot opens, and the files that it names are there in their full size."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.layout import LOG_FOLDER, SST_FOLDER
from headwater.checkpoint.logtext import LogText, broken, json_object, read_bytes, string, whole_number
from headwater.checkpoint.state_folder import StoreFiles
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding
from headwater.core.ids import StoreKey

_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class NamedFile:
    """A file outside the zip that the snapshot is made of."""

    path: str
    size: int


def check(scene: Scene) -> Iterator[Finding]:
    for key, store in scene.logs.state.stores.items():
        zips = [held.name for versions in store.snapshots.values() for held in versions if held.name.endswith(".zip")]
        if zips:
            yield from _store(scene, key, store, sorted(zips))


def _store(scene: Scene, key: StoreKey, store: StoreFiles, zips: list[str]) -> Iterator[Finding]:
    named: set[str] = set()
    all_read = True
    for name in zips:
        path = f"{key.folder}/{name}"
        try:
            parts = snapshot_parts(read_bytes(scene.files, path), path)
        except CheckpointUnreadable as error:
            all_read = False
            yield Finding("error", error.code, path, error.problem.removeprefix(f"{path} "))
            continue
        named |= {part.path for part in parts}
        yield from _lacking(scene, key, parts, path, in_use=_in_use(store, name))
    if all_read:
        yield from _orphans(scene, key, named)


def _in_use(store: StoreFiles, name: str) -> bool:
    """In format 2 a snapshot whose id no commit names is inert."""
    return any((held := store.snapshot_at(version)) and held.name == name for version in store.snapshots)


def _lacking(scene: Scene, key: StoreKey, parts: list[NamedFile], path: str, *, in_use: bool) -> Iterator[Finding]:
    for part in parts:
        entry = scene.entry(f"{key.folder}/{part.path}")
        if entry is None:
            message = f"names {part.path}, which is not there: this snapshot cannot be loaded"
            yield Finding("error" if in_use else "info", "sst-missing", path, message)
        elif entry.size != part.size:
            message = f"has {entry.size} bytes, {path} says {part.size}"
            yield Finding("error" if in_use else "info", "sst-size", f"{key.folder}/{part.path}", message)


def _orphans(scene: Scene, key: StoreKey, named: set[str]) -> Iterator[Finding]:
    for folder in (SST_FOLDER, LOG_FOLDER):
        for name in scene.tree.get(f"{key.folder}/{folder}", ()):
            if not name.startswith(".") and f"{folder}/{name}" not in named:
                message = "is named by no snapshot; Spark's maintenance removes it in time"
                yield Finding("info", "sst-orphan", f"{key.folder}/{folder}/{name}", message)


def snapshot_parts(data: bytes, path: str) -> list[NamedFile]:
    """The files that a snapshot's zip names; ``CheckpointUnreadable`` when the zip or its metadata is broken."""
    if not data:
        raise broken("empty-file", path, "is empty")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as held:
            damaged = held.testzip()
            about = held.read("metadata")
    except _BROKEN_ZIP as error:
        raise broken("bad-zip", path, f"is no zip file that can be read ({error})") from None
    if damaged is not None:
        raise broken("bad-zip", path, f"holds a damaged {damaged}")
    text = LogText.from_bytes(about, path)
    text.version(path, newest=1)
    value = json_object("\n".join(text.body), path)
    return [
        *_named(value, "sstFiles", "dfsSstFileName", SST_FOLDER, path),
        *_named(value, "logFiles", "dfsLogFileName", LOG_FOLDER, path),
    ]


def _named(value: dict[str, Any], field: str, name: str, folder: str, path: str) -> list[NamedFile]:
    listed = value.get(field) or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise broken("bad-json", path, f"has {field} of an unknown shape")
    return [NamedFile(f"{folder}/{string(one, name, path)}", whole_number(one, "sizeBytes", path)) for one in listed]
