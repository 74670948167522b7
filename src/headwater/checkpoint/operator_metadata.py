"""``state/N/_metadata``: the name and the stores of a stateful operator. Spark has written it since 4.0."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import STATE, batch_id
from headwater.checkpoint.logtext import (
    LogText,
    integer_field,
    json_object,
    list_entries,
    string_field,
    unreadable_file,
)

NEWEST_VERSION = 2


@dataclass(frozen=True)
class StoreInfo:
    """A store of an operator. ``schema_paths`` are absolute URIs; only version 2 (custom state) has them."""

    name: str
    prefix_columns: int
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorMetadata:
    """An operator and its stores. ``text`` is the file as read."""

    text: LogText
    version: int
    operator_id: int
    operator_name: str
    stores: tuple[StoreInfo, ...]
    properties: str | None = None


def version_1_path(operator_id: int) -> str:
    """Return the path of an operator's metadata in version 1."""
    return f"{STATE}/{operator_id}/_metadata/metadata"


def version_2_folder(operator_id: int) -> str:
    """Return the folder of an operator's metadata in version 2, which has a file for each batch that changed it."""
    return f"{STATE}/{operator_id}/_metadata/v2"


def schema_folder(operator_id: int, store_name: str) -> str:
    """Return the folder of version 2's schema files (``<batch>_<uuid>``); version 1 has ``_metadata/schema`` instead."""
    return f"{STATE}/{operator_id}/_stateSchema/{store_name}"


@dataclass(frozen=True)
class SchemaFiles:
    """The schema files of a store, oldest first, and those that its metadata names but that do not exist."""

    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()


def find_schema_files(
    files: FileTree, operator_id: int, store: StoreInfo, names: Collection[str], batch: int
) -> SchemaFiles:
    """Return the schema files of a store as of a batch; ``names`` are those in its schema folder.

    The metadata names them by absolute paths, which may be those of another machine, so only their last part is used. If
    it names none, or one that does not exist, they are found by the batch in their names.
    """
    folder = schema_folder(operator_id, store.name)
    recorded = list(dict.fromkeys(path.rstrip("/").rpartition("/")[2] for path in store.schema_paths))
    missing = tuple(f"{folder}/{name}" for name in recorded if name not in names)
    if recorded and not missing:
        return SchemaFiles(tuple(f"{folder}/{name}" for name in recorded))
    newest: dict[int, str] = {}
    # A batch that was planned twice may have left two files: the one that was written last is the valid one.
    for entry in sorted(list_entries(files, folder), key=lambda entry: (entry.modified_ms or 0, entry.name)):
        number = batch_id(entry.name.partition("_")[0])
        if number is not None and number <= batch and not entry.is_folder:
            newest[number] = f"{folder}/{entry.name}"
    return SchemaFiles(tuple(newest[number] for number in sorted(newest)), missing)


def is_operator_metadata(path: str) -> bool:
    """Return whether a file of a checkpoint is an operator's metadata, of either version."""
    parts = path.split("/")
    return len(parts) >= 4 and parts[0] == STATE and parts[2] == "_metadata" and not parts[-1].startswith(".")


def with_schemas_in(data: bytes, path: str, into: FileTree) -> bytes:
    """Return metadata that names the schema files in another tree, wherever those that it names are.

    Raise ``CheckpointUnreadable`` if the metadata is corrupt.
    """
    metadata = parse_operator_metadata(data, path)
    folder = f"{STATE}/{metadata.operator_id}/"
    text = data.decode("utf-8")
    for old in {schema for store in metadata.stores for schema in store.schema_paths}:
        _, found, inside = old.rpartition(f"/{folder}")
        if found:
            new = into.spark_uri(f"{folder}{inside}", like=old)
            # Spark does not escape letters of other languages, other programs may.
            for escaped in (True, False):
                text = text.replace(json.dumps(old, ensure_ascii=escaped), json.dumps(new, ensure_ascii=escaped))
    return text.encode("utf-8")


def metadata_path(operator_id: int, v2_names: list[str], batch: int) -> str:
    """Return the file that is valid as of a batch: version 2's newest up to that batch, otherwise version 1's."""
    known = [number for number in map(batch_id, v2_names) if number is not None and number <= batch]
    return f"{version_2_folder(operator_id)}/{max(known)}" if known else version_1_path(operator_id)


def parse_operator_metadata(data: bytes, path: str) -> OperatorMetadata:
    """Return a parsed metadata file of either version."""
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_VERSION)
    if not text.body:
        raise unreadable_file("torn-file", path, "ends after its version line")
    value = json_object("\n".join(text.body), path)
    info = value.get("operatorInfo")
    stores = value.get("stateStoreInfo")
    if not isinstance(info, dict) or not isinstance(stores, list):
        raise unreadable_file("bad-json", path, "lacks operatorInfo or stateStoreInfo")
    properties = value.get("operatorPropertiesJson")
    return OperatorMetadata(
        text,
        version,
        integer_field(info, "operatorId", path),
        string_field(info, "operatorName", path),
        tuple(_store(store, path) for store in stores),
        properties if isinstance(properties, str) else None,
    )


def _store(value: Any, path: str) -> StoreInfo:
    if not isinstance(value, dict):
        raise unreadable_file("bad-json", path, "has a store in an unknown format")
    schemas = value.get("stateSchemaFilePaths")
    if schemas is None:
        # Early builds of Spark 4.0 recorded a single path.
        single = value.get("stateSchemaFilePath")
        schemas = [] if single is None else [single]
    if not isinstance(schemas, list) or not all(isinstance(schema, str) for schema in schemas):
        raise unreadable_file("bad-json", path, "has stateSchemaFilePaths in an unknown format")
    return StoreInfo(
        string_field(value, "storeName", path),
        integer_field(value, "numColsPrefixKey", path, default=0),
        integer_field(value, "numPartitions", path),
        tuple(schemas),
    )
