"""State in files: exported tables, in Parquet or Arrow, one for each store and variable; and rows for an edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.timemachine.transfer import origin_of

_FORMATS = (".parquet", ".arrow")


def write_tables(tables: Sequence[pa.Table | pa.RecordBatchReader], out: str) -> dict[Path, int]:
    """Write exported tables or streams: one to a file, or each to a file in a folder. Return the rows of each file."""
    path = Path(out)
    suffix = path.suffix.lower()
    if suffix in _FORMATS and len(tables) > 1:
        labels = [origin_of(table, "").label for table in tables]
        raise UsageProblem(
            "which-state",
            f"there are {len(tables)} stores and variables, which do not fit into one file",
            evidence={"stores and variables": "; ".join(labels)},
            remedy=f"give a folder: {path.with_suffix('')}   (or choose one with --operator, --store or --var)",
        )
    if suffix in _FORMATS:
        return {path: _write(tables[0], path)}
    if suffix:
        raise UsageProblem(
            "bad-file", f"{out} has an unknown suffix", remedy="use .parquet or .arrow, or give a folder"
        )
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise UsageProblem("not-empty", f"the folder {out} is not empty", remedy="give a new folder")
    written = {}
    for table in tables:
        name = origin_of(table, out).file_stem.replace("$", "").replace("/", "_")
        suffix = ".arrow" if any(map(_has_interval, table.schema.types)) else ".parquet"
        file = path / f"{name}{suffix}"
        written[file] = _write(table, file)
    return written


def read_tables(source: str) -> dict[str, pa.Table]:
    """Return the exported tables in a file, or in the files of a folder."""
    path = Path(source)
    if not path.is_dir():
        return {source: read_table(source)}
    files = sorted(one for one in path.iterdir() if one.suffix.lower() in _FORMATS)
    if not files:
        raise UsageProblem("no-file", f"the folder {source} contains no exported state")
    return {str(one): read_table(str(one)) for one in files}


def read_table(path: str) -> pa.Table:
    """Return a Parquet, Arrow, CSV or JSON Lines file as a table, chosen by its suffix."""
    suffix = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise UsageProblem("no-file", f"there is no file {path}")
    try:
        table = _read_file(path, suffix)
        if table is not None:
            table.validate(full=True)  # lengths and offsets of a corrupt file lead anywhere in memory
    except (pa.ArrowException, ValueError, KeyError, OSError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageProblem("bad-file", f"{path} cannot be read", evidence={"reason": reason}) from None
    if table is None:
        raise UsageProblem("bad-file", f"{path} has an unknown suffix", remedy="use .parquet, .arrow, .csv or .json")
    return table


def _read_file(path: str, suffix: str) -> pa.Table | None:
    match suffix:
        case ".parquet":
            import pyarrow.parquet as pq  # noqa: PLC0415  slow to import

            return pq.read_table(path)
        case ".arrow" | ".feather" | ".ipc":
            with pa.memory_map(path) as source:
                return pa.ipc.open_file(source).read_all()
        case ".csv":
            from pyarrow import csv  # noqa: PLC0415

            return csv.read_csv(path)
        case ".json" | ".jsonl":
            from pyarrow import json as json_lines  # noqa: PLC0415

            return json_lines.read_json(path)
        case _:
            return None


def _write(table: pa.Table | pa.RecordBatchReader, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    batches = iter(table.to_batches() if isinstance(table, pa.Table) else table)
    if path.suffix.lower() == ".arrow":
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            return _write_batches(batches, writer)
    if any(map(_has_interval, table.schema.types)):
        raise UsageProblem(
            "bad-file",
            "the state contains intervals of months, which Parquet cannot represent",
            remedy=f"write an Arrow file: {path.with_suffix('.arrow')}",
        )
    from pyarrow import parquet  # noqa: PLC0415  slow to import

    with parquet.ParquetWriter(path, table.schema) as writer:
        return _write_batches(batches, writer)


def _write_batches(batches: Iterator[pa.RecordBatch], writer: Any) -> int:
    rows = 0
    for batch in batches:
        writer.write_batch(batch)
        rows += batch.num_rows
    return rows


def _has_interval(kind: pa.DataType) -> bool:
    return pa.types.is_interval(kind) or any(_has_interval(kind.field(each).type) for each in range(kind.num_fields))
