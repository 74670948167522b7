"""``headwater history``: the value of a key after each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import OPERATOR, SCHEMA, STORE, VAR, open_state, parse_key
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.timemachine.key_history import KeyHistory


@app.command(rich_help_panel=INSPECT)
def history(
    checkpoint: CheckpointName,
    key: Annotated[list[str], typer.Option(metavar="FIELD=VALUE", help="Field of the key. Repeatable.")],
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    schema: Annotated[str | None, SCHEMA] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Omit batches that did not change the key.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Show the value of a key after each batch.

    Covers the batches whose state can still be rebuilt. If only some fields of the key are given, every key that has
    them is shown. Write a nested field as window.start and a null as null. Does not start Spark.

    Example:
      headwater history browser-stats-stateful --key browser=Firefox
    """
    fields = parse_key(key)
    source = open_state(checkpoint, StoreRef(operator, store, var), schema=schema)
    histories = source.key_histories(fields, changes_only=changes)
    for found in histories:
        if as_json:
            from headwater.views.state_lines import history_lines

            for line in history_lines(found, alone=len(histories) == 1):
                say(line)
        else:
            _print_table(found)
    if not any(len(found) for found in histories):
        note("no such key in any batch whose state can be rebuilt")


def _print_table(found: KeyHistory) -> None:
    from headwater.views.state_cells import history_cells

    if not len(found):
        return
    note(f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}")
    cells = history_cells(found)
    table(cells.columns, cells.rows)
