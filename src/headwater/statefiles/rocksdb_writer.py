"""Write a RocksDB snapshot as Spark does: ``V.zip`` with RocksDB's small files, and table files under ``SSTs/``.

RocksDB itself writes the tables, in a temporary folder, so that they contain the given rows and nothing else.
"""

from __future__ import annotations

import json
import tempfile
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.checkpoint.layout import SST_FOLDER
from headwater.checkpoint.rocksdb_zip import METADATA

Row = tuple[bytes, bytes]
_FAMILY_BYTES = 2
_IN_ZIP = ("MANIFEST-", "CURRENT")
_ROWS_AT_ONCE = 10_000
# The newest one that every Spark with RocksDB reads, and that Headwater reads without RocksDB.
_TABLE_FORMAT = 5


def write_snapshot(
    folder: Path, stem: str, rows: Iterable[Row], like: Mapping[str, Any] | None, version: int = 1
) -> list[str]:
    """Write the files of a snapshot with these rows to an empty folder. Return their paths below it.

    ``stem`` is its version, with the id of checkpoint format 2. ``like`` is the metadata of another snapshot of the store,
    with its column families; None if there is none. ``version`` is that of the metadata. The zip file is the last path,
    because it names the others.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-state-", dir=folder) as place:
        families = _write_database(Path(place), rows)
        tables = sorted(Path(place).glob("*.sst"))
        names = {table.name: f"{table.stem}-{uuid.uuid4()}.sst" for table in tables}
        metadata = _metadata({table.name: table.stat().st_size for table in tables}, names, families, like)
        with zipfile.ZipFile(folder / f"{stem}.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
            for file in sorted(Path(place).iterdir()):
                if file.name.startswith(_IN_ZIP):
                    zipped.write(file, file.name)
            zipped.writestr(METADATA, f"v{version}\n{json.dumps(metadata, separators=(',', ':'))}")
        (folder / SST_FOLDER).mkdir(exist_ok=True)
        for table in tables:
            table.rename(folder / SST_FOLDER / names[table.name])
    return [*(f"{SST_FOLDER}/{names[table.name]}" for table in tables), f"{stem}.zip"]


def _write_database(folder: Path, rows: Iterable[Row]) -> Counter[bytes]:
    """Write rows to a new database. Return the number of rows by the first bytes of their keys, which name the family."""
    from rocksdict import (  # noqa: PLC0415  rarely needed
        BlockBasedOptions,
        DBCompressionType,
        Options,
        Rdict,
        WriteBatch,
        WriteOptions,
    )

    options, tables, unlogged = Options(raw_mode=True), BlockBasedOptions(), WriteOptions()
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    tables.set_format_version(_TABLE_FORMAT)
    options.set_block_based_table_factory(tables)
    unlogged.disable_wal = True
    families: Counter[bytes] = Counter()
    database = Rdict(str(folder), options)
    try:
        waiting = iter(rows)
        while some := list(islice(waiting, _ROWS_AT_ONCE)):
            batch = WriteBatch(raw_mode=True)
            for key, value in some:
                batch.put(key, value)
            database.write(batch, unlogged)
            families.update(key[:_FAMILY_BYTES] for key, _ in some)
        database.flush()
    finally:
        database.close()
    return families


def _metadata(
    sizes: Mapping[str, int], names: Mapping[str, str], families: Counter[bytes], like: Mapping[str, Any] | None
) -> dict[str, Any]:
    old = {name: value for name, value in (like or {}).items() if name != "logFiles"}
    internal = {
        int(old["columnFamilyMapping"][name]).to_bytes(_FAMILY_BYTES, "little", signed=True)
        for name, is_internal in (old.get("columnFamilyTypeMap") or {}).items()
        if is_internal and name in (old.get("columnFamilyMapping") or {})
    }
    hidden = sum(families[family] for family in internal)
    counts = {"numKeys": families.total() - hidden, **({"numInternalKeys": hidden} if "numInternalKeys" in old else {})}
    tables = [{"localFileName": name, "dfsSstFileName": names[name], "sizeBytes": size} for name, size in sizes.items()]
    return {**old, "sstFiles": tables, **counts}
