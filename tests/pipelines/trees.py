"""Pipelines that real Spark wrote, as archives: storage folder, tables and input of a pipeline of three flows.

`spark-pipelines` of PySpark 4.2.0 ran the pipeline of `test_on_spark` once for each input file or two, with tables of
Parquet files (`files.tar.xz`) and with Delta 4.4.0 (`delta.tar.xz`). `pack` makes such an archive.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from headwater.core.times import iso_from_ms

HERE = Path(__file__).parent
PACKED_AT = b"/data/shop"
STREAMING = ("sales", "big_sales", "totals")
DATABASES = {"files": "default", "delta": "shop2"}


def pack(home: Path, archive: Path, folders: Iterable[str] = ("storage", "in", "spark-warehouse")) -> None:
    """Write an archive of a pipeline. Hadoop's checksums are left out: paths in the files are replaced."""
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(path for folder in folders for path in (home / folder).rglob("*")):
            if not file.is_file() or (file.name.startswith(".") and file.name.endswith(".crc")):
                continue
            data = _replaced(file.read_bytes(), str(home).encode(), PACKED_AT)
            info = tarfile.TarInfo(str(file.relative_to(home)))
            info.size, info.mtime = len(data), file.stat().st_mtime
            tar.addfile(info, io.BytesIO(data))


def unpack(kind: str, home: Path) -> Path:
    """Unpack a pipeline and write its spec. Return the folder of both."""
    with tarfile.open(HERE / f"{kind}.tar.xz") as tar:
        for member in tar.getmembers():
            file = home / member.name
            file.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            file.write_bytes(_replaced(content.read(), PACKED_AT, str(home).encode()))
            set_time(file, member.mtime)
    (home / "spark-pipeline.yml").write_text(f"name: shop\nstorage: file://{home}/storage  # checkpoints\n")
    return home


def _replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    return data if data.startswith(b"PAR1") else data.replace(old, new)


def set_time(file: Path, seconds: float) -> None:
    os.utime(file, (seconds, seconds))


def checkpoint_of(home: Path, flow: str, version: int = 0) -> Path:
    (folder,) = (home / "storage/_checkpoints").glob(f"*/*/{flow}/{flow}/{version}")
    return folder


def committed_at(home: Path, flow: str, batch: int) -> float:
    return (checkpoint_of(home, flow) / "commits" / str(batch)).stat().st_mtime


def just_before(home: Path, flow: str, batch: int) -> str:
    """Return the time right before a batch was committed, as a user gives it."""
    return iso_from_ms(int(committed_at(home, flow, batch) * 1000) - 1)


def table_folder(home: Path, table: str) -> Path:
    (folder,) = [*(home / "spark-warehouse").glob(table), *(home / "spark-warehouse").glob(f"*.db/{table}")]
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a table as its readers see them, in some order that depends only on the rows."""
    if (folder / "_delta_log").is_dir():
        found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    else:
        files = _logged(folder) if (folder / "_spark_metadata").is_dir() else folder.glob("*.parquet")
        found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=str)


def _logged(folder: Path) -> set[Path]:
    logs = [file for file in (folder / "_spark_metadata").iterdir() if not file.name.startswith(".")]
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    return {folder / unquote(line["path"]).rpartition("/")[2] for line in lines}


def tables_of(home: Path) -> dict[str, list[dict[str, Any]]]:
    return {table: rows_of(table_folder(home, table)) for table in STREAMING}
