"""``headwater diff``: what changed in the state between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import (
    ENGINE,
    OPERATOR,
    SCHEMA,
    SHOWN_ROWS,
    STORE,
    VAR,
    Engine,
    open_state,
    rows_to_show,
)
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.timemachine.diff import StateDiff


@app.command(rich_help_panel=INSPECT)
def diff(
    checkpoint: CheckpointName,
    a: Annotated[
        str, typer.Argument(metavar="A", help="Earlier batch: 41, HEAD~3, @10:30 (UTC) or the name of a restore point.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Later batch.")] = "HEAD",
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    schema: Annotated[str | None, SCHEMA] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Maximum number of keys, 0 for all. A table shows {SHOWN_ROWS} by default."),
    ] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: JsonLines = False,
) -> None:
    """Show the keys that were added, removed or changed between two batches.

    Shows the old and the new value of each key. Where the state store keeps the changes of each batch, only these are
    read. Does not start Spark, unless only Spark can read the state files.

    Example:
      headwater diff browser-stats-stateful HEAD~1 HEAD
    """
    ref = StoreRef(operator, store, var)
    source = open_state(checkpoint, ref, schema=schema, engine=engine)
    first, second, diffs = source.diffs_between(a, b)
    for found in diffs:
        if as_json:
            from headwater.views.state_lines import diff_lines

            for line in diff_lines(found.slice(limit) if limit else found):
                say(line)
        else:
            _print_table(found, first, second, limit)


def _print_table(found: StateDiff, first: int, second: int, limit: int | None) -> None:
    from headwater.views.state_cells import diff_cells, diff_counts

    name = f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}"
    note(f"{name}, batch {first} to {second}: {diff_counts(found)}")
    if not len(found):
        return
    cells = diff_cells(found, rows_to_show(limit))
    table(cells.columns, cells.rows)
    if cells.omitted:
        note(f"{cells.omitted:,} more; --limit 0 shows all")
