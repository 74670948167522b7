"""What is known about a flow of a declarative pipeline without a record: the table that it writes, and those that it reads.

Spark's catalog knows where a table is; a checkpoint does not. Headwater looks in ``HEADWATER_WAREHOUSE``, in the folder
that was recorded for the pipeline, in ``spark-warehouse`` beside the storage folder, and where other flows have read files. A
table is a folder of files with the log of Spark's file sink, or a Delta table.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, OFFSETS, SINK_LOG, SOURCES, batch_id
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.log_entries import parse_offsets
from headwater.checkpoint.logs import in_order
from headwater.checkpoint.logtext import json_object
from headwater.checkpoint.pipelines import Flow, find_flows, flow_at
from headwater.checkpoint.record import JobRecord
from headwater.checkpoint.source_names import plain_path
from headwater.checkpoint.source_offsets import hint_from_source_log, offset_value
from headwater.checkpoint.table_offsets import delta_position
from headwater.core.errors import CheckpointUnreadable

PIPELINE_FILE = f"{HEADWATER_FOLDER}/pipeline.json"
WAREHOUSE_VARIABLE = "HEADWATER_WAREHOUSE"
DELTA_LOG = "_delta_log"
SESSION_CATALOG, DEFAULT_DATABASE = "spark_catalog", "default"
_REMOTE_SECONDS = 30
_FIRST_COMMIT = f"{0:020d}.json"


@dataclass(frozen=True)
class TablePlace:
    """The table of a flow: its folder, and its format as far as it matters here."""

    name: str
    folder: str
    is_delta: bool
    delta_id: str | None = None
    """The id by which streams that read a Delta table know it; None if its log does not show it."""

    @property
    def uri(self) -> str:
        """The table as a source or sink of a job."""
        return f"{'delta' if self.is_delta else 'files'}:{quote(self.folder)}"


def flow_record(files: FileTree) -> JobRecord | None:
    """Return what a record of a flow would say; None if the checkpoint is not one of a pipeline's flow."""
    found = flow_at(files.location)
    if found is None:
        return None
    storage, flow = found
    tables = known_tables(storage, is_local=files.is_local)
    own = tables.get(flow.target)
    reads = dict(_read_tables(files, tables))
    several = len(reads) > 1
    only = next(iter(reads.values()), None)
    return JobRecord(
        flow.names[0],
        source=None if several or only is None else only.uri,
        sink=own.uri if own else None,
        mode="append",
        sources={_label(source, one): one.uri for source, one in reads.items() if one} if several else {},
        source_order=tuple(_label(source, one) for source, one in reads.items()) if several else (),
        attached=True,
    )


def _label(source: str, table: TablePlace | None) -> str:
    return source if table is None else table.name


Tables = Mapping[tuple[str, ...], TablePlace]


