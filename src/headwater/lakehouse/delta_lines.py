"""Append records as rows of a Delta table without Spark: one text column, ``value``, as a stream of raw records has it."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.core.buffered_writer import BufferedWriter
from headwater.core.errors import UsageProblem
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_log import DeltaLog

SCHEMA = {"type": "struct", "fields": [{"name": "value", "type": "string", "nullable": True, "metadata": {}}]}
# The oldest protocol: every reader and writer of Delta tables knows it.
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
ATTEMPTS = 100


class DeltaLineWriter(BufferedWriter):
    """Writes records as commits of a table, one data file each. Other programs may append to it at the same time."""

    def __init__(self, table: FileTree, *, records_per_file: int) -> None:
        super().__init__(records_per_file)
        self._table = table
        log = DeltaLog(table)
        if not table.can_create:
            raise _bad_target(table, "only tables on a local disk can be written without Spark")
        if log.exists:
            _refuse_other_table(table, log)

    def _write_group(self, records: Sequence[bytes]) -> None:
        data = _parquet(records)
        path = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        self._table.write(path, data)
        now_ms = time.time_ns() // 1_000_000
        file = {
            "path": path,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(records)}),
        }
        for _ in range(ATTEMPTS):
            log = DeltaLog(self._table)
            version = log.head + 1 if log.exists else 0
            actions = [_commit_info(now_ms), *([] if version else _first_actions(now_ms)), {"add": file}]
            try:
                self._table.create(commit_path(version), "\n".join(json.dumps(one) for one in actions).encode())
            except FileExistsError:  # another program has committed this version
                continue
            return
        raise _bad_target(self._table, f"other programs commit to it too often: {ATTEMPTS} attempts failed")


def _commit_info(now_ms: int) -> dict[str, Any]:
    parameters = {"mode": "Append", "partitionBy": "[]"}
    return {"commitInfo": {"timestamp": now_ms, "operation": "WRITE", "operationParameters": parameters}}


def _first_actions(now_ms: int) -> list[dict[str, Any]]:
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": now_ms,
    }
    return [{"protocol": PROTOCOL}, {"metaData": metadata}]


def _parquet(records: Sequence[bytes]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  a command that fails early does not need it
    from pyarrow import parquet  # noqa: PLC0415

    out = io.BytesIO()
    texts = [record.decode("utf-8", "replace") for record in records]
    parquet.write_table(pa.table({"value": pa.array(texts, pa.string())}), out, compression="snappy")
    return out.getvalue()


def _refuse_other_table(table: FileTree, log: DeltaLog) -> None:
    """Refuse a table with other columns, or with features that a writer has to know."""
    head = log.snapshot(log.head)
    names = [field["name"] for field in json.loads(head.metadata["schemaString"])["fields"]]
    if names != ["value"] or head.metadata.get("partitionColumns"):
        raise _bad_target(table, f"it has other columns than value: {', '.join(names)}")
    if int(head.protocol.get("minWriterVersion", 0)) > PROTOCOL["minWriterVersion"] or head.configuration:
        raise _bad_target(table, "it has features or properties that only Delta itself can write")


def _bad_target(table: FileTree, reason: str) -> UsageProblem:
    return UsageProblem(
        "bad-target",
        f"cannot write generated records to the Delta table {table.location}",
        evidence={"reason": reason},
        remedy="use another table, or generate files and copy them with a job: --to files:DIR?format=json",
    )
