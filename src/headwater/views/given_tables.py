"""Rows that a program gives: an Arrow table, or a DataFrame of pandas, Spark or another library."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa


def is_table(value: object) -> bool:
    """Return whether a value can be taken as a table."""
    return isinstance(value, pa.Table) or any(
        hasattr(value, name) for name in ("toArrow", "iloc", "__arrow_c_stream__")
    )


def as_table(value: Any) -> pa.Table:
    """Return an Arrow table, a Spark or a pandas DataFrame, or anything that exports Arrow, as an Arrow table.

    A DataFrame of Spark is collected. The index of one of pandas is left out.
    """
    if isinstance(value, pa.Table):
        return value
    if hasattr(value, "toArrow"):
        return value.toArrow()
    if hasattr(value, "iloc"):
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    raise ValueError(f"expected an Arrow table or a DataFrame, not {type(value).__name__}")


def as_history(value: Any) -> str:
    """Return the URI of a folder with the rows of a table as Parquet. Equal rows get the same folder."""
    from pyarrow import parquet  # noqa: PLC0415  slow to import

    buffer = pa.BufferOutputStream()
    parquet.write_table(as_table(value).replace_schema_metadata(), buffer)
    data = buffer.getvalue()
    folder = Path(tempfile.gettempdir()) / f"headwater-history-{hashlib.sha256(data).hexdigest()[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if (
        folder.lstat().st_uid != os.getuid()
    ):  # another user, who can guess the name, must not be able to change the rows
        folder = Path(tempfile.mkdtemp(prefix="headwater-history-"))
    (folder / "history.parquet").write_bytes(data)
    return f"files:{folder}?format=parquet"
