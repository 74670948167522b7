"""``headwater state``: the state of a checkpoint as of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import (
    BATCH_HELP,
    ENGINE,
    OPERATOR,
    SCHEMA,
    SHOWN_ROWS,
    STORE,
    VAR,
    Engine,
    open_state,
    parse_key,
    rows_to_show,
)
from headwater.core.errors import UsageProblem
from headwater.core.ids import StoreRef
from headwater.core.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.spark.state_source import StateSource
    from headwater.statefiles.answer import StateAnswer
    from headwater.views.state_cells import Cells


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


@app.command(rich_help_panel=INSPECT)
def state(
    checkpoint: CheckpointName,
    at: Annotated[str, typer.Option(metavar="BATCH", help=BATCH_HELP)] = "HEAD",
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only keys with this field value. Repeatable."),
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that meet this condition.")] = None,
    sql: Annotated[
        str | None, typer.Option(metavar="SQL", help="Query to run on the table state: select … from state")
    ] = None,
    view: Annotated[
        bool, typer.Option("--view", help="Show the rows that the job's state_view makes of the state. Loads the job.")
    ] = False,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Job for --view, if the checkpoint does not record it.")
    ] = None,
    schema: Annotated[str | None, SCHEMA] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Output file; required for parquet.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Maximum number of rows, 0 for all. A table shows {SHOWN_ROWS} by default."),
    ] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json: one JSON object per line.")] = False,
) -> None:
    """Show the state as of a batch, decoded to columns.

    Shows every row of every state store. Fields have the names that the schema in the checkpoint gives them. In --where,
    --sql, tables and files, the fields of key and value are columns, and a repeated name gets a suffix (count, count_2).
    With --view, the rows and columns are those of the job's state_view. Does not start Spark, unless only Spark can read
    the state files.

    Examples:
      headwater state browser-stats-stateful --at HEAD~1 --where "browser = 'Firefox'"
      headwater state weekly-totals --view
    """
    form = Format.json if as_json else form
    if form == Format.parquet and out is None:
        raise UsageProblem("no-file", "parquet output needs a file", remedy="add --out state.parquet")
    if form == Format.table and out is not None:
        raise UsageProblem(
            "bad-option",
            "--out has no effect on a table, which is only printed",
            remedy=f"--format csv|json|parquet --out {out}",
        )
    ref = StoreRef(operator, store, var)
    source = open_state(checkpoint, ref, schema=schema, engine=engine)
    source, batch = source.at(at)
    if view:
        _refuse_with_view(store=store, var=var, key=key)
        _print_view(source, batch, job, where, sql, form, out, limit)
        return
    if job is not None:
        raise UsageProblem("bad-option", "--job has no effect without --view", remedy="add --view")
    one = sql is not None or form in (Format.csv, Format.parquet)
    fields = parse_key(key) if key else None
    answers = source.answers_in_parts(batch, one=one, key=fields, where=where)
    if sql is not None:
        from headwater.views.state_parts import query

        _print_query_result(query(answers[0], sql), form, out, limit)
        return
    for number, answer in enumerate(answers):
        _print_state(answer, batch, form, out, limit, append=number > 0)


def _refuse_with_view(**options: object) -> None:
    """Raise for options that would hide a part of the state from the job's function."""
    for name, value in options.items():
        if value:
            raise UsageProblem(
                "bad-option",
                f"--{name} cannot be combined with --view, which needs every row of the state",
                remedy=f"omit --{name}; --where and --sql apply to the rows of the view",
            )


def _print_view(
    source: StateSource,
    batch: int,
    job: str | None,
    where: str | None,
    sql: str | None,
    form: Format,
    out: Path | None,
    limit: int | None,
) -> None:
    from headwater.spark.recorded_job import job_with_state_view
    from headwater.views.job_view import view_table

    chosen, view = job_with_state_view(source.files, job)
    rows = view_table(source.answers(batch), view, chosen.name)
    if where is not None or sql is not None:
        from headwater.views import state_sql

        rows = rows if where is None else state_sql.where_in_table(rows, where)
        rows = rows if sql is None else state_sql.sql_on_table(rows, sql)
    if form == Format.table:
        note(f"state of {chosen.name} after batch {batch}: {count(rows.num_rows, 'row')}")
    if rows.num_columns:
        _print_query_result(iter([rows]), form, out, limit)
    elif out is not None:
        note(f"{out} was not written: the view has no rows")


def _print_state(
    parts: Iterator[StateAnswer], batch: int, form: Format, out: Path | None, limit: int | None, *, append: bool
) -> None:
    if form == Format.table:
        _print_state_table(parts, batch, limit)
        return
    from headwater.views.state_parts import limited

    shown = limited(parts, limit or None)
    if form == Format.json:
        from headwater.views.state_lines import state_lines

        _write_lines((line for part in shown for line in state_lines(part)), out, append=append)
    else:
        _write_file((part.flat() for part in shown), form, out)


def _print_state_table(parts: Iterator[StateAnswer], batch: int, limit: int | None) -> None:
    from headwater.views.state_cells import state_cells
    from headwater.views.state_parts import first_and_total
    from headwater.views.state_table import MAX_SORTED_ROWS

    most = rows_to_show(limit)
    # If there are too many rows to sort, the first ones are shown.
    answer, rows = first_and_total(parts, None if most is None else max(most, MAX_SORTED_ROWS))
    name = f"variable {answer.var}" if answer.var else f"store {answer.store}"
    note(f"operator {answer.operator_id}, {name}, after batch {batch}: {count(rows, 'row')}")
    if rows:
        _print_cells(replace(state_cells(answer, most), total=rows))


def _print_query_result(parts: Iterator[pa.Table], form: Format, out: Path | None, limit: int | None) -> None:
    from headwater.views.state_parts import first_tables, limited_tables

    if form == Format.json:
        from headwater.views.state_lines import table_lines

        shown = limited_tables(parts, limit or None)
        _write_lines((line for part in shown for line in table_lines(part)), out)
    elif form in (Format.csv, Format.parquet):
        _write_file(limited_tables(parts, limit or None), form, out)
    else:
        from headwater.views.state_cells import table_cells

        most = rows_to_show(limit)
        rows, total = first_tables(parts, most)
        _print_cells(replace(table_cells(rows, most), total=total))


def _print_cells(cells: Cells) -> None:
    table(cells.columns, cells.rows)
    if cells.omitted:
        note(f"{cells.omitted:,} more; --limit 0 shows all, --format csv|json|parquet --out FILE writes them to a file")


def _write_lines(lines: Iterable[str], out: Path | None, *, append: bool = False) -> None:
    if out is None:
        for line in lines:
            say(line)
        return
    with out.open("a" if append else "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _write_file(tables: Iterable[pa.Table], form: Format, out: Path | None) -> None:
    from headwater.views.state_parts import csv_parts, write_csv, write_parquet

    if out is None:
        for text in csv_parts(tables):
            say(text.rstrip("\n"))
        return
    rows = write_parquet(tables, out) if form == Format.parquet else write_csv(tables, out)
    note(f"{count(rows, 'row')} written to {out}")
