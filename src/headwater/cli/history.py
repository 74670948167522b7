"""``headwater history``: the value of a key after each batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import OPERATOR, SCHEMA, STORE, VAR, open_state, parse_key
from headwater.core.errors import UsageProblem
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.spark.state_source import StateSource
    from headwater.timemachine.key_history import KeyHistory


@app.command(rich_help_panel=INSPECT)
def history(
    checkpoint: CheckpointName,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Field of the key. Repeatable.", show_default=False),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Find keys by a part of a field, or by its beginning: 'ann*'."),
    ] = None,
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

    With --search, find keys over all these batches, including those that were removed, and the batches that changed each one.

    Example:
      headwater history browser-stats-stateful --key browser=Firefox
      headwater history browser-stats-stateful --search 'fire*'
    """
    if bool(key) == bool(search):
        raise UsageProblem("bad-option", "give either --key or --search", remedy="--key browser=Firefox")
    source = open_state(checkpoint, StoreRef(operator, store, var), schema=schema)
    if search:
        _search(source, search, as_json=as_json)
        return
    fields = parse_key(key or [])
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


def _search(source: StateSource, text: str, *, as_json: bool) -> None:
    from headwater.views.key_search import found_as_dict, search_keys

    for target in source.targets(source.reader.latest()):
        *_, found = search_keys(source.reader, target, text)
        if as_json:
            for key in found.keys:
                say(json.dumps(found_as_dict(target, key), ensure_ascii=False))
        elif found.keys:
            rows = [
                [key.label, "yes" if key.is_there else "removed", " ".join(map(str, key.batches)) or "-"]
                for key in found.keys
            ]
            table(["KEY", "THERE", "CHANGED IN"], rows)
        note(f"{target.label}: {found.summary}")


def _print_table(found: KeyHistory) -> None:
    from headwater.views.state_cells import history_cells

    if not len(found):
        return
    note(f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}")
    cells = history_cells(found)
    table(cells.columns, cells.rows)
