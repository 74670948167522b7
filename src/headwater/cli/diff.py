"""``headwater diff``: what changed in the state between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import note, say, table
from headwater.cli.state import ENGINE, OPERATOR, SHOWN_ROWS, STORE, VAR, Engine

if TYPE_CHECKING:
    from headwater.timemachine.diff import StateDiff

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@app.command(rich_help_panel=LOOK)
def diff(
    checkpoint: CheckpointName,
    a: Annotated[str, typer.Argument(metavar="A", help="The batch to compare with: 41, HEAD~3, @10:30 (UTC)")],
    b: Annotated[str, typer.Argument(metavar="B", help="The batch to compare.")] = "HEAD",
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"At most so many keys, 0 for all; a table has {SHOWN_ROWS}.")
    ] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the keys that were added, removed or changed between batch A and batch B, with old and new values.

    Where the store keeps the changes of each batch, only those are read. Starts no Spark.

    Example:
      headwater diff browser-stats-stateful HEAD~1 HEAD
    """
    from headwater.cli.state_source import StateSource

    source = StateSource(checkpoint, engine)
    first, second = source.resolve(a), source.resolve(b)
    for found in source.diffs(first, second, operator=operator, store=store, var=var):
        if as_json:
            from headwater.views.state_lines import diff_lines

            for line in diff_lines(found.slice(limit) if limit else found):
                say(line)
        else:
            _show(found, first, second, limit)


def _show(found: StateDiff, first: int, second: int, limit: int | None) -> None:
    from headwater.statefiles.sqltypes import distinct
    from headwater.views.state_table import cell_texts, fields_of, in_order

    counts = {sign: found.change.to_pylist().count(word) for word, sign in _SIGNS.items()}
    about = f"operator {found.answer.operator_id}, {found.answer.var or found.answer.store}"
    note(f"{about}, batch {first} to {second}: +{counts['+']} -{counts['-']} ~{counts['~']}")
    if not len(found):
        return
    names, types, columns = fields_of(found.answer.key_type, found.key)
    order = in_order(columns)
    most = len(found) if limit == 0 else min(len(found), limit or SHOWN_ROWS)

    def chosen(column: object) -> object:
        return column.take(order.slice(0, most)) if order is not None else column.slice(0, most)  # type: ignore[attr-defined]

    keys = [cell_texts(kind, chosen(column)) for kind, column in zip(types, columns, strict=True)]
    signs = [_SIGNS[word] for word in chosen(found.change).to_pylist()]  # type: ignore[attr-defined]
    before = fields_of(found.answer.value_type, chosen(found.before))
    after = fields_of(found.answer.value_type, chosen(found.after))
    values = [
        [_both(*pair) for pair in zip(cell_texts(kind, old), cell_texts(kind, new), strict=True)]
        for kind, old, new in zip(before[1], before[2], after[2], strict=True)
    ]
    table(["", *distinct([*names, *before[0]])], zip(signs, *keys, *values, strict=True))
    if len(found) > most:
        note(f"{len(found) - most:,} more; --limit 0 shows all")


def _both(old: str | None, new: str | None) -> str | None:
    return new if old == new or old is None else old if new is None else f"{old} → {new}"
