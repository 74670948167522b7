"""``headwater bisect``: the first batch at which a condition on the state holds."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, say
from headwater.cli.state import ENGINE, OPERATOR, STORE, VAR, Engine
from headwater.core.errors import UsageProblem


@app.command(rich_help_panel=LOOK)
def bisect(
    checkpoint: CheckpointName,
    where: Annotated[str, typer.Option(metavar="SQL", help="A condition over the columns of the state.")],
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the first batch after which some row of the state fits a condition.

    A condition on single rows is looked for in what each batch wrote, and the answer is exact. One that asks about the
    whole state, with a select inside, is found by halving: it is taken to stay true once it is. Starts no Spark.

    Example:
      headwater bisect running-totals --where "total < 0"
    """
    from headwater.cli.state_source import StateSource

    source = StateSource(checkpoint, engine)
    batches = source.reader.readable(operator)
    if not batches:
        raise UsageProblem("no-batch", "there is no batch whose state can be rebuilt")
    found = source.first_batch(batches, where, operator=operator, store=store, var=var)
    if as_json:
        json_line({"first_batch": found.first_batch, "tested": list(found.tested)})
    elif found.first_batch is None:
        say(f"holds after none of the batches {batches[0]} to {batches[-1]}")
    elif found.first_batch == batches[0]:
        say(f"holds after batch {batches[0]} already, the oldest whose state can be rebuilt")
    else:
        say(f"first holds after batch {found.first_batch}")
