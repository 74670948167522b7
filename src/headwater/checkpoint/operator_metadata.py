"""``state/N/_metadata``: the name and the stores of a stateful operator. Spark writes it since 4.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.layout import STATE, batch_id
from headwater.checkpoint.logtext import LogText, integer_field, json_object, string_field, unreadable_file

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
        raise unreadable_file("bad-json", path, "has a store of an unknown form")
    schemas = value.get("stateSchemaFilePaths", [])
    if not isinstance(schemas, list):
        raise unreadable_file("bad-json", path, "has stateSchemaFilePaths of an unknown form")
    return StoreInfo(
        string_field(value, "storeName", path),
        integer_field(value, "numColsPrefixKey", path, default=0),
        integer_field(value, "numPartitions", path),
        tuple(str(schema) for schema in schemas),
    )
