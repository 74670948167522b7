"""What has to leave a checkpoint so that a batch runs next: one function for each part of it. Reads, never writes."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.file_source_log import log_with
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS, SOURCES, STATE, batch_id, is_temporary, join, state_file
from headwater.checkpoint.logtext import broken
from headwater.checkpoint.offset_log import OffsetEntry
from headwater.checkpoint.source_offsets import kind_of, log_offset, offset_value
from headwater.core.errors import ChangeRefused
from headwater.timemachine.log_cut import LogCut, cut_log, needs_rebuilding


def cut_batch_logs(files: Files, next_batch: int, *, replan: bool) -> list[str]:
    """Commits from the next batch on, and offsets after it; its own offsets stay unless it is planned anew.

    Halves of files that a killed query left go too: Spark starts a stream over only where not even they are in the way.
    """
    first_offset = next_batch if replan else next_batch + 1
    return [
        *(f"{OFFSETS}/{name}" for name in _numbered(files, OFFSETS, first_offset)),
        *(f"{COMMITS}/{name}" for name in _numbered(files, COMMITS, next_batch)),
    ]


def _numbered(files: Files, folder: str, first: int) -> Iterator[str]:
    for entry in files.entries(folder):
        number = batch_id(_bare(entry.name))
        if is_temporary(entry.name) or (number is not None and number >= first):
            yield entry.name


def cut_state(history: History, next_batch: int) -> list[str]:
    """Every file of a state version above the one that the next batch starts from.

    Spark loads the highest snapshot that it finds: one left over from the undone batches would win over what the
    batches write when they run again.
    """
    names = history.logs.state.names
    if next_batch == 0:
        return [join(folder, name) for folder, held in sorted(names.items()) for name in sorted(held)]
    return [
        join(folder, name)
        for folder, held in sorted(names.items())
        for name in sorted(held)
        if _is_newer_state(folder, name, next_batch)
    ]


def _is_newer_state(folder: str, name: str, next_batch: int) -> bool:
    bare = _bare(name)
    parts = folder.split("/")
    if len(parts) >= 4 and parts[2] == "_metadata" and parts[3] == "v2":
        number = batch_id(bare)
        return number is not None and number >= next_batch
    if len(parts) >= 4 and parts[2] == "_stateSchema":
        number = batch_id(bare.partition("_")[0])
        return number is not None and number >= next_batch
    held = state_file(bare) if parts[0] == STATE else None
    return held is not None and held.version > next_batch


def _bare(name: str) -> str:
    """The name of the file that a checksum file is about (or the checksum of a checksum), or the name itself."""
    while name.endswith(".crc") and len(name) > len(".crc"):
        name = name[1:-4] if name.startswith(".") else name[:-4]
    return name


def cut_sources(history: History, next_batch: int, *, replan: bool) -> dict[str, LogCut]:
    """By source name, the cut of every file source's log. Other sources keep only their start there, which stays."""
    last_kept_offsets = next_batch - 1 if replan else next_batch
    entry = history.logs.offsets.read(last_kept_offsets) if last_kept_offsets >= 0 else None
    cuts: dict[str, LogCut] = {}
    for folder in history.files.entries(SOURCES):
        if history.source_log(folder.name).names.ids and _is_file_source(history, folder.name):
            text = _text_of(entry, folder.name)
            kept = -1 if text is None else log_offset(offset_value(text))
            if kept is None:
                path = history.logs.offsets.path(last_kept_offsets)
                raise broken("bad-offset", path, f"has no position for file source {folder.name}: {text}")
            cuts[folder.name] = _cut_source(history, folder.name, kept)
    return cuts


def _is_file_source(history: History, name: str) -> bool:
    """By what the newest batches say of it; its own log speaks where they do not."""
    for number in reversed(history.logs.offsets.ids):
        text = _text_of(history.logs.offsets.get(number), name)
        if text is not None:
            return kind_of(offset_value(text), history.logs.hint(name)) in ("files", "table")
    return history.logs.hint(name).kind in ("files", "table")


def _text_of(entry: OffsetEntry | None, name: str) -> str | None:
    return next((source.text for source in entry.sources if source.name == name), None) if entry else None


def _cut_source(history: History, name: str, last_kept: int) -> LogCut:
    log = history.source_log(name)
    if not needs_rebuilding(log.names, last_kept):
        return cut_log(log.names, last_kept, None)
    entries = log.everything_upto(last_kept)
    if entries is None:
        raise ChangeRefused(
            "source-log-gone",
            f"the log of file source {name} no longer tells which files were read up to offset {last_kept}",
            evidence={"folder": f"{SOURCES}/{name}", "missing": ", ".join(map(str, log.names.missing_for(last_kept)))},
            remedy="rewind to a later batch",
        )

    def content_of(number: int, compact: bool) -> bytes:
        wanted = (item for item in entries if (item.batch_id <= number if compact else item.batch_id == number))
        return log_with(wanted)

    return cut_log(log.names, last_kept, content_of)
