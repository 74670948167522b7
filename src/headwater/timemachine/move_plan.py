"""Plan a move: what is copied, which files are rewritten, and which folders of the query stay where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    COMMITS,
    HEADWATER_FOLDER,
    METADATA,
    OFFSETS,
    SINK_LOG,
    SOURCES,
    STATE,
    is_temporary,
)
from headwater.checkpoint.locate import absolute_path, open_files
from headwater.checkpoint.moved import METADATA_CRC, read_moving, read_pointer
from headwater.checkpoint.record import JobRecord, folder_of, read_job_record, uri_kind
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.timemachine.change import fingerprint, new_change_id
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.move import (
    WORKERS,
    FolderMove,
    MovePlan,
    absolute,
    paths_of_checkpoint,
    paths_of_folder,
    relocation_of,
)
from headwater.timemachine.relocate import Place, Relocation, folders_in_logs, inner_path, is_rewritten, rewritten

_KNOWN = {OFFSETS, COMMITS, SOURCES, STATE, METADATA, METADATA_CRC, HEADWATER_FOLDER}
_MOST_SEARCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class UsedFolder:
    """A folder that a query reads or writes, and what it is to the query."""

    place: Place
    role: str


def plan_move(files: FileTree, into: str, *, folders: Sequence[str] = (), workers: int = WORKERS) -> MovePlan:
    """Plan to move a checkpoint into an empty folder or URL; ``folders`` are texts such as ``OLD=NEW``.

    A move to the same place that was interrupted is continued. Raise ``ChangeRefused`` if the checkpoint was moved elsewhere,
    if the target is not empty, or if a folder is not one of the query.
    """
    files, target = absolute(files), open_tree(into)
    _refuse_nested(files, target)
    pointer, moving = read_pointer(files), read_moving(target)
    resumes = moving is not None and moving.origin == files.location
    if not (resumes and (pointer is None or pointer.to == target.location)):
        refuse_if_pending(files)
        if not _is_empty(target):
            raise ChangeRefused(
                "not-empty",
                f"cannot move into {target.location}: the folder is not empty",
                remedy=f"choose another folder, or remove {target.location} first",
            )
    seen = fingerprint(files)
    used = list(used_folders(files))
    pairs = [_pair(text, used) for text in folders]
    _refuse_shared(target, [new for _, new in pairs])
    paths = paths_of_checkpoint(files, keep_crc=target.is_local)
    created = moving.created if moving and resumes else ()
    moved = tuple(_folder_move(old, new, used, files, created) for old, new in pairs)
    moves = relocation_of(files, target, pairs)
    changed = tuple(
        path for path in paths if is_rewritten(path) and rewritten(path, (data := files.read(path)), moves) != data
    )
    olds = [Place.of(old.spark_uri()) for old, _ in pairs]
    stays = tuple(
        dict.fromkeys(f"{one.role}: {one.place}" for one in used if not any(old.contains(one.place) for old in olds))
    )
    return MovePlan(
        files,
        target,
        pointer.move_id if pointer else moving.move_id if moving and resumes else new_change_id("move"),
        len(paths),
        sum(entry.size for entry in paths.values()),
        (*changed, *(path for folder in moved for path in _rewritten_logs(folder, files, moves))),
        moved,
        stays,
        tuple(_warnings(files, target, moved, used, olds)),
        tuple(signs_of_life(History(files))) if pointer is None else (),
        seen,
        resumes,
        workers,
    )


def open_tree(location: str) -> FileTree:
    """Return the tree at a path, a URL, or a URI such as ``files:DIR`` or ``delta:DIR``, with an absolute path."""
    path = location.removeprefix("files:").removeprefix("delta:").partition("?")[0]
    return open_files(path if "://" in path else absolute_path(str(Path(path.removeprefix("file:")).expanduser())))


def _rewritten_logs(folder: FolderMove, files: FileTree, moves: Relocation) -> Iterator[str]:
    for path in paths_of_folder(folder.old, files):
        if is_rewritten(path) and rewritten(path, (data := folder.old.read(path)), moves) != data:
            yield f"{folder.old.location}/{path}"


def _is_empty(target: FileTree) -> bool:
    """Return whether a tree has no files but drafts that an interrupted command has left."""
    return all(is_temporary(entry.name) for _, entry in walk(target))


def used_folders(files: FileTree) -> Iterator[UsedFolder]:
    """Yield the folders of a query's sources, sink and static tables, from its record and from the logs of its sources."""
    record = read_job_record(files)
    for role, uri in _recorded(record):
        if uri_kind(uri) in ("files", "delta") or (role == "sink" and uri == record.table_folder):
            yield UsedFolder(Place.of(_folder(uri)), role)
    for entry in files.entries(SOURCES):
        if entry.is_folder:
            logs = [one.name for one in files.entries(f"{SOURCES}/{entry.name}") if not one.is_folder]
            paths = [f"{SOURCES}/{entry.name}/{name}" for name in logs]
            found = folders_in_logs([files.read(path) for path in paths if is_rewritten(path)])
            yield from (UsedFolder(Place.of(folder), f"source {entry.name}") for folder in sorted(_tops(found)))


