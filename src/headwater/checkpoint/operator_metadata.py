"""``state/N/_metadata``: what a stateful operator is called and which stores it has. Written since Spark 4.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.layout import STATE, batch_id
from headwater.checkpoint.logtext import LogText, broken, json_object, string, whole_number

NEWEST_VERSION = 2


@dataclass(frozen=True)
class StoreInfo:
    """One store of an operator. ``schema_paths`` are absolute URIs, in version 2 (custom state) only."""

    name: str
    prefix_columns: int
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorMetadata:
    text: LogText
    version: int
    operator_id: int
    operator_name: str
    stores: tuple[StoreInfo, ...]
    properties: str | None = None

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()


def version_1_path(operator_id: int) -> str:
    return f"{STATE}/{operator_id}/_metadata/metadata"


def version_2_folder(operator_id: int) -> str:
    return f"{STATE}/{operator_id}/_metadata/v2"


def schema_folder(operator_id: int, store_name: str) -> str:
    """Where version 2 keeps schema files, named ``<batch>_<uuid>``; version 1 has ``_metadata/schema`` in a partition."""
    return f"{STATE}/{operator_id}/_stateSchema/{store_name}"


def metadata_path(operator_id: int, v2_names: list[str], batch: int) -> str:
    """The file that holds as of a batch: of version 2 the newest not after it, else the one of version 1."""
    known = [number for number in map(batch_id, v2_names) if number is not None and number <= batch]
    return f"{version_2_folder(operator_id)}/{max(known)}" if known else version_1_path(operator_id)


def parse_operator_metadata(data: bytes, path: str) -> OperatorMetadata:
    text = LogText.from_bytes(data, path)
    version = text.version(path, newest=NEWEST_VERSION)
    if not text.body:
        raise broken("torn-file", path, "ends after its version line")
    value = json_object("\n".join(text.body), path)
    info = value.get("operatorInfo")
    stores = value.get("stateStoreInfo")
    if not isinstance(info, dict) or not isinstance(stores, list):
        raise broken("bad-json", path, "lacks operatorInfo or stateStoreInfo")
    properties = value.get("operatorPropertiesJson")
    return OperatorMetadata(
        text,
        version,
        whole_number(info, "operatorId", path),
        string(info, "operatorName", path),
        tuple(_store(store, path) for store in stores),
        properties if isinstance(properties, str) else None,
    )


def _store(value: Any, path: str) -> StoreInfo:
    if not isinstance(value, dict):
        raise broken("bad-json", path, "names a store in an unknown shape")
    schemas = value.get("stateSchemaFilePaths", [])
    if not isinstance(schemas, list):
        raise broken("bad-json", path, "names schema files in an unknown shape")
    return StoreInfo(
        string(value, "storeName", path),
        whole_number(value, "numColsPrefixKey", path, default=0),
        whole_number(value, "numPartitions", path),
        tuple(str(schema) for schema in schemas),
    )
