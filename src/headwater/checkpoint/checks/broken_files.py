"""Every text file reads as what its place says it is; no state file is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.file_logs import parse_file_source_log
from headwater.checkpoint.layout import (
    JOB_FILE,
    METADATA,
    PENDING_FILE,
    SOURCES,
    STATE,
    log_id,
    parent_and_name,
    state_file,
)
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.checkpoint.logtext import LogText, broken, json_value, read_bytes
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.checkpoint.record import parse_job_record
from headwater.checkpoint.source_offsets import kind_of, offset_value
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    yield from _batch_logs(scene)
    yield from _query_metadata(scene)
    yield from _source_logs(scene)
    yield from _state_files(scene)
    if scene.files.exists(JOB_FILE):
        yield from _tried(scene, JOB_FILE, lambda data, _: parse_job_record(data), severe=False)


def _batch_logs(scene: Scene) -> Iterator[Finding]:
    for log in (scene.logs.offsets, scene.logs.commits):
        for number in log.ids:
            error = log.outcome(number).error
            if error is not None:
                yield _finding(error, log.path(number))


def _query_metadata(scene: Scene) -> Iterator[Finding]:
    if scene.files.exists(PENDING_FILE):
        return  # while a change of ours is under way a notice stands here
    if scene.has(METADATA):
        yield from _tried(scene, METADATA, parse_query_metadata)
    elif scene.logs.batch_ids:
        message = "is not there: Spark will not start this query again without its id"
        yield Finding("error", "metadata-missing", METADATA, message)


def _source_logs(scene: Scene) -> Iterator[Finding]:
    latest = scene.last_planned
    entry = None if latest is None else scene.logs.offsets.get(latest)
    for source in entry.sources if entry else ():
        value = offset_value(source.text)
        kind = kind_of(value, scene.logs.hint(source.name, value))
        parse = {"files": parse_file_source_log, "kafka": _first_offset, "rate": _first_offset}.get(kind)
        folder = f"{SOURCES}/{source.name}"
        for name in scene.tree.get(folder, ()) if parse else ():
            if log_id(name) is not None and parse is not None:
                yield from _tried(scene, f"{folder}/{name}", parse)


def _first_offset(data: bytes, path: str) -> object:
    """What Kafka (after a zero byte) and the rate source write once: a version and a JSON value."""
    text = LogText.from_bytes(data.removeprefix(b"\0"), path)
    if not text.lines[0].startswith("v"):  # Spark 2.1.0 wrote no version here
        return json_value("\n".join(text.lines), path)
    text.version(path, newest=1)
    if not text.body:
        raise broken("torn-file", path, "ends after its version line")
    return json_value("\n".join(text.body), path)


def _state_files(scene: Scene) -> Iterator[Finding]:
    for folder, names in scene.tree.items():
        parts = folder.split("/")
        if parts[0] != STATE:
            continue
        is_metadata = len(parts) >= 3 and parts[2] == "_metadata"
        for name in names:
            path = f"{folder}/{name}"
            if is_metadata and (name == "metadata" or (parts[-1] == "v2" and name.isdigit())):
                yield from _tried(scene, path, parse_operator_metadata)
            elif state_file(name) or name == "schema" or "_stateSchema" in parts:
                yield from _empty(scene, path)


def _empty(scene: Scene, path: str) -> Iterator[Finding]:
    entry = scene.entry(path)
    if entry is not None and entry.size == 0 and not parent_and_name(path)[1].startswith("."):
        yield Finding("error", "empty-file", path, "is empty")


def _tried(scene: Scene, path: str, parse: Callable[[bytes, str], object], *, severe: bool = True) -> Iterator[Finding]:
    try:
        parse(read_bytes(scene.files, path), path)
    except CheckpointUnreadable as error:
        yield _finding(error, path, severe=severe)


def _finding(error: CheckpointUnreadable, path: str, *, severe: bool = True) -> Finding:
    return Finding("error" if severe else "warning", error.code, path, error.problem.removeprefix(f"{path} "))