def known_tables(storage: str, *, is_local: bool = True) -> Tables:
    """Return where the tables of a pipeline's flows are, as far as they can be found, by their names in parts."""
    return _find_tables(storage) if is_local else _remembered(storage, int(time.monotonic()) // _REMOTE_SECONDS)


@lru_cache(maxsize=16)
def _remembered(storage: str, _period: int) -> Tables:
    return _find_tables(storage)


def _find_tables(storage: str) -> Tables:
    files = open_files(storage)
    flows = list(find_flows(files))
    given, places = read_pipeline_file(files), dict[tuple[str, ...], TablePlace]()
    warehouses = [*_conventional(files, given.get("warehouse")), *_seen_by_readers(files, flows)]
    for flow in flows:
        named = given.get("tables", {}).get(flow.table) or given.get("tables", {}).get(flow.target[-1])
        folders = [named] if named else [f"{root}/{path}" for root in warehouses for path in _relative(flow)]
        place = next(filter(None, (_table_at(flow.table, folder) for folder in folders)), None)
        if place is not None:
            places[flow.target] = place
    return places


def read_pipeline_file(storage: FileTree) -> dict[str, Any]:
    """Return what was recorded for a pipeline: ``warehouse``, and ``tables`` with folders by name."""
    try:
        found = json_object(storage.read(PIPELINE_FILE).decode("utf-8", "replace"), PIPELINE_FILE)
    except (OSError, CheckpointUnreadable):
        return {}
    tables = found.get("tables")
    named = {name: text for name, text in tables.items() if isinstance(text, str)} if isinstance(tables, dict) else {}
    warehouse = found.get("warehouse")
    return {"warehouse": warehouse if isinstance(warehouse, str) else None, "tables": named}


def write_pipeline_file(storage: FileTree, warehouse: str | None, tables: Mapping[str, str]) -> None:
    """Record where the tables of a pipeline are, in addition to what was recorded before."""
    before = read_pipeline_file(storage)
    value = {
        "warehouse": warehouse or before.get("warehouse"),
        "tables": {**before.get("tables", {}), **tables},
    }
    storage.write(PIPELINE_FILE, json.dumps(value, indent=1).encode())


def _conventional(storage: FileTree, given: str | None) -> Iterator[str]:
    local = storage.local_path()
    beside = str(local.absolute().parent / "spark-warehouse") if local is not None else None
    for found in (os.environ.get(WAREHOUSE_VARIABLE), given, beside):
        if found:
            yield plain_path(found)


def _seen_by_readers(storage: FileTree, flows: list[Flow]) -> Iterator[str]:
    """Yield the warehouses in which flows have read files of other flows' tables."""
    seen: set[str] = set()
    for reader in flows:
        for path in _files_read(storage.subtree(reader.path)).values():
            for flow in flows:
                for relative in _relative(flow):
                    root, inside, _ = path.partition(f"/{relative}/")
                    if inside and root not in seen and open_files(f"{root}/{relative}").exists(SINK_LOG):
                        seen.add(root)
                        yield root


def _relative(flow: Flow) -> list[str]:
    """Return where Spark puts a managed table in the warehouse. Hive writes names in lower case."""
    if len(flow.target) < 2:
        return []
    database, table = flow.target[-2:]
    is_default = database == DEFAULT_DATABASE and flow.target[0] in (SESSION_CATALOG, DEFAULT_DATABASE)
    path = table if is_default else f"{database}.db/{table}"
    return list(dict.fromkeys([path, path.lower()]))


def _table_at(name: str, folder: str) -> TablePlace | None:
    files = open_files(folder)
    if files.exists(DELTA_LOG):
        return TablePlace(name, folder, True, _delta_id(files))
    return TablePlace(name, folder, False) if files.exists(SINK_LOG) else None


def _delta_id(table: FileTree) -> str | None:
    """Return the id of a Delta table, from its first commit or, if that was removed, from the newest checksum of its log."""
    names = table.names(DELTA_LOG).files
    checksums = sorted(name for name in names if re.fullmatch(r"[0-9]{20}\.crc", name))
    for name in (_FIRST_COMMIT, *checksums[-1:]):
        for line in table.read(f"{DELTA_LOG}/{name}").splitlines() if name in names else ():
            with suppress(ValueError, AttributeError):
                action = json.loads(line)
                found = (action.get("metaData") or action.get("metadata") or {}).get("id")
                if found is not None:
                    return str(found)
    return None


def _read_tables(files: FileTree, tables: Tables) -> Iterator[tuple[str, TablePlace | None]]:
    """Yield each source of a flow by its name in the offset log, with the pipeline's table that it reads, if any."""
    paths = _files_read(files)
    by_id = {place.delta_id: place for place in tables.values() if place.delta_id}
    for source, text in _newest_offsets(files):
        position = delta_position(offset_value(text))
        if position is not None:
            yield source, by_id.get(position.table_id or "")
            continue
        path = paths.get(source, "")
        inside = [place for place in tables.values() if not place.is_delta and path.startswith(f"{place.folder}/")]
        yield source, max(inside, key=lambda place: len(place.folder), default=None)


def _newest_offsets(files: FileTree) -> list[tuple[str, str | None]]:
    numbers = sorted(number for name in files.names(OFFSETS).files if (number := batch_id(name)) is not None)
    for number in reversed(numbers):
        with suppress(CheckpointUnreadable, OSError):
            entry = parse_offsets(files.read(f"{OFFSETS}/{number}"), f"{OFFSETS}/{number}")
            return [(source.name, source.text) for source in in_order(entry.sources)]
    return []


def _files_read(files: FileTree) -> dict[str, str]:
    """Return one file that each file source of a checkpoint has read, by the source's folder."""
    found = {}
    for folder in sorted(files.names(SOURCES).folders):
        names = LogNames.of(files.names(f"{SOURCES}/{folder}").files)
        with suppress(CheckpointUnreadable, OSError):
            first = next(iter(names.ids), None)
            hint = (
                hint_from_source_log(files.read(f"{SOURCES}/{folder}/{names.by_id[first]}"))
                if first is not None
                else None
            )
            if hint is not None and hint.path:
                found[folder] = plain_path(unquote(hint.path))
    return found
