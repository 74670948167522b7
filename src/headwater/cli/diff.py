"""``headwater diff``: what changed in the state between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state_source import ENGINE, OPERATOR, SCHEMA, SHOWN_ROWS, STORE, VAR, Engine
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.timemachine.diff import StateDiff

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@app.command(rich_help_panel=INSPECT)
def diff(
    checkpoint: CheckpointName,
    a: Annotated[str, typer.Argument(metavar="A", help="Earlier batch: 41, HEAD~3 or @10:30 (UTC).")],
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
    from headwater.cli.state_source import StateSource

    ref = StoreRef(operator, store, var)
    source = StateSource(checkpoint, engine, schema, ref)
    first, second = source.resolve(a), source.resolve(b)
    for found in source.diffs(first, second, ref):
        if as_json:
            from headwater.views.state_lines import diff_lines

            for line in diff_lines(found.slice(limit) if limit else found):
                say(line)
        else:
            _print_table(found, first, second, limit)


def _print_table(found: StateDiff, first: int, second: int, limit: int | None) -> None:
    from headwater.statefiles.sqltypes import distinct
    from headwater.views.state_table import FlatColumns, first_rows, sort_order

    counts = {sign: found.change.to_pylist().count(change) for change, sign in _SIGNS.items()}
    name = f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}"
    note(f"{name}, batch {first} to {second}: +{counts['+']} -{counts['-']} ~{counts['~']}")
    if not len(found):
        return
    keys = FlatColumns.of_fields(found.answer.key_type, found.key)
    before, after = (FlatColumns.of_fields(found.answer.value_type, side) for side in (found.before, found.after))
    order = sort_order(keys.arrays)
    shown = len(found) if limit == 0 else min(len(found), limit or SHOWN_ROWS)
    signs = [_SIGNS[change] for change in first_rows(found.change, shown, order).to_pylist()]
    key_texts, old_texts, new_texts = (
        columns.first_rows(shown, order).cell_texts() for columns in (keys, before, after)
    )
    values = [
        [_transition(*pair) for pair in zip(old, new, strict=True)]
        for old, new in zip(old_texts, new_texts, strict=True)
    ]
    table(["", *distinct([*keys.names, *before.names])], zip(signs, *key_texts, *values, strict=True))
    if len(found) > shown:
        note(f"{len(found) - shown:,} more; --limit 0 shows all")


def _transition(old: str | None, new: str | None) -> str | None:
    return new if old == new or old is None else old if new is None else f"{old} → {new}"
