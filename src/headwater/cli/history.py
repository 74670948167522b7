"""``headwater history``: the value of a key after each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import OPERATOR, SCHEMA, STORE, VAR, parse_key
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
    from headwater.cli.state_source import StateSource
    from headwater.statefiles.key_lookup import with_key_fields
    from headwater.timemachine.key_history import key_history

    fields = parse_key(key)
    ref = StoreRef(operator, store, var)
    source = StateSource(checkpoint, "native", schema, ref)
    targets = source.targets(source.reader.latest(), ref)
    histories = [key_history(source.reader, target, fields) for target in with_key_fields(targets, fields)]
    histories = [found.changes_only() if changes else found for found in histories]
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
    from headwater.statefiles.sqltypes import distinct
    from headwater.views.state_table import FlatColumns

    if not len(found):
        return
    note(f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}")
    keys = FlatColumns.of_fields(found.answer.key_type, found.key)
    values = FlatColumns.of_fields(found.answer.value_type, found.value)
    present = found.value.is_valid().to_pylist()
    value_texts = [
        [text if is_present else "-" for text, is_present in zip(column, present, strict=True)]
        for column in values.cell_texts()
    ]
    rows = zip(found.batch_id.to_pylist(), *keys.cell_texts(), *value_texts, strict=True)
    table(["batch", *distinct([*keys.names, *values.names])], rows)
