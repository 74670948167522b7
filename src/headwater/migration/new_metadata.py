"""The metadata and schema files of the state that new code asks for, as Spark has planned them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import STATE, batch_id, join, parent_and_name
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.operator_metadata import version_1_path
from headwater.migration.field_plan import StorePlan
from headwater.timemachine.fork import relocated_metadata


def changed_metadata(
    logs: CheckpointLogs, planned: FileTree, plans: list[StorePlan], batch: int, operators: Collection[int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the metadata and schema files that differ from those of the checkpoint, with their contents.

    ``planned`` is an empty checkpoint for which Spark has planned the new state, and ``operators`` are those that keep their
    numbers. Custom state has numbered files, which get the number of the new batch.
    """
    changed = {
        plan.new.operator_id
        for plan in plans
        if plan.is_rewritten
        or (plan.old.schema.key_json, plan.old.schema.value_json)
        != (plan.new.schema.key_json, plan.new.schema.value_json)
    }
    for path, data in new_metadata(logs, planned, batch, changed.intersection(operators)):
        operator = int(path.split("/")[1])
        if _is_numbered(path):
            yield path, data
            continue
        is_new = not logs.files.exists(path)
        if is_new and path == version_1_path(operator):  # written by a Spark that does not know this file
            continue
        if is_new or logs.files.read(path) != data:
            yield path, data


def new_metadata(
    logs: CheckpointLogs, planned: FileTree, batch: int, operators: Collection[int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the metadata and schema files of some operators of the new code, with their contents."""
    for path in sorted(_metadata_paths(planned)):
        if int(path.split("/")[1]) not in operators:
            continue
        moved = relocated_metadata(planned, path, logs.files)
        data = planned.read(path) if moved is None else moved
        folder, name = parent_and_name(path)
        if _is_numbered(path):
            yield join(folder, _renumbered(name, batch)), _with_number(data, batch) if moved is not None else data
        else:
            yield path, data


def _is_numbered(path: str) -> bool:
    return "/_metadata/v2/" in path or "/_stateSchema/" in path


def _metadata_paths(tree: FileTree) -> Iterator[str]:
    for folder, names in tree.tree(STATE).items():
        parts = folder.split("/")
        if "_metadata" in parts or "_stateSchema" in parts:
            yield from (join(folder, name) for name in names if not name.startswith("."))


def _renumbered(name: str, batch: int) -> str:
    number, separator, rest = name.partition("_")
    return f"{batch}{separator}{rest}" if batch_id(number) is not None else name


def _with_number(metadata: bytes, batch: int) -> bytes:
    """Return operator metadata that names its schema files with the number of a batch."""
    version, text = metadata.decode("utf-8").split("\n", 1)
    value = json.loads(text)
    for store in value["stateStoreInfo"]:
        paths = [parent_and_name(path) for path in store["stateSchemaFilePaths"]]
        store["stateSchemaFilePaths"] = [join(folder, _renumbered(name, batch)) for folder, name in paths]
    return f"{version}\n{json.dumps(value, separators=(',', ':'), ensure_ascii=False)}".encode()
