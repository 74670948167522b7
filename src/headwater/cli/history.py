"""``headwater history``: one key's value through the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state import OPERATOR, STORE, VAR, key_texts

if TYPE_CHECKING:
    from headwater.timemachine.key_history import KeyHistory


@app.command(rich_help_panel=LOOK)
def history(
    checkpoint: CheckpointName,
    key: Annotated[list[str], typer.Option(metavar="FIELD=VALUE", help="A field of the key; give as many as needed.")],
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Leave out batches that changed nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show a key's value after each batch whose state can still be rebuilt.

    With some fields of the key, every key that has them is shown. A field inside another is named window.start; null
    is written null. Each file of changes is read once, and no state is rebuilt twice. Starts no Spark.

    Example:
      headwater history browser-stats-stateful --key browser=Firefox
    """
    from headwater.cli.state_source import StateSource
    from headwater.timemachine.key_history import fitting, key_history

    asked = key_texts(key)
    source = StateSource(checkpoint, "native")
    targets = source.targets(source.reader.latest(), operator=operator, store=store, var=var)
    found = [key_history(source.reader, target, asked) for target in fitting(targets, asked)]
    found = [held.changes_only() if changes else held for held in found]
    for held in found:
        if as_json:
            from headwater.views.state_lines import history_lines

            for line in history_lines(held, alone=len(found) == 1):
                say(line)
        else:
            _show(held)
    if not any(len(held) for held in found):
        note("no such key in any batch whose state can be rebuilt")


def _show(found: KeyHistory) -> None:
    from headwater.statefiles.sqltypes import distinct
    from headwater.views.state_table import cell_texts, fields_of

    if not len(found):
        return
    note(f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}")
    keys = fields_of(found.answer.key_type, found.key)
    values = fields_of(found.answer.value_type, found.value)
    there = found.value.is_valid().to_pylist()
    texts = [cell_texts(kind, column) for kind, column in zip(keys[1], keys[2], strict=True)]
    held = [cell_texts(kind, column) for kind, column in zip(values[1], values[2], strict=True)]
    held = [[text if present else "-" for text, present in zip(column, there, strict=True)] for column in held]
    table(["batch", *distinct([*keys[0], *values[0]])], zip(found.batch_id.to_pylist(), *texts, *held, strict=True))