def _recorded(record: JobRecord) -> Iterator[tuple[str, str]]:
    yield from ((name or "source", uri) for name, uri in record.inputs.items())
    yield from (("sink", uri) for uri in (record.sink, record.table_folder) if uri)


def _folder(uri: str) -> str:
    kind = uri_kind(uri)
    return folder_of(f"files:{uri.partition(':')[2]}") if kind in ("files", "delta") else uri.removeprefix("file:")


def _tops(folders: Iterable[str]) -> set[str]:
    """Return the folders that are not inside another one of them."""
    places = {folder: Place.of(folder) for folder in folders}
    return {
        folder
        for folder, place in places.items()
        if not any(other != place and other.contains(place) for other in places.values())
    }


def _pair(text: str, used: Sequence[UsedFolder]) -> tuple[FileTree, FileTree]:
    """Return the old and the new folder of ``OLD=NEW``. A folder may have ``=`` in its name, as partitions have."""
    splits = [(text[:at], text[at + 1 :]) for at, character in enumerate(text) if character == "="]
    known = [
        (old, new)
        for old, new in splits
        if old and new and any(Place.of(open_tree(old).spark_uri()).contains(one.place) for one in used)
    ]
    with_log = [(old, new) for old, new in splits if old and new and open_tree(old).entries(SINK_LOG)]
    chosen = next(iter([*known, *with_log]), None)
    if chosen is None:
        if not any(old and new for old, new in splits):
            raise UsageProblem(
                "bad-option", f"--map {text!r} is not of the form OLD=NEW", remedy="--map /data/in=/new/in"
            )
        raise ChangeRefused(
            "not-a-folder-of-the-query",
            f"nothing in this checkpoint refers to {splits[0][0]}",
            evidence={"folders of the query": ", ".join(dict.fromkeys(str(one.place) for one in used)) or "none"},
            remedy="--map OLD=NEW, with OLD as one of these folders or a folder above them",
        )
    pair = open_tree(chosen[0]), open_tree(chosen[1])
    _refuse_nested(*pair)
    return pair


def _refuse_nested(old: FileTree, new: FileTree) -> None:
    before, after = Place.of(old.spark_uri()), Place.of(new.spark_uri())
    if before == after:
        raise UsageProblem(
            "bad-option", f"cannot move {before} into itself", remedy="choose another folder, which may be new or empty"
        )
    if before.contains(after) or after.contains(before):
        raise UsageProblem(
            "bad-option",
            f"cannot move {before} into {after}: one of them contains the other",
            remedy="choose a folder beside it",
        )


def _refuse_shared(target: FileTree, folders: Sequence[FileTree]) -> None:
    """Raise ``UsageProblem`` if files of two folders would be mixed. Only a checkpoint may be inside another folder."""
    places = [Place.of(folder.spark_uri()) for folder in folders]
    checkpoint = Place.of(target.spark_uri())
    mixed = [(one, checkpoint) for one in places if checkpoint.contains(one)]
    mixed += [pair for pair in permutations(places, 2) if pair[1].contains(pair[0])]
    for inner, outer in mixed:
        raise UsageProblem(
            "bad-option",
            f"cannot move two folders into the same place: {outer} and {inner}",
            remedy="choose a folder of its own for each of them",
        )


def _folder_move(
    old: FileTree, new: FileTree, used: Sequence[UsedFolder], files: FileTree, created: Sequence[str]
) -> FolderMove:
    place = Place.of(old.spark_uri())
    roles = tuple(dict.fromkeys(one.role for one in used if place.contains(one.place))) or ("sink",)
    paths = paths_of_folder(old, files)
    is_new = new.location in created or not new.entries("")
    return FolderMove(old, new, roles, len(paths), sum(entry.size for entry in paths.values()), is_new)


def _warnings(
    files: FileTree, into: FileTree, moved: Sequence[FolderMove], used: Sequence[UsedFolder], olds: Sequence[Place]
) -> Iterator[str]:
    for folder in moved:
        if not folder.files:
            yield f"{folder.old.location} has no files: those that the query has read are expected in {folder.new.location}"
    local = sorted({str(one.place) for one in used if one.place.store == "file"} - {str(old) for old in olds})
    staying = [one for one in local if not any(old.contains(Place.of(one)) for old in olds)]
    if not into.is_local and files.is_local and staying:
        yield f"only machines that have {', '.join(staying)} can run the query; --map {staying[0]}=NEW moves it too"
    if not into.is_local and files.is_local:
        yield "an object store records the time of the copy: the commit times of earlier batches are not kept"
    root = str(Place.of(files.spark_uri())).encode()
    for path, size in _unknown(files):
        if size <= _MOST_SEARCHED_BYTES and root in files.read(path):
            yield f"{path} contains the old location and is copied as it is: Headwater does not know its format"


def _unknown(files: FileTree) -> Iterator[tuple[str, int]]:
    """Yield the files that are neither Spark's nor Headwater's own, such as the schema log of a Delta source."""
    for path, entry in paths_of_checkpoint(files, keep_crc=False).items():
        top = inner_path(path).partition("/")[0]
        depth = path.count("/")
        if top not in _KNOWN or (top == SOURCES and depth > 2 and not path.startswith(HEADWATER_FOLDER)):
            yield path, entry.size
