"""State that comes in parts: filtered, queried, counted and written to files without all of it in memory."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.statefiles.answer import StateAnswer

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MEMORY = "300MB"
_QUERIED_AT_ONCE = 500_000
_SAMPLE_ROWS = 10_000


def joined_answer(parts: Iterator[StateAnswer]) -> StateAnswer:
    """Return all parts as one."""
    first = next(parts)
    rest = [part.table for part in parts]
    return first.with_table(pa.concat_tables([first.table, *rest])) if rest else first


def filtered(parts: Iterator[StateAnswer], condition: str | None) -> Iterator[StateAnswer]:
    """Return the rows that meet a condition, if there is one."""
    if condition is None:
        return parts
    from headwater.views import state_sql  # noqa: PLC0415  not every state is filtered

    if state_sql.needs_all_rows(condition):
        return iter([state_sql.where(joined_answer(parts), condition)])
    return (state_sql.where(part, condition) for part in parts)


def limited(parts: Iterable[StateAnswer], most: int | None) -> Iterator[StateAnswer]:
    """Yield the first rows, at most so many; None for all."""
    if most is None:
        yield from parts
        return
    for part in parts:
        yield part.with_table(part.table.slice(0, most))
        most -= min(most, part.table.num_rows)
        if not most:
            return


def limited_tables(parts: Iterable[pa.Table], most: int | None) -> Iterator[pa.Table]:
    """Yield the first rows of tables, at most so many; None for all."""
    if most is None:
        yield from parts
        return
    for part in parts:
        yield part.slice(0, most)
        most -= min(most, part.num_rows)
        if not most:
            return


def first_and_total(parts: Iterator[StateAnswer], enough: int | None) -> tuple[StateAnswer, int]:
    """Return the first parts, until they have more than enough rows, and the number of rows of all parts."""
    first = next(parts)
    table, total = first_tables(chain([first.table], (part.table for part in parts)), enough)
    return first.with_table(table), total


def first_tables(parts: Iterator[pa.Table], enough: int | None) -> tuple[pa.Table, int]:
    """Return the same for tables."""
    first = [next(parts)]
    total = first[0].num_rows
    for part in parts:
        if enough is None or total <= enough:
            first.append(part)
        total += part.num_rows
    return pa.concat_tables(first), total


def query(parts: Iterator[StateAnswer], text: str) -> Iterator[pa.Table]:
    """Return the result of a query on the table ``state``, in parts, at least one."""
    from headwater.views import state_sql  # noqa: PLC0415  not every state is queried

    first: list[StateAnswer] = []
    rows = 0
    for part in parts:
        first.append(part)
        rows += part.table.num_rows
        if rows > _QUERIED_AT_ONCE:
            return _query_large(chain(first, parts), first[0], text)
    return iter([state_sql.sql(joined_answer(iter(first)), text)])


def _query_large(parts: Iterator[StateAnswer], first: StateAnswer, text: str) -> Iterator[pa.Table]:
    from headwater.views import state_sql  # noqa: PLC0415  not every state is queried

    with _temporary_folder() as folder:
        yield from state_sql.sql_on_stream(
            first, (part.flat() for part in parts), text, folder=folder, memory=_MEMORY, once=_reads_once(text)
        )


def _reads_once(text: str) -> bool:
    """Return whether a query cannot read its table twice."""
    plain = re.sub(r"'(?:[^']|'')*'", "''", text)
    return all(len(re.findall(rf"\b{word}\b", plain, re.IGNORECASE)) <= 1 for word in ("select", "from", "state"))


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-state-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_parquet(tables: Iterable[pa.Table], path: Path) -> int:
    """Write tables to a Parquet file, which appears when it is complete; return the number of rows."""
    from pyarrow import parquet  # noqa: PLC0415  rarely needed

    from headwater.views.state_table import for_parquet  # noqa: PLC0415

    rows = 0
    with _replacing(path) as draft, ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in map(for_parquet, tables):
            if writer is None:
                repeated = [path for column in table.schema for path in _repeated_paths(column, table)]
                writer = stack.enter_context(parquet.ParquetWriter(draft, table.schema, use_dictionary=repeated))
            if table.num_rows or not rows:
                writer.write_table(table)
            rows += table.num_rows
    return rows


def _repeated_paths(column: pa.Field, table: pa.Table) -> Iterator[str]:
    """Yield the columns of the file for which a dictionary pays off: those of which a sample has few different values."""
    from pyarrow import compute  # noqa: PLC0415  rarely needed

    if pa.types.is_nested(column.type):
        yield from _leaves(column.name, column.type)
        return
    sample = table.column(column.name).slice(0, _SAMPLE_ROWS)
    if len(sample) < _SAMPLE_ROWS or 2 * compute.count_distinct(sample).as_py() < _SAMPLE_ROWS:
        yield column.name


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def write_csv(tables: Iterable[pa.Table], path: Path) -> int:
    """Write tables to a csv file with one header, which appears when it is complete; return the number of rows."""
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            rows += table.num_rows
            yield table

    with _replacing(path) as draft, draft.open("w", encoding="utf-8") as out:
        out.writelines(csv_parts(counted()))
    return rows


def csv_parts(tables: Iterable[pa.Table]) -> Iterator[str]:
    """Yield tables as csv, with a header before the first."""
    from headwater.views.state_table import csv_text  # noqa: PLC0415

    is_first = True
    for table in tables:
        if is_first or table.num_rows:
            yield csv_text(table, header=is_first)
        is_first = False


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Return a draft that replaces a file if everything goes well, and is removed otherwise."""
    draft = path.with_name(f".{path.name}.headwater.tmp")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
