"""``headwater state``: a checkpoint's state as of a batch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import note, say, table
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.statefiles.reader import StateAnswer

SHOWN_ROWS = 50
NULL = "null"


class Engine(StrEnum):
    auto = "auto"
    native = "native"
    spark = "spark"


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


OPERATOR = typer.Option(help="Only this stateful operator.")
STORE = typer.Option(help="Only this store, such as left-keyToNumValues of a join.")
VAR = typer.Option(help="Only this variable of custom state; 'timers' for its timers. Hidden ones by their names.")
ENGINE = typer.Option(help="native reads the files itself, spark asks Spark; auto is native where it can.")


@app.command(rich_help_panel=LOOK)
def state(
    checkpoint: CheckpointName,
    at: Annotated[str, typer.Option(metavar="BATCH", help="41, HEAD, HEAD~3, @10:30 (UTC)")] = "HEAD",
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="Only keys with this field; the fast way to a key.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this holds.")] = None,
    sql: Annotated[str | None, typer.Option(metavar="SQL", help="A question: select … from state")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="A file to write to; parquet needs one.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"At most so many rows, 0 for all; a table has {SHOWN_ROWS}.")
    ] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: an object a line.")] = False,
) -> None:
    """Show the state as it was after a batch: every row of every store, decoded to columns.

    Fields have the names that the checkpoint's own schema has for them. In --where, --sql, tables and files the fields of
    key and value are columns, and a name that repeats gets a suffix (count, count_2). Starts no Spark.

    Example:
      headwater state browser-stats-stateful --at HEAD~1 --where "browser = 'Firefox'"
    """
    from headwater.cli.state_source import StateSource

    form = Format.json if as_json else form
    if form == Format.parquet and out is None:
        raise UsageProblem("no-file", "parquet is written to a file", remedy="add --out state.parquet")
    source = StateSource(checkpoint, engine)
    batch = source.resolve(at)
    one = sql is not None or form in (Format.csv, Format.parquet)
    asked = key_texts(key) if key else None
    answers = source.answers(batch, operator=operator, store=store, var=var, one=one, key=asked)
    if where is not None:
        from headwater.views import state_sql

        answers = [state_sql.where(answer, where) for answer in answers]
    if sql is not None:
        from headwater.views import state_sql

        _show_table(state_sql.sql(answers[0], sql), form, out, limit)
        return
    for number, answer in enumerate(answers):
        _show(answer, batch, form, out, limit, more=number > 0)


def key_texts(given: list[str]) -> dict[str, str]:
    """What was written as FIELD=VALUE, once or more."""
    asked = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageProblem("bad-key", f"{text!r} is no FIELD=VALUE", remedy="--key browser=Firefox")
        asked[name] = value
    return asked


def _show(answer: StateAnswer, batch: int, form: Format, out: Path | None, limit: int | None, *, more: bool) -> None:
    if form == Format.table:
        _show_rows(answer, batch, limit)
        return
    shown = answer.with_table(answer.table.slice(0, limit)) if limit else answer
    if form == Format.json:
        from headwater.views.state_lines import state_lines

        _write_text(state_lines(shown), out, more=more)
    else:
        _write_file(shown.flat(), form, out)


def _show_rows(answer: StateAnswer, batch: int, limit: int | None) -> None:
    from headwater.views.state_table import cell_texts, fields_of, in_order, readable, settled
    from headwater.views.words import count

    rows = answer.keyed()
    about = f"operator {answer.operator_id}, {'variable ' + answer.var if answer.var else 'store ' + answer.store}"
    note(f"{about}, after batch {batch}: {count(rows.num_rows, 'row')}")
    if not rows.num_rows:
        return
    keys = fields_of(answer.key_type, settled(rows["key"]))
    values = fields_of(answer.value_type, settled(rows["value"]))
    names, types, columns = keys[0] + values[0], keys[1] + values[1], keys[2] + values[2]
    # The elements of a list have an order of their own.
    order = in_order(keys[2] if "list_element" in answer.table.column_names else columns)
    types, columns = readable(names, types, columns)
    most = rows.num_rows if limit == 0 else min(rows.num_rows, limit or SHOWN_ROWS)
    from headwater.statefiles.sqltypes import distinct

    texts = []
    for kind, column in zip(types, columns, strict=True):
        chosen = column.take(order.slice(0, most)) if order is not None else column.slice(0, most)
        texts.append([NULL if text is None else text for text in cell_texts(kind, chosen)])
    table(distinct(names), zip(*texts, strict=True))
    _say_rest(rows.num_rows, most)


def _say_rest(rows: int, shown: int) -> None:
    if rows > shown:
        note(f"{rows - shown:,} more; --limit 0 shows all, --format csv|json|parquet --out FILE writes them")


def _show_table(rows: pa.Table, form: Format, out: Path | None, limit: int | None) -> None:
    from headwater.views.state_table import cell_texts, settled, sql_type_of

    if form == Format.json:
        from headwater.views.state_lines import table_lines

        _write_text(table_lines(rows.slice(0, limit) if limit else rows), out)
    elif form in (Format.csv, Format.parquet):
        _write_file(rows.slice(0, limit) if limit else rows, form, out)
    else:
        most = rows.num_rows if limit == 0 else min(rows.num_rows, limit or SHOWN_ROWS)
        columns = [settled(column) for column in rows.slice(0, most).columns]
        texts = [cell_texts(sql_type_of(column.type), column) for column in columns]
        table(rows.column_names, zip(*texts, strict=True))
        _say_rest(rows.num_rows, most)


def _write_text(lines: object, out: Path | None, *, more: bool = False) -> None:
    from collections.abc import Iterable

    assert isinstance(lines, Iterable)
    if out is None:
        for line in lines:
            say(line)
        return
    with out.open("a" if more else "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _write_file(rows: pa.Table, form: Format, out: Path | None) -> None:
    from headwater.views.state_table import csv_text, write_parquet

    if form == Format.parquet:
        assert out is not None
        write_parquet(rows, out)
    elif out is None:
        say(csv_text(rows).rstrip("\n"))
    else:
        out.write_text(csv_text(rows), encoding="utf-8")
    if out is not None:
        note(f"{rows.num_rows:,} rows in {out}")
